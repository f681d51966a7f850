"""`make bench --processes`: several processes on one store, how soon one executes what another
sent, and what idling costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from benchmarks.crew import Crew, crew
from benchmarks.load import LIGHT_PER_SECOND, percentile
from benchmarks.store import BenchStore
from gesta.demo.worker_process import until
from gesta.runtime.clock import sleep, spawn

STAGES = ("start", "idle", "requests")

#: (stage, done, of how many)
Tell = Callable[[str, int, int], None]


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that `make bench --processes --json` prints."""

    requests: int
    #: From submit in one process until the provider hears from another, at 50 requests a second.
    other_process_start_p50_ms: float
    other_process_start_p99_ms: float
    #: Of a core, for each process that works on the store and has nothing to do.
    idle_cpu_percent: list[float]


async def measure_processes(
    samples: int, idle_seconds: float, store: BenchStore, tell: Tell
) -> ProcessFigures:
    """On a fresh store."""
    tell("start", 0, 1)
    async with crew(store) as members:
        # One request there and back: every component runs.
        await members.submit(-1)
        await until(
            members.runtime, lambda: -1 in members.backend.first_at, "the first request to start"
        )
        tell("idle", 0, 1)
        idle = await _idle(members, idle_seconds)
        tasks, start = [], time.perf_counter()
        for number in range(samples):
            await sleep(
                members.runtime, max(0.0, start + number / LIGHT_PER_SECOND - time.perf_counter())
            )
            tasks.append(spawn(members.submit(number), "bench-submit"))
            if number % LIGHT_PER_SECOND == 0:
                tell("requests", number, samples)
        for task in tasks:
            await task
        await until(
            members.runtime,
            lambda: len(members.backend.first_at) > samples,
            "every request to start",
        )
        waits = sorted(
            members.backend.first_at[number] - members.asked_at[number] for number in range(samples)
        )
    return ProcessFigures(
        requests=samples,
        other_process_start_p50_ms=round(percentile(waits, 50) * 1000, 1),
        other_process_start_p99_ms=round(percentile(waits, 99) * 1000, 1),
        idle_cpu_percent=idle,
    )


async def _idle(members: Crew, seconds: float) -> list[float]:
    start = time.perf_counter()
    before = [float(await worker.ask()) for worker in members.workers]
    await sleep(members.runtime, seconds)
    used = [
        float(await worker.ask()) - cpu for worker, cpu in zip(members.workers, before, strict=True)
    ]
    return [round(cpu / (time.perf_counter() - start) * 100, 2) for cpu in used]
