"""All stations of one process, wired and kept running: the pipeline on one screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

from gesta.admission import Admission
from gesta.config import ConfigCache, ConfigWriter
from gesta.current import Loader
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.identity import Identity
from gesta.intake import Intake
from gesta.outbound_http import Http
from gesta.pace import Company, Pace
from gesta.pausing import Pausing
from gesta.projector.follow import CHECKPOINT, Projector
from gesta.recorder import Recorder
from gesta.runtime import Ids, sleep, spawn
from gesta.sealing import IDENTITY, Safe
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

    def __init__(self, flows: Mapping[str, Flow], outside: Outside, safe: Safe, identity_secret: bytes) -> None:
        stores, runtime = outside.stores, outside.runtime
        self.flows, self.outside, self.runtime = flows, outside, runtime
        self.ids = ids = Ids(runtime)
        self.telemetry = telemetry = Telemetry()
        self.loader = Loader(stores.events, stores.views)
        self.recorder = Recorder(stores.commits, self.loader, runtime)
        self.config_writer = ConfigWriter(stores.events, safe, runtime, ids, outside.reference)
        self.config = ConfigCache(flows, self.config_writer)
        self.pausing = Pausing(self.config, self.config_writer, stores.queue)
        self._owner = owner = ids.new()
        company = Company(runtime)
        self.projector = Projector(stores.events, stores.views, stores.commits, company, runtime, telemetry, owner)
        pace = Pace(runtime, company, self.projector.catch_up)
        admission = Admission(stores, self.projector.place, outside.settings, runtime)
        self.intake = Intake(flows, stores.events, admission, pace, Identity(identity_secret), runtime, ids)
        deadlines = Deadlines(runtime)
        attempts = Attempts(flows, self.recorder, partial(Http, outside.transport, runtime), deadlines, runtime, telemetry)
        self.pool = Pool(
            flows,
            stores.queue,
            stores.views,
            self.loader,
            self.config,
            self.pausing,
            attempts,
            deadlines,
            runtime,
            ids,
            telemetry,
        )
        self.sweep = Sweep(flows, stores.views, stores.queue, self.loader, self.recorder, self.pausing, runtime, telemetry, owner)
        self.waiters = Waiters()
        self.projector.listen(self.waiters.saved)
        self._stations: dict[str, Callable[[], Awaitable[None]]] = {
            "projector": self.projector.run,
            "worker": self.pool.run,
            "queue": self.pool.listen,
            "lease": self.pool.lease.keep,
            "deadlines": deadlines.run,
            "sweep": self.sweep.run,
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @classmethod
    async def build(cls, flows: Mapping[str, Flow], outside: Outside) -> Road:
        """Open the vault, which proves the master key, and wire the stations."""
        safe = Safe(outside.stores.vault, outside.master, outside.runtime)
        road = cls(flows, outside, safe, await safe.installation_secret(IDENTITY[1]))
        if outside.built is not None:
            outside.built(road)
        return road

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    def start(self) -> None:
        for name, run in self._stations.items():
            self._tasks[name] = spawn(self._keep_running(name, run), f"gesta-{name}")

    async def stop(self) -> None:
        """Stop taking, let attempts end and be recorded and projected, then close."""
        was_running = self.is_running
        await self._end("worker")
        await self.pool.stop(self.outside.drain_seconds)
        for name in list(self._tasks):
            await self._end(name)
        if was_running:
            await self.projector.finish()
            await self._resign()
        await self.outside.transport.close()
        await self.outside.stores.close()

    async def _resign(self) -> None:
        """Give up our roles, so that the next process need not wait until their leases run out."""
        with suppress(StoreError):
            for role in (CHECKPOINT, ROLE):
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
