"""All stations of one process, wired and kept running: the pipeline on one screen."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from gesta.admission import Admission
from gesta.config import ConfigCache, ConfigWriter
from gesta.current import Loader
from gesta.errors import NotFound, StoreError
from gesta.flows.flow import Flow
from gesta.identity import Identity
from gesta.intake import Intake
from gesta.outbound_http import Http
from gesta.pace import Pace
from gesta.pausing import Pausing
from gesta.projector.follow import CHECKPOINT, Projector
from gesta.projector.rebuild import Rebuild
from gesta.projector.relay import Relay
from gesta.recorder import Recorder
from gesta.retention import Retention, removed_text
from gesta.role import Role
from gesta.runtime import Ids, OnClock, sleep, spawn
from gesta.sealing import IDENTITY, Safe
from gesta.subjects import Subjects
from gesta.subscriptions import Subscription, Subscriptions
from gesta.sweep import ROLE, Sweep
from gesta.telemetry import Telemetry
from gesta.waiters import Waiters
from gesta.wiring import Outside
from gesta.worker.attempt import Attempts
from gesta.worker.deadlines import Deadlines
from gesta.worker.pool import Pool

RESTART_SECONDS = 1.0


class Road:
    """ask → intake → event store → projector → queue → worker → flow → recorder → event store."""

    def __init__(
        self,
        flows: Mapping[str, Flow],
        outside: Outside,
        safe: Safe,
        identity_secret: bytes,
        subscriptions: Sequence[Subscription] = (),
        retention_days: int | None = None,
    ) -> None:
        stores = outside.stores
        runtime = OnClock(outside.runtime, stores.now_ms)
        self.flows, self.outside, self.runtime = flows, outside, runtime
        self.ids = ids = Ids(runtime)
        self.telemetry = telemetry = Telemetry()
        self.loader = Loader(stores.events, stores.views)
        self.recorder = Recorder(stores.commits, self.loader, runtime)
        self.config_writer = ConfigWriter(stores.events, safe, runtime, ids, outside.reference)
        self.config = ConfigCache(flows, self.config_writer)
        identity = Identity(identity_secret)
        self.subjects = Subjects(stores.vault, safe, identity, runtime)
        # For people who ask who plays a role.
        self._owner = owner = f"{platform.node()}:{os.getpid()}:{ids.new()}"
        self.rebuild = Rebuild(stores.events, stores.views, stores.commits, runtime, telemetry, owner)
        self.pausing = Pausing(self.config, self.config_writer, stores.queue)
        self.projector = Projector(stores.events, stores.views, stores.commits, runtime, telemetry, owner)
        admission = Admission(stores, self.projector.place, outside.settings, runtime)
        self.intake = Intake(
            flows, stores.events, admission, Pace(runtime, self.projector.not_far_behind), identity, self.subjects, runtime, ids
        )
        deadlines = Deadlines(runtime)
        attempts = Attempts(flows, self.recorder, partial(Http, outside.transport, runtime), deadlines, runtime, telemetry)
        self.pool = Pool(
            flows,
            stores.queue,
            stores.views,
            self.loader,
            self.config,
            self.subjects,
            self.pausing,
            attempts,
            deadlines,
            runtime,
            ids,
            telemetry,
        )
        retention = Retention(retention_days, flows, stores.views, stores.commits, runtime, telemetry)
        self.retention_days = retention_days
        self.sweep = Sweep(
            flows, stores.views, stores.queue, self.loader, self.recorder, self.pausing, retention, runtime, telemetry, owner
        )
        self.subscriptions = Subscriptions(subscriptions, stores.events, stores.views, runtime, telemetry, owner)
        self.waiters = Waiters()
        self.projector.listen(self.waiters.saved)
        self._stations: dict[str, Callable[[], Awaitable[None]]] = {
            "projector": self.projector.run,
            "worker": self.pool.run,
            "queue": self.pool.listen,
            "lease": self.pool.lease.keep,
            "deadlines": deadlines.run,
            "sweep": self.sweep.run,
            **self.subscriptions.stations(),
        }
        if stores.pending is not None:
            role = Role(CHECKPOINT, owner, stores.views, runtime)
            self._stations["relay"] = Relay(stores.views, stores.queue, role, stores.pending, runtime, telemetry).run
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @classmethod
    async def build(
        cls,
        flows: Mapping[str, Flow],
        outside: Outside,
        subscriptions: Sequence[Subscription] = (),
        retention_days: int | None = None,
    ) -> Road:
        """Open the vault, which proves the master key, and wire the stations."""
        safe = Safe(outside.stores.vault, outside.master, outside.runtime)
        road = cls(flows, outside, safe, await safe.installation_secret(IDENTITY[1]), subscriptions, retention_days)
        if outside.built is not None:
            outside.built(road)
        return road

    def not_found(self, request_id: str) -> NotFound:
        return NotFound("request", request_id, removed_text(request_id, self.retention_days, self.runtime.now_ms()))

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    def start(self) -> None:
        for name, run in self._stations.items():
            self._tasks[name] = spawn(self._keep_running(name, run), f"gesta-{name}")

    async def stop(self) -> None:
        """Stop taking and telling, let attempts and handlers end and be recorded and projected, then close."""
        was_running = self.is_running
        until = self.runtime.monotonic() + self.outside.drain_seconds
        self.subscriptions.stop()
        await self._end("worker")
        await self.pool.stop(self.outside.drain_seconds)
        await self.subscriptions.drain(until)
        for name in list(self._tasks):
            await self._end(name)
        if was_running:
            await self.projector.finish()
            await self.subscriptions.finish()
            await self._resign()
        await self.outside.transport.close()
        await self.outside.stores.close()

    async def _resign(self) -> None:
        """Give up our roles, so that the next process need not wait until their leases run out."""
        with suppress(StoreError):
            for role in (CHECKPOINT, ROLE, *(one.subscription.checkpoint for one in self.subscriptions.subscribers)):
                await self.outside.stores.views.claim(role, self._owner, 0.0)

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A station that crashes is told about and started again: no restart by hand is ever needed."""
        while True:
            try:
                await run()
            except Exception as error:  # noqa: BLE001 -- see above
                self.telemetry.crashed(name, error)
            await sleep(self.runtime, RESTART_SECONDS)
