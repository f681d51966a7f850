"""Long polls: while a worker has free slots and a queue is empty, one call waits there for jobs.

What it receives is kept until the worker takes it, which it does as soon as it is woken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from gesta.errors import StoreError
from gesta.runtime.clock import spawn
from gesta.stores.sqs.client import Message


class Received(NamedTuple):
    """A message, and when it becomes visible to others by our monotonic clock."""

    message: Message
    until: float


Receive = Callable[[str, int, float], Awaitable[list[Received]]]


class LongPoll:
    def __init__(self, receive: Receive, found: Callable[[], None], *, is_on: bool) -> None:
        """`receive` takes a flow, a limit and the length of a lease. `found` wakes the worker."""
        self._receive, self._found, self._is_on = receive, found, is_on
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, list[Received]] = {}

    def is_polling(self, flow: str) -> bool:
        """A short receive would find nothing that the poll does not."""
        return flow in self._polls

    def listen_for(self, flow: str, free: int, lease_seconds: float) -> None:
        """Wait for up to so many jobs of a flow, unless a call waits already."""
        if self._is_on and flow not in self._polls:
            self._polls[flow] = spawn(self._poll(flow, free, lease_seconds), "gesta-sqs-poll")

    def take(self, flow: str, limit: int) -> list[Received]:
        """What came in meanwhile."""
        waiting = self._waiting.get(flow, [])
        taken, self._waiting[flow] = waiting[:limit], waiting[limit:]
        return taken

    async def close(self) -> dict[str, list[Received]]:
        """Stop waiting; what was received and not taken."""
        polls = list(self._polls.values())
        for task in polls:
            task.cancel()
        for task in polls:
            with suppress(asyncio.CancelledError):
                await task
        left, self._waiting = self._waiting, {}
        return left

    async def _poll(self, flow: str, free: int, lease_seconds: float) -> None:
        try:
            # On an error the next take asks by itself and raises it.
            with suppress(StoreError):
                came = await self._receive(flow, free, lease_seconds)
                self._waiting.setdefault(flow, []).extend(came)
        finally:
            del self._polls[flow]
            self._found()
