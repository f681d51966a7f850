"""Time, randomness and threads of the client, which imports no engine code."""

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Tests replace it."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...
    def chance(self) -> float: ...
    def random_bytes(self, count: int) -> bytes: ...
    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> object: ...
    def thread(self, target: Callable[[], None], name: str) -> threading.Thread: ...


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    chance = staticmethod(random.random)
    random_bytes = staticmethod(os.urandom)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> object:
        return asyncio.get_running_loop().call_later(seconds, callback, *args)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread


async def sleep(clock: Clock, seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    clock.call_later(seconds, _wake, waiter)
    await waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class LoopThread:
    """An event loop in its own thread; callers wait for the coroutines that it runs."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = clock.thread(self._loop.run_forever, name)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result. An interrupted caller cancels the coroutine."""
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items one by one. A caller that stops early closes their source."""
        try:
            while True:
                try:
                    item = self.run(_next(items))
                except _NoMore:
                    return
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                self.run(items.aclose())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _NoMore(Exception):
    """A future cannot carry StopAsyncIteration."""


async def _next(items: AsyncIterator[T]) -> T:
    try:
        return await anext(items)
    except StopAsyncIteration:
        raise _NoMore from None
