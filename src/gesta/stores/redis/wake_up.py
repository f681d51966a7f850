"""Wakes the workers of this process when a job is put by another one, or by a Node service.

BullMQ's marker is a sorted set per queue: member 0 says that a job is ready, member 1 when the next
delayed one is due. BZPOPMIN gives it to one waiting worker; `take` sets it again while more is
there. A marker is a hint and may be lost: workers also look once a second.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from gesta.errors import StoreError
from gesta.runtime.clock import Runtime, Signal, is_cancelled, sleep, spawn
from gesta.stores.redis.connection import Redis
from gesta.stores.redis.keys import QueueKeys

#: One blocking call lasts so long at most.
BLOCK_SECONDS = 2
#: After an error.
PAUSE_SECONDS = 1.0
#: After a marker that led to no job of ours, say because the jobs are for a Node worker.
QUIET_SECONDS = 0.2


class WakeUp:
    def __init__(
        self, redis: Redis, runtime: Runtime, wake: Callable[[], None], *, is_on: bool = True
    ) -> None:
        self._redis, self._runtime, self._wake, self._is_on = redis, runtime, wake, is_on
        self._flows: tuple[str, ...] = ()
        self._wanted = Signal(runtime)
        self._was_woken = False
        self._quiet_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def listen_for(self, flows: Collection[str], *, has_found: bool) -> None:
        """Flows that this process has free slots for, after a take that has found jobs or not.

        The markers of other flows are left alone.
        """
        self._flows = tuple(flows)
        if self._was_woken and not has_found:
            self._quiet_until = self._runtime.monotonic() + QUIET_SECONDS
        self._was_woken = False
        if flows and self._is_on:
            self._wanted.set()
            if self._task is None:
                self._task = spawn(self._run(), "gesta-redis-marker")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        # redis-py may turn a cancellation into a timeout of its own.
        while not is_cancelled():
            if not self._flows:
                await self._wanted.wait(PAUSE_SECONDS)
                continue
            if (quiet := self._quiet_until - self._runtime.monotonic()) > 0:
                await sleep(self._runtime, quiet)
            try:
                await self._listen()
            except StoreError:
                await sleep(self._runtime, PAUSE_SECONDS)

    async def _listen(self) -> None:
        prefix = self._redis.address.prefix
        keys = [QueueKeys(prefix, flow)["marker"] for flow in self._flows]
        popped = await self._redis.block(BLOCK_SECONDS, "BZPOPMIN", *keys, BLOCK_SECONDS)
        # When the next delayed job is due, the worker knows from its last take.
        if popped and popped[1] == "0":
            self._was_woken = True
            self._wake()
