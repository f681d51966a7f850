"""The measurement: raw, gesta, raw, gesta …, raw, on one store in one run.

Machines differ and are never quiet, so only figures of the same run are compared.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks import check, machine
from benchmarks.figures import Figures, Measured, Plan
from benchmarks.history import Progress, write_history
from benchmarks.load import Load, percentile
from benchmarks.peer import Peer, PeerRun, peer_figures
from benchmarks.store import BenchStore, RawRun
from benchmarks.subjects import PLAIN, Subject
from gesta.engine.engine import Engine
from gesta.engine.request import Request
from gesta.runtime import clock as runtime
from gesta.runtime.settings import Settings

#: Requests per batch of the bare loop, as raw_sqlite.py has it.
RAW_BATCH = 1_000
#: So many syncs in a row, each so short, are a quiet disk.
CALM_TIMES, CALM_MS, CALM_PAUSE_SECONDS, CALM_SECONDS_MAX = 50, 10.0, 0.02, 30.0
STAGES = ("disk", "history", "idle", "light load", "load", "raw again", "count")

#: (stage, done, of how many). Never called while the clock of the load runs.
Tell = Callable[[str, int, int], None]


async def measure(
    plan: Plan, subject: Subject, store: BenchStore, peer: Peer | None, tell: Tell
) -> Figures:
    """Everything, on a fresh store and fresh files in its folder."""
    plan = replace(plan, requests=min(plan.requests, subject.requests_max or plan.requests))
    tell("disk", 0, 1)
    fsync_ms = machine.fsync_ms(store.folder)
    beside = Beside(plan, subject, store=store, peer=peer)
    measured = await _measure_gesta(plan, subject, store, beside, tell)
    raw, plain, runs = beside.raw_rates(), beside.plain, measured.runs
    return Figures(
        **msgspec.structs.asdict(measured),
        raw_requests_per_second=statistics.median(raw),
        ratio=round(held_against(runs, raw), 3),
        raw_runs=raw,
        plain_runs=plain,
        of_plain=round(held_against(runs, plain), 3) if plain else None,
        peer=(
            peer_figures(beside.peers, held_against(runs, beside.peer_rates()))
            if peer is not None
            else None
        ),
        fsync_ms=round(fsync_ms, 3) if store.is_here else None,
        flow=subject.flow.name,
        history=plan.history,
        batch=plan.batch,
        keyed=plan.keyed,
        light_samples=plan.light_samples,
        file_system=machine.file_system(store.folder) if store.is_here else None,
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
        store=store.name(beside.raw[0]),
        raw_store=beside.raw[0].store,
        gc_threshold=gc.get_threshold()[0],
        switch_interval_ms=round(sys.getswitchinterval() * 1000, 3),
    )


def held_against(runs: Sequence[float], others: Sequence[float]) -> float:
    """The median of what each run reaches of the mean of its two neighbours among the others, of
    which there is one more.

    A machine that is slow for some seconds slows both, and a single bad round counts for little.
    """
    return statistics.median(
        run / statistics.mean(pair) for run, pair in zip(runs, pairwise(others), strict=True)
    )


class Beside:
    """What gesta is measured against: before and after each of its rounds, never at the same
    time.
    """

    def __init__(
        self, plan: Plan, subject: Subject, *, store: BenchStore, peer: Peer | None
    ) -> None:
        self._plan, self._store, self._peer = plan, store, peer
        # What costs more than a plain request without a key is held against one.
        self._is_compared = subject.is_compared or (plan.keyed and not plan.history)
        self._has_keys = plan.keyed and subject.is_compared
        self.raw: list[RawRun] = []
        self.plain: list[float] = []
        self.peers: list[PeerRun] = []

    async def run(self) -> None:
        plan, batch = self._plan, min(RAW_BATCH, self._plan.requests)
        self.raw.append(await self._store.raw(plan.requests // batch * batch, batch, plan.history))
        if self._peer is not None:
            self.peers.append(await self._peer.run(plan.requests))
        if self._is_compared:
            settings = (
                self._store.settings
                if plan.history
                else await self._store.another(f"plain-{len(self.plain)}")
            )
            async with _opened(settings, PLAIN) as engine:
                load = Load(
                    engine, PLAIN.payload, keyed=self._has_keys, stall_seconds=plan.stall_seconds
                )
                self.plain.append(
                    round(plan.requests / await load.full(plan.requests, batch=plan.batch))
                )

    def raw_rates(self) -> list[float]:
        return [run.requests_per_second for run in self.raw]

    def peer_rates(self) -> list[float]:
        return [run.requests_per_second for run in self.peers]


async def _measure_gesta(
    plan: Plan, subject: Subject, store: BenchStore, beside: Beside, tell: Tell
) -> Measured:
    run = Run(plan, subject, store)
    if plan.history:
        await run.write_history(lambda done, total: tell("history", done, total))
    if store.is_here:
        await _calm(store.folder)
    async with run.part("light", plan.light_samples) as load:
        tell("idle", 0, 1)
        machine.forget_peak()
        idle_cpu_percent = await _idle(plan.idle_seconds)
        rss_idle_mb = machine.rss_mb()
        # Before anything else: behind a full load, the bare loop's too, a disk stands still for a
        # while now and then, and a sync with it.
        light_ms = await load.light(
            plan.light_samples, lambda done, total: tell("light load", done, total)
        )
    rates: list[float] = []
    for number in range(plan.round_count):
        tell("load", number, plan.round_count)
        await beside.run()
        if plan.history and store.is_here:
            # The bare loop has just written and deleted a history of its own.
            await _calm(store.folder)
        async with run.part(f"round-{number}", plan.requests) as load:
            rates.append(plan.requests / await load.full(plan.requests, batch=plan.batch))
    rss_mb = machine.peak_rss_mb()
    tell("raw again", 0, 1)
    await beside.run()
    tell("count", 0, 1)
    errors = await check.errors_of(run.parts, subject)
    tell("count", 1, 1)
    return Measured(
        requests=plan.requests,
        seconds=round(plan.requests / statistics.median(rates), 3),
        requests_per_second=round(statistics.median(rates)),
        runs=[round(rate) for rate in rates],
        p50_ms=round(percentile(light_ms, 50), 2),
        p99_ms=round(percentile(light_ms, 99), 2),
        rss_mb=round(rss_mb, 1),
        rss_idle_mb=round(rss_idle_mb, 1),
        idle_cpu_percent=round(idle_cpu_percent, 2),
        errors=errors,
    )


class Run:
    """The engine's own runs: each on a store of its own, as the bare loop's and the peer's are,
    unless there is a history or the store is another's (`BenchStore.another`).
    """

    def __init__(self, plan: Plan, subject: Subject, store: BenchStore) -> None:
        self._plan, self._subject, self._store = plan, subject, store
        #: What has to be counted at the end.
        self.parts: list[check.Part] = []

    async def _settings(self, name: str) -> Settings:
        settings = self._store.settings if self._plan.history else await self._store.another(name)
        return replace(
            settings, allow_private=(*settings.allow_private, *self._subject.allow_private)
        )

    async def write_history(self, progress: Progress) -> None:
        settings = await self._settings("history")
        async with Engine(settings=settings, flows=[self._subject.flow]) as engine:
            sample = await _first(engine, self._subject)
        await write_history(settings.url, sample, self._plan.history, progress)

    @asynccontextmanager
    async def part(self, name: str, expected: int) -> AsyncIterator[Load]:
        plan, subject, settings = self._plan, self._subject, await self._settings(name)
        async with _opened(settings, subject) as engine:
            mark = await check.mark(engine, subject)
            load = Load(engine, subject.payload, keyed=plan.keyed, stall_seconds=plan.stall_seconds)
            yield load
        # The next one that is measured shares its cores with nothing that is left of this one.
        await self._store.rest()
        self.parts.append(check.Part(settings, mark, load.ids, expected, subject.effects()))


@asynccontextmanager
async def _opened(settings: Settings, subject: Subject) -> AsyncIterator[Engine]:
    """An engine that has done its first request."""
    async with Engine(settings=settings, flows=[subject.flow]) as engine:
        await _first(engine, subject)
        yield engine


async def _first(engine: Engine, subject: Subject) -> Request:
    """One request, done: every component runs, also where a former process still held its roles
    for some seconds.
    """
    if subject.set_up is not None:
        await subject.set_up(engine)
    request = await engine.submit(subject.payload(0))
    await request.outcome()
    return request


async def _calm(folder: Path) -> None:
    """Until syncs have been short for a second, but not for ever: what was written before, by
    whomever, can stand in their way for a while.
    """
    until, short = time.perf_counter() + CALM_SECONDS_MAX, 0
    while short < CALM_TIMES and time.perf_counter() < until:
        short = short + 1 if machine.fsync_ms(folder, 1) < CALM_MS else 0
        await runtime.sleep(runtime.SystemRuntime(), CALM_PAUSE_SECONDS)


async def _idle(seconds: float) -> float:
    """How much of a core this process takes while its engine has nothing to do, in percent."""
    start, busy = time.perf_counter(), time.process_time()
    await runtime.sleep(runtime.SystemRuntime(), seconds)
    return (time.process_time() - busy) / (time.perf_counter() - start) * 100
