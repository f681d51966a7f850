"""The measurement: raw, gesta, raw again, on one store in one run, because machines differ and are never quiet."""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from gesta import runtime
from gesta.bench import check, machine
from gesta.bench.figures import Figures, Measured, Plan
from gesta.bench.history import write_history
from gesta.bench.load import Load, percentile
from gesta.bench.peer import Peer, PeerRun, peer_figures
from gesta.bench.store import BenchStore, RawRun
from gesta.bench.subjects import PLAIN, Subject
from gesta.engine import Engine
from gesta.request import Request

#: Requests per batch of the bare loop, as raw_sqlite.py has it.
RAW_BATCH = 1_000
STAGES = ("disk", "raw", "history", "idle", "load", "light load", "count", "raw again")

#: (stage, done, of how many). Never called while the clock of the load runs.
Tell = Callable[[str, int, int], None]


async def measure(plan: Plan, subject: Subject, store: BenchStore, peer: Peer | None, tell: Tell) -> Figures:
    """Everything, on a fresh store and fresh files in its folder."""
    plan = replace(plan, requests=min(plan.requests, subject.requests_max or plan.requests))
    tell("disk", 0, 1)
    fsync_ms = machine.fsync_ms(store.folder)
    raw_runs: list[RawRun] = []
    peer_runs: list[PeerRun] = []
    plain_runs: list[float] = []
    tell("raw", 0, 1)
    await _beside(plan, store, peer, raw_runs, peer_runs)
    # What costs more than a plain request without a key is held against one.
    is_compared = subject.is_compared or (plan.keyed and not plan.history)
    if is_compared:
        plain_runs.append(await _plain_rate(plan, store, keyed=plan.keyed and subject.is_compared))
    measured = await _measure_gesta(plan, subject, store, tell)
    tell("raw again", 0, 1)
    if is_compared:
        plain_runs.append(await _plain_rate(plan, store, keyed=plan.keyed and subject.is_compared))
    await _beside(plan, store, peer, raw_runs, peer_runs)
    tell("raw again", 1, 1)
    raw = statistics.mean(run.requests_per_second for run in raw_runs)
    return Figures(
        **msgspec.structs.asdict(measured),
        raw_requests_per_second=raw,
        ratio=round(measured.requests_per_second / raw, 3),
        raw_runs=[run.requests_per_second for run in raw_runs],
        plain_runs=plain_runs,
        of_plain=round(measured.requests_per_second / statistics.mean(plain_runs), 3) if plain_runs else None,
        peer=peer_figures(peer_runs, measured.requests_per_second) if peer is not None else None,
        fsync_ms=round(fsync_ms, 3) if store.is_here else None,
        flow=subject.flow.name,
        history=plan.history,
        batch=plan.batch,
        keyed=plan.keyed,
        light_samples=plan.light_samples,
        file_system=machine.file_system(store.folder) if store.is_here else None,
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
        store=store.name(raw_runs[0]),
        raw_store=raw_runs[0].store,
        gc_threshold=gc.get_threshold()[0],
        switch_interval_ms=round(sys.getswitchinterval() * 1000, 3),
    )


async def _beside(plan: Plan, store: BenchStore, peer: Peer | None, raw_runs: list[RawRun], peer_runs: list[PeerRun]) -> None:
    """What gesta is measured against: before it and after it, never at the same time."""
    batch = min(RAW_BATCH, plan.requests)
    raw_runs.append(await store.raw(plan.requests // batch * batch, batch, plan.history))
    if peer is not None:
        peer_runs.append(await peer.run(plan.requests))


async def _plain_rate(plan: Plan, store: BenchStore, *, keyed: bool) -> float:
    """Requests of the plain flow per second, under the same load on the same store."""
    async with Engine(settings=store.settings, flows=[PLAIN.flow]) as engine:
        await _first(engine, PLAIN)
        load = Load(engine, PLAIN.payload, keyed=keyed, stall_seconds=plan.stall_seconds)
        return round(plan.requests / await load.full(plan.requests, batch=plan.batch))


async def _measure_gesta(plan: Plan, subject: Subject, store: BenchStore, tell: Tell) -> Measured:
    settings = replace(store.settings, allow_private=(*store.settings.allow_private, *subject.allow_private))
    if plan.history:
        async with Engine(settings=settings, flows=[subject.flow]) as engine:
            sample = await _first(engine, subject)
        await write_history(settings.url, sample, plan.history, lambda done, total: tell("history", done, total))
    async with Engine(settings=settings, flows=[subject.flow]) as engine:
        await _first(engine, subject)
        mark = await check.mark(engine, subject)
        tell("idle", 0, 1)
        machine.forget_peak()
        idle_cpu_percent = await _idle(engine, plan.idle_seconds)
        rss_idle_mb = machine.rss_mb()
        tell("load", 0, 1)
        load = Load(engine, subject.payload, keyed=plan.keyed, stall_seconds=plan.stall_seconds)
        seconds = await load.full(plan.requests, batch=plan.batch)
        light_ms = await load.light(plan.light_samples, lambda done, total: tell("light load", done, total))
        rss_mb = machine.peak_rss_mb()
    tell("count", 0, 1)
    async with Engine(settings=settings, flows=[subject.flow], work=False) as engine:
        faults = await check.faults(engine, subject, mark, load.ids, plan.requests + plan.light_samples)
    return Measured(
        requests=plan.requests,
        seconds=round(seconds, 3),
        requests_per_second=round(plan.requests / seconds),
        p50_ms=round(percentile(light_ms, 50), 2),
        p99_ms=round(percentile(light_ms, 99), 2),
        rss_mb=round(rss_mb, 1),
        rss_idle_mb=round(rss_idle_mb, 1),
        idle_cpu_percent=round(idle_cpu_percent, 2),
        faults=faults,
    )


async def _first(engine: Engine, subject: Subject) -> Request:
    """One request, done: every station is at work, also where a former process still held its roles for some seconds."""
    if subject.set_up is not None:
        await subject.set_up(engine)
    request = await engine.submit(subject.payload(0))
    await request.outcome()
    return request


async def _idle(engine: Engine, seconds: float) -> float:
    """How much of a core an engine takes that has nothing to do, in percent."""
    start, busy = time.perf_counter(), time.process_time()
    await runtime.sleep(engine.road.runtime, seconds)
    return (time.process_time() - busy) / (time.perf_counter() - start) * 100
