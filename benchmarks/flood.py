"""`make bench --flood`: how much one tenant's flood delays another tenant's few requests.

The promise (G6): p99 at most doubles.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from benchmarks import machine
from benchmarks.load import percentile
from benchmarks.store import BenchStore
from benchmarks.subjects import TEXT, Note
from gesta.domain.outcome import Done, Outcome
from gesta.engine.engine import Engine
from gesta.flows.attempt import Attempt
from gesta.flows.flow import flow
from gesta.intake.submit_options import Options
from gesta.ports.read_model import View
from gesta.runtime.clock import SystemRuntime, sleep, spawn

STAGES = ("disk", "quiet", "flood")
FACTOR_MAX = 2.0
#: What a provider takes to answer.
CALL_SECONDS = 0.05
PER_SECOND = 20
#: Requests in one `submit_many` of the flood.
CHUNK = 1_000

_clock = SystemRuntime()


@flow("bench.provider", on_unknown="resend")
async def provider(note: Note, attempt: Attempt) -> Outcome:  # noqa: ARG001 -- takes both
    """As slow as a provider, with the concurrency that every flow has unless it says otherwise."""
    await sleep(_clock, CALL_SECONDS)
    return Done(attempt.request_id)


@dataclass(frozen=True)
class FloodPlan:
    requests: int = 100_000
    quiet_seconds: float = 10.0
    flood_seconds: float = 30.0
    stall_seconds: float = 30.0


class FloodFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that `make bench --flood --json` prints.

    Latencies are from submit to known outcome, at 20 requests a second.
    """

    quiet_p50_ms: float
    quiet_p99_ms: float
    flooded_p50_ms: float
    flooded_p99_ms: float
    #: How many times the quiet p99 the flooded one is, and whether that keeps the promise.
    factor: float
    is_within: bool
    #: Requests of the flood that were accepted and that were done while the other tenant was
    #: measured.
    flood_requests: int
    flood_done: int
    samples: int
    #: Of the store's disk; unknown for a server elsewhere.
    fsync_ms: float | None
    file_system: str | None
    python: str
    cores: int


async def measure_flood(
    plan: FloodPlan, store: BenchStore, tell: Callable[[str, int, int], None]
) -> FloodFigures:
    """On a fresh store; what is left of the flood is left there."""
    tell("disk", 0, 1)
    fsync_ms = machine.fsync_ms(store.folder)
    quiet, flooded, accepted, done = await _measure(plan, store, tell)
    factor = percentile(flooded, 99) / percentile(quiet, 99)
    return FloodFigures(
        quiet_p50_ms=round(percentile(quiet, 50), 2),
        quiet_p99_ms=round(percentile(quiet, 99), 2),
        flooded_p50_ms=round(percentile(flooded, 50), 2),
        flooded_p99_ms=round(percentile(flooded, 99), 2),
        factor=round(factor, 2),
        is_within=factor <= FACTOR_MAX,
        flood_requests=accepted,
        flood_done=done,
        samples=len(flooded),
        fsync_ms=round(fsync_ms, 3) if store.is_here else None,
        file_system=machine.file_system(store.folder) if store.is_here else None,
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
    )


async def _measure(
    plan: FloodPlan, store: BenchStore, tell: Callable[[str, int, int], None]
) -> tuple[list[float], list[float], int, int]:
    async with Engine(settings=store.settings, flows=[provider]) as engine:
        few = Few(engine, plan.stall_seconds)
        await few.latencies(PER_SECOND)
        samples = max(1, round(plan.quiet_seconds * PER_SECOND))
        tell("quiet", 0, 1)
        quiet = await few.latencies(samples)
        tell("flood", 0, 1)
        flood = Flood(engine)
        flooding = spawn(flood.submit(plan.requests), "bench-flood")
        flooded = await few.latencies(max(1, round(plan.flood_seconds * PER_SECOND)))
        done = flood.done
        tell("flood", 1, 1)
        await flooding
        # What is left of the flood is not waited for.
        return quiet, flooded, flood.accepted, done


class Few:
    """The tenant with a few requests a second."""

    def __init__(self, engine: Engine, stall_seconds: float) -> None:
        self._engine, self._stall_seconds = engine, stall_seconds

    async def latencies(self, samples: int) -> list[float]:
        """Milliseconds, sorted; the requests start on the beat however long the others take."""
        tasks, start = [], time.perf_counter()
        for number in range(samples):
            await sleep(_clock, max(0.0, start + number / PER_SECOND - time.perf_counter()))
            tasks.append(spawn(self._time_one(number), "bench-few"))
        return sorted([await task for task in tasks])

    async def _time_one(self, number: int) -> float:
        start = time.perf_counter()
        request = await self._engine.submit(Note(number, TEXT), tenant="few")
        await request.outcome(timeout=self._stall_seconds)
        return (time.perf_counter() - start) * 1000


class Flood:
    """The tenant that has very much to do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.accepted = self.done = 0
        engine.pipeline.projector.listen(self._count)

    def _count(self, views: Sequence[View]) -> None:
        self.done += sum(view.state.tenant == "flood" and view.state.is_terminal for view in views)

    async def submit(self, requests: int) -> None:
        options = Options(tenant="flood")
        while self.accepted < requests:
            count = min(CHUNK, requests - self.accepted)
            await self._engine.submit_many(
                [(Note(self.accepted + n, TEXT), options) for n in range(count)]
            )
            self.accepted += count
