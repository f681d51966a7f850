"""Time, randomness, threads and tasks.

All other code asks a Runtime for them, so that tests control the clock and the randomness.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from io import BytesIO
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from gesta.domain.ids import id_text

T = TypeVar("T")


class Signal:
    """Wakes the tasks that wait for it.

    If it is set while no task waits, the next wait returns immediately. A task that waits
    repeatedly also returns immediately if it was set between its waits, even if another task has
    returned for that: two tasks that follow one log must not miss events because of each other.
    """

    __slots__ = ("_count", "_heard", "_runtime", "_seen", "_waiters")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        #: How often it was set, and the count at which a wait last returned.
        self._count = self._heard = 0
        #: Task → the count that it has seen. Created when needed: most signals have one wait.
        self._seen: WeakKeyDictionary[asyncio.Task[Any], int] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        self._count += 1
        for waiter in self._waiters:
            _wake(waiter)

    async def wait(self, timeout_seconds: float) -> None:
        """Return when it is set, or was set since this task last waited, or after the timeout."""
        if self._was_set():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._runtime.call_later(timeout_seconds, _wake, waiter)
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.remove(waiter)
            self._was_set()

    def _was_set(self) -> bool:
        """Whether it was set since this task asked; the first time: since any task asked."""
        if not self._count:
            return False
        if self._seen is None:
            self._seen = WeakKeyDictionary()
        task = asyncio.current_task()
        assert task is not None
        seen = self._seen.get(task, self._heard)
        self._seen[task] = self._heard = self._count
        return seen != self._count


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Timer(Protocol):
    def cancel(self) -> None: ...


class Runtime(Protocol):
    """Time, randomness and threads for one engine."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...
    def chance(self) -> float: ...
    def random_bytes(self, count: int) -> bytes: ...
    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> Timer: ...
    def thread(self, target: Callable[[], None], name: str) -> threading.Thread: ...


#: The first byte of an id's random half: any byte with the two top bits that mark the variant.
_VARIANT = [bytes([0x80 | byte & 0x3F]) for byte in range(256)]


class Ids:
    """UUIDv7: time-ordered, increasing within a process even inside one millisecond."""

    __slots__ = ("_last", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._last = 0

    def new_bytes(self) -> bytes:
        # 48 bits of time, the version and 12 bits of sequence are one number, so an id never sorts
        # before an earlier one.
        head = self._runtime.now_ms() << 16 | 0x7000
        if head <= self._last:
            head = self._last + 1
            if head & 0x8000:
                # The sequence of a millisecond has ended: the first id of the next one.
                head += 0xF000
        self._last = head
        tail = self._runtime.random_bytes(8)
        return head.to_bytes(8, "big") + _VARIANT[tail[0]] + tail[1:]

    def new(self) -> str:
        return id_text(self.new_bytes())


async def sleep(runtime: Runtime, seconds: float) -> None:
    """Wait on the runtime's clock."""
    await Signal(runtime).wait(seconds)


async def turn() -> None:
    """Let everything that is ready run once."""
    await asyncio.sleep(0)


def is_cancelled() -> bool:
    """Whether this task itself was cancelled.

    Otherwise a CancelledError comes from something that it awaited.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def spawn(coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a task.

    The caller keeps the reference: Python may collect a task without one while it runs.
    """
    return asyncio.get_running_loop().create_task(coroutine, name=name)


async def run_all(coroutines: Iterable[Coroutine[Any, Any, T]], name: str) -> list[T]:
    """Run them at the same time; their results in order. If one fails, the others are cancelled."""
    tasks = [spawn(one, name) for one in coroutines]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        # None may go on after this returns, and no error of the others is of interest.
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait until every task has ended, whatever with; also if the caller is cancelled meanwhile."""
    waited = list(tasks)
    try:
        await asyncio.wait(waited)
    finally:
        await asyncio.wait(waited)


#: How many new objects start a garbage collection. An engine makes many short-lived objects and
#: hardly any cycles; with Python's default of 700 a quarter of the time goes into collections. The
#: number exceeds the objects of some thousand running requests: payments have about fifty each, and
#: one collection of theirs takes 60 ms and finds nothing.
GC_THRESHOLD = 500_000
#: How long the event loop may keep the GIL while the SQLite thread waits for it between two
#: statements. Small batches have as many statements as large ones, and each waits this long.
SWITCH_SECONDS = 0.00005


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program in a new event loop (uvloop where installed), tuned for an engine process."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(main)
    return uvloop.run(main)


class WorkerThread(Generic[T]):
    """A thread that processes items in batches.

    Items that arrive while it processes a batch form the next one.
    """

    def __init__(self, runtime: Runtime, name: str, run: Callable[[list[T]], None]) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._run = run
        self._thread = runtime.thread(self._work, name)

    def put(self, item: T) -> None:
        self._items.put(item)

    def close(self) -> None:
        """Process the items that wait, then end the thread."""
        self._items.put(None)
        self._thread.join()

    def _work(self) -> None:
        closing = False
        while not closing:
            batch: list[T] = []
            item = self._items.get()
            while True:
                if item is None:
                    closing = True
                else:
                    batch.append(item)
                try:
                    item = self._items.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._run(batch)


class LastResort:
    """Ends the process with exit code 0 when its time is up, whatever still runs in it.

    For the store it is like a kill, which loses nothing. Code may swallow its cancellation or block
    the event loop, and a thread may never return, so a thread of its own does this.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._ends: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        runtime.thread(self._watch, "gesta-last-resort")

    def within(self, seconds: float) -> None:
        """End the process after so many seconds, unless an earlier end is set. Signal-safe."""
        self._ends.put(time.monotonic() + seconds)

    def dismiss(self) -> None:
        self._ends.put(None)

    def _watch(self) -> None:
        end = self._ends.get()
        while end is not None and (left := end - time.monotonic()) > 0:
            try:
                sooner = self._ends.get(timeout=left)
            except queue.Empty:
                break
            end = None if sooner is None else min(end, sooner)
        if end is None:
            return
        os.write(
            2,
            b"gesta: stopped although something did not end in time; the next start continues\n",
        )
        os._exit(0)


class SystemRuntime:
    """The real clock, randomness and threads."""

    def __init__(self) -> None:
        self._pool = BytesIO()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    #: Used several times per request, so without a wrapping call.
    monotonic = staticmethod(time.monotonic)
    chance = staticmethod(random.random)

    def random_bytes(self, count: int) -> bytes:
        # One system call for many ids: os.urandom costs more than the rest of making one.
        found = self._pool.read(count)
        if len(found) < count:
            self._pool = BytesIO(os.urandom(max(4096, count)))
            found = self._pool.read(count)
        return found

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback, *args)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread


class OnClock:
    """A runtime with the time of day of the store, which all processes on the store share."""

    def __init__(self, runtime: Runtime, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.monotonic, self.chance, self.random_bytes = (
            runtime.monotonic,
            runtime.chance,
            runtime.random_bytes,
        )
        self.call_later, self.thread = runtime.call_later, runtime.thread


class _ManualTimer:
    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class ManualRuntime(SystemRuntime):
    """A clock that a test moves, and randomness with a seed."""

    def __init__(self, start_ms: int = 1_800_000_000_000, seed: int = 0) -> None:
        super().__init__()
        self._now_ms = float(start_ms)
        self._random = random.Random(seed)
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._begun = 0

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def chance(self) -> float:
        return self._random.random()

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> Timer:
        timer = _ManualTimer(callback, args)
        self._begun += 1
        heapq.heappush(self._timers, (self._now_ms + seconds * 1000, self._begun, timer))
        return timer

    @property
    def waits_begun(self) -> int:
        """How many waits have begun; if it stays the same for some turns of the loop, all tasks
        wait.
        """
        return self._begun

    @property
    def next_timer_ms(self) -> float | None:
        """When the next wait ends, in epoch milliseconds."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, seconds: float) -> None:
        """Move the clock and fire the timers that fall due, in order."""
        self.advance_to(self._now_ms + seconds * 1000)

    def advance_to(self, target_ms: float) -> None:
        while self._timers and self._timers[0][0] <= target_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, due_ms)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._now_ms = max(self._now_ms, target_ms)
