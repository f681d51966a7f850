"""Station 6 of 7, first half: take jobs while there are free slots, load their requests in one call, start their attempts.

Receives pointers from the queue; hands a job, its view and its tenant's config to attempt.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from gesta.addresses import config_stream
from gesta.config import ConfigCache
from gesta.current import Loader
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.job_queue import Ack, JobQueue, Release, Taken
from gesta.runtime import Ids, Runtime, Signal, sleep, spawn
from gesta.telemetry import Telemetry
from gesta.views import Parked, View, Views
from gesta.worker.attempt import Attempts
from gesta.worker.deadlines import Deadlines, Running
from gesta.worker.lease import LEASE_SECONDS, Lease

#: How soon jobs that another process put are noticed; our own are noticed at once.
POLL_SECONDS = 0.1
STORE_PAUSE_SECONDS = 1.0
#: A pointer may be ahead of the log it points into, for a moment, where queue and log are different servers.
MISSING_TRIES = 5
MISSING_PAUSE_MS = 500


class Pool:
    def __init__(
        self, flows: Mapping[str, Flow], queue: JobQueue, views: Views, loader: Loader, config: ConfigCache, attempts: Attempts, deadlines: Deadlines,
        runtime: Runtime, ids: Ids, telemetry: Telemetry,
    ) -> None:  # fmt: skip
        self._flows, self._queue, self._views, self._loader, self._config = flows, queue, views, loader, config
        self._attempts, self._runtime, self._telemetry = attempts, runtime, telemetry
        self._deadlines = deadlines
        self.lease = Lease(queue, runtime, ids, telemetry, lambda: deadlines.cut_all("lease_lost"))
        # Only where doubt cannot be resent under the same key does a take have to be on disk before the call.
        self._durable = any(flow.rules.on_unknown != "same_key" for flow in flows.values())
        self._free = {flow.name: flow.concurrency for flow in flows.values()}
        self._freed = Signal(runtime)
        self._tasks: set[asyncio.Task[None]] = set()
        self._missing: dict[str, int] = {}
        self._taking: asyncio.Task[tuple[list[Taken], int | None]] | None = None
        #: When the queue said the next job falls due, for tests that own the clock.
        self.next_due_ms: int | None = None

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def run(self) -> None:
        """Take and start for ever."""
        while True:
            free = {flow: slots for flow, slots in self._free.items() if slots > 0}
            if not free:
                await self._freed.wait(POLL_SECONDS)
                continue
            try:
                await self._take(free)
            except StoreError as error:
                self._telemetry.store_failed("worker", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)

    async def _take(self, free: dict[str, int]) -> None:
        asked_at = self._runtime.monotonic()
        # Shielded: a take whose answer nobody awaits would leave jobs held, and in doubt at the next start.
        self._taking = spawn(self._queue.take(self.lease.token, free, LEASE_SECONDS, durable=self._durable), "gesta-take")
        taken, self.next_due_ms = await asyncio.shield(self._taking)
        self._taking = None
        if not taken:
            wait = POLL_SECONDS
            if self.next_due_ms is not None:
                wait = min(wait, max(0.001, (self.next_due_ms - self._runtime.now_ms()) / 1000))
            await self._queue.ready(wait)
            return
        self.lease.renewed(asked_at)
        self.lease.held += len(taken)
        for one in taken:
            self._free[one.job.flow] -= 1
        self._start(self._begin(taken))

    def _start(self, coroutine: Coroutine[Any, Any, None], running: Running | None = None) -> None:
        task = spawn(coroutine, "gesta-attempt")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if running is not None:
            running.task = task

    async def _begin(self, taken: list[Taken]) -> None:
        """Load all the requests of one take in one call, then run each attempt on its own: a slow one holds back nobody."""
        found = await self._load(taken)
        now = self._runtime.now_ms()
        for one in taken:
            self._telemetry.taken(one, now)
            view = found.get(one.job.request_id)
            if view is None:
                self._start(self._not_found(one))
            else:
                running = Running()
                attempt = self._attempts.run(one, view, self._config.of(one.job.tenant), self.lease, running)
                self._start(self._run(one, attempt), running)

    async def _load(self, taken: list[Taken]) -> dict[str, View]:
        keys = [(one.job.flow, one.job.tenant, one.job.request_id) for one in taken]
        while True:
            wanted = [(config_stream(tenant), self._config.version(tenant)) for tenant in {one.job.tenant for one in taken}]
            try:
                found, changes = await self._loader.load(keys, wanted)
            except StoreError as error:
                # Held and not called yet: while the lease is renewed, nobody else would do them.
                self._telemetry.store_failed("worker", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
            else:
                self._config.apply(changes)
                return found

    async def _run(self, taken: Taken, attempt: Coroutine[Any, Any, None]) -> None:
        try:
            await attempt
        except Exception as error:  # noqa: BLE001 -- a poison job is parked and reported, and the rest goes on
            await self._park(taken, error)
        finally:
            self._free_slot(taken)

    def _free_slot(self, taken: Taken) -> None:
        self.lease.held -= 1
        self._free[taken.job.flow] += 1
        self._freed.set()

    async def _not_found(self, taken: Taken) -> None:
        tries = self._missing[taken.job.id] = self._missing.get(taken.job.id, 0) + 1
        try:
            if tries < MISSING_TRIES:
                await self._queue.settle([Release(taken.job.id, taken.token, self._runtime.now_ms() + MISSING_PAUSE_MS)])
                return
            del self._missing[taken.job.id]
            await self._park(taken, LookupError("request_not_found"))
        finally:
            self._free_slot(taken)

    async def _park(self, taken: Taken, error: Exception) -> None:
        self._telemetry.parked("job", taken.job.id, taken.job.dispatch_version, error)
        parked = Parked(
            "job", taken.job.tenant, taken.job.id, taken.job.dispatch_version, type(error).__name__, self._runtime.now_ms()
        )
        await self._views.save([], [parked], None)
        await self._queue.settle([Ack(taken.job.id, taken.token)])

    async def stop(self, drain_seconds: float) -> None:
        """After `run` was cancelled: give back what was taken last, let attempts end, cut those that take too long (Unknown)."""
        if self._taking is not None:
            with suppress(StoreError):
                taken, _ = await self._taking
                await self._queue.settle([Release(one.job.id, one.token, 0) for one in taken])
        cutting = self._runtime.call_later(drain_seconds, self._deadlines.cut_all, "stopping")
        if drain_seconds == 0:
            self._deadlines.cut_all("stopping")
        while self._tasks:
            await next(iter(self._tasks))
        cutting.cancel()
