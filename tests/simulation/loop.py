"""An event loop without time, threads or I/O of its own: the seed chooses who runs next, and the
clock jumps to the next timer.

Every callback belongs to the simulated process whose context it runs in. The callbacks of a dead
process are never run again: no `except`
and no `finally` of it either, as after a SIGKILL. Those of a frozen one are kept until it is
resumed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any


class Owner:
    """The owner of callbacks, as far as the loop has to know."""

    name = ""

    def __init__(self) -> None:
        self.is_dead = False
        self.is_frozen = False
        self.kept: list[Handle] = []


#: The simulated process that the running code belongs to; None: the world outside.
OWNER: ContextVar[Owner | None] = ContextVar("OWNER", default=None)


class Handle:
    __slots__ = ("args", "callback", "context", "is_cancelled", "owner", "when")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float
    ) -> None:
        self.callback, self.args, self.context, self.when = callback, args, context, when
        self.owner = context.get(OWNER)
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


#: Many times what the longest run takes: a task loops for ever.
STEPS_MAX = 150_000


class Stuck(Exception):
    """No task is ready and no timer runs, or a task loops for ever, and it is not over."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as tasks and futures need."""

    def __init__(self, random: Random, start_seconds: float) -> None:
        self.now = start_seconds
        self.steps = 0
        self._random = random
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._begun = 0
        #: Referenced until the end of the run: a task that is collected would run its `finally`.
        self._tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A future that failed while no task waits: its waiter died.

        What matters is checked elsewhere.
        """

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],  # type: ignore[override]
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context, self.now)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        handle = Handle(
            callback,
            args,
            copy_context() if context is None else context,
            self.now + max(0.0, delay),
        )
        self._begun += 1
        heapq.heappush(self._timers, (handle.when, self._begun, handle))
        return handle

    async def delay(self, seconds: float) -> None:
        """Let simulated time pass; none at all: let the seed choose who goes on."""
        waiter = self.create_future()
        if seconds > 0:
            self.call_later(seconds, _wake, waiter)
        else:
            self.call_soon(_wake, waiter)
        await waiter

    def resume(self, owner: Owner) -> None:
        owner.is_frozen = False
        self._ready += owner.kept
        owner.kept = []

    def run(self, is_over: Callable[[], bool], jump_to: Callable[[], float] = lambda: 0.0) -> None:
        """Run until it is over, which is asked whenever no task is ready; `jump_to` may let time
        pass in which nothing happens.
        """
        ready, random = self._ready, self._random.random
        asyncio._set_running_loop(self)
        try:
            while True:
                while ready:
                    chosen = int(random() * len(ready))
                    ready[chosen], ready[-1] = ready[-1], ready[chosen]
                    self._step(ready.pop())
                    if self.steps > STEPS_MAX:
                        raise Stuck(f"no end after {self.steps} steps")
                if is_over():
                    return
                self.now = max(self.now, jump_to())
                self._next_timer()
        finally:
            asyncio._set_running_loop(None)

    def _step(self, handle: Handle) -> None:
        owner = handle.owner
        if handle.is_cancelled or (owner is not None and owner.is_dead):
            return
        if owner is not None and owner.is_frozen:
            owner.kept.append(handle)
            return
        self.steps += 1
        handle.context.run(handle.callback, *handle.args)

    def _next_timer(self) -> None:
        timers = self._timers
        while timers:
            when, _, handle = heapq.heappop(timers)
            if handle.is_cancelled or (handle.owner is not None and handle.owner.is_dead):
                continue
            self.now = max(self.now, when)
            self._ready.append(handle)
            # Whatever is due by now is ready, and the seed chooses among them.
            while timers and timers[0][0] <= self.now:
                self._ready.append(heapq.heappop(timers)[2])
            return
        raise Stuck("no task is ready, and no timer runs")

    def end(self) -> None:
        """The run is over: let go of every task that was left where it stood."""
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    # What a dead process's `finally` does now has no effect.
                    with suppress(BaseException):
                        task.get_coro().close()
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
