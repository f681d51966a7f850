"""Several processes on one store, and a receiver that outlives them: two that work, and this one,
which submits and looks.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.child import ROOT
from benchmarks.store import BenchStore
from benchmarks.worker import PROCESS, Call, Orders, open_engine
from gesta.demo.worker_process import WorkerProcess
from gesta.engine.engine import Engine
from gesta.outbound.http import HttpRequest
from gesta.runtime.clock import Runtime, SystemRuntime
from gesta.sandbox import Sandbox
from gesta.sandbox.http import FakeHttpApi
from gesta.sandbox.receiver import Call as Received
from gesta.sandbox.receiver import Reply
from gesta.sandbox.server import SandboxServer

WORKERS = 2
TENANT = "default"
FLOW = "bench.call"


class CallLog(FakeHttpApi):
    """Notes when each call came first, and which process called last."""

    def __init__(self) -> None:
        super().__init__()
        self.first_at: dict[int, float] = {}
        self.caller: dict[int, int] = {}

    def read(self, request: HttpRequest, now_ms: int) -> Received | Reply:
        call = super().read(request, now_ms)
        if isinstance(call, Received):
            number = call.data["number"]
            self.first_at.setdefault(number, time.perf_counter())
            self.caller[number] = int(call.headers[PROCESS])
        return call


@dataclass
class Crew:
    engine: Engine
    backend: CallLog
    workers: list[WorkerProcess]
    runtime: Runtime
    #: The requests that were accepted, by their number, and when they were asked for.
    ids: dict[int, str] = field(default_factory=dict)
    asked_at: dict[int, float] = field(default_factory=dict)

    async def submit(self, number: int) -> None:
        self.asked_at[number] = time.perf_counter()
        self.ids[number] = (await self.engine.submit(Call(number))).id

    async def open_ones(self, numbers: Iterable[int]) -> set[int]:
        """Those whose end is not on record yet."""
        wanted = {
            number: (FLOW, TENANT, self.ids[number]) for number in numbers if number in self.ids
        }
        found, _ = await self.engine.pipeline.loader.load([*wanted.values()])
        return {number for number, key in wanted.items() if not found[key].state.is_terminal}


@asynccontextmanager
async def crew(store: BenchStore) -> AsyncIterator[Crew]:
    """All of them up and running; none of them left behind."""
    runtime, backend = SystemRuntime(), CallLog()
    async with SandboxServer(Sandbox(http=backend), runtime) as server:
        orders = Orders(
            store.settings.url, store.settings.master_key, f"{server.url}/{backend.name}"
        )
        log = store.folder / "worker.log"
        workers = [
            WorkerProcess("benchmarks.worker", orders, log=log, runtime=runtime, root=ROOT)
            for _ in range(WORKERS)
        ]
        async with open_engine(orders, work=False) as engine:
            try:
                for worker in workers:
                    await worker.start()
                yield Crew(engine, backend, workers, runtime)
            finally:
                for worker in workers:
                    await worker.stop()
