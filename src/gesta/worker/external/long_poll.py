"""Callers that wait for external work.

One task checks the queue for all of them, when the queue signals and once a second. No task runs
while no caller waits.
"""

import asyncio
from collections import deque

from gesta.errors import Overloaded
from gesta.ports.stores import Stores
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.component import Process, repeat

#: A queue signals when a job was put; this finds a job that becomes due.
POLL_SECONDS = 1.0
#: The least time between two looks: a busy queue signals all the time.
PAUSE_SECONDS = 0.02

#: How many callers may wait in one process, and for one flow of one tenant, so that no tenant takes
#: all places.
WAITING_MAX, WAITING_IN_QUEUE_MAX = 2_000, 200

Waiter = asyncio.Future[None]


class Waiting:
    def __init__(self, stores: Stores, process: Process) -> None:
        self._queue, self._external_leases = stores.queue, stores.external_leases
        self._process, self._runtime = process, process.runtime
        self._waiters: dict[str, deque[Waiter]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        return sum(map(len, self._waiters.values()))

    def check_room(self, external_queue: str) -> None:
        """Raise Overloaded if too many callers already wait."""
        if (
            self.count >= WAITING_MAX
            or len(self._waiters.get(external_queue, ())) >= WAITING_IN_QUEUE_MAX
        ):
            raise Overloaded(
                "too many workers wait for work here",
                "Let fewer workers wait, and lease more items per call",
                POLL_SECONDS,
            )

    async def wait(self, external_queue: str, seconds: float) -> None:
        """Return when the external queue may have work for this caller, at the latest after this
        many seconds. Callers are served in order.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(external_queue, deque()).append(waiter)
        timer = self._runtime.call_later(seconds, _wake, waiter)
        try:
            if self._watching is None:
                self._watching = spawn(self._watch(), "gesta-waiting")
            if external_queue in await self._external_leases.stocked([external_queue]):
                # Put after the last take and before this wait was registered.
                return
            await waiter
        finally:
            timer.cancel()
            self._waiters[external_queue].remove(waiter)
            if not self._waiters[external_queue]:
                del self._waiters[external_queue]

    def stop(self) -> None:
        """End all waits."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                _wake(waiter)

    async def _watch(self) -> None:
        try:
            await repeat(self._look, "waiting", self._process, is_over=lambda: not self._waiters)
        finally:
            self._watching = None

    async def _look(self) -> None:
        stocked = await self._external_leases.stocked(list(self._waiters))
        for external_queue in stocked:
            # One after the other, because there may be work for only one.
            waiter = next(
                (one for one in self._waiters.get(external_queue, ()) if not one.done()), None
            )
            if waiter is not None:
                _wake(waiter)
        if not stocked:
            await self._queue.ready(POLL_SECONDS)
        await sleep(self._runtime, PAUSE_SECONDS)


def _wake(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
