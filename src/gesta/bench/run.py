"""The measurement: raw, gesta, raw again, on one file system in one run, because machines differ and are never quiet."""

from __future__ import annotations

import base64
import gc
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import apsw
import msgspec

from gesta import runtime
from gesta import settings as process_settings
from gesta.adapters.sqlite import file_of
from gesta.bench import check, machine
from gesta.bench.figures import Figures, Measured, Plan
from gesta.bench.history import write_history
from gesta.bench.load import Load, percentile
from gesta.bench.subjects import Subject
from gesta.engine import Engine
from gesta.request import Request
from gesta.settings import Settings

#: Requests per batch of the bare loop, as raw_sqlite.py has it.
RAW_BATCH = 1_000
STAGES = ("disk", "raw", "history", "idle", "load", "light load", "count", "raw again")

#: (stage, done, of how many). Never called while the clock of the load runs.
Tell = Callable[[str, int, int], None]


def measure(plan: Plan, subject: Subject, folder: Path, tell: Tell) -> Figures:
    """Everything, on fresh files inside `folder`."""
    plan = replace(plan, requests=min(plan.requests, subject.requests_max or plan.requests))
    tell("disk", 0, 1)
    fsync_ms = machine.fsync_ms(folder)
    tell("raw", 0, 1)
    raw_runs = [_raw(plan, folder)]
    measured = runtime.run(_measure_gesta(plan, subject, folder, tell))
    tell("raw again", 0, 1)
    raw_runs.append(_raw(plan, folder))
    tell("raw again", 1, 1)
    raw = statistics.mean(raw_runs)
    return Figures(
        **msgspec.structs.asdict(measured),
        raw_requests_per_second=raw,
        ratio=round(measured.requests_per_second / raw, 3),
        raw_runs=raw_runs,
        fsync_ms=round(fsync_ms, 3),
        flow=subject.flow.name,
        history=plan.history,
        batch=plan.batch,
        keyed=plan.keyed,
        light_samples=plan.light_samples,
        file_system=machine.file_system(folder),
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
        sqlite=apsw.sqlite_lib_version(),
        raw_sqlite=sqlite3.sqlite_version,
        gc_threshold=gc.get_threshold()[0],
        switch_interval_ms=round(sys.getswitchinterval() * 1000, 3),
    )


def _raw(plan: Plan, folder: Path) -> float:
    """The bare loop in a process of its own, so that it shares neither interpreter nor memory with the engine."""
    batch = min(RAW_BATCH, plan.requests)
    whole_batches = plan.requests // batch * batch
    command = [sys.executable, "-m", "gesta.bench.raw_sqlite", *map(str, (whole_batches, batch, plan.history, folder))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603 -- our own module


async def _measure_gesta(plan: Plan, subject: Subject, folder: Path, tell: Tell) -> Measured:
    settings = _settings(plan, subject, folder)
    if plan.history:
        async with Engine(settings=settings, flows=[subject.flow]) as engine:
            sample = await _first(engine, subject)
        write_history(str(file_of(settings.url)), sample, plan.history, lambda done, total: tell("history", done, total))
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


def _settings(plan: Plan, subject: Subject, folder: Path) -> Settings:
    if plan.url is not None:
        chosen = process_settings.load({"url": plan.url})
        return replace(chosen, allow_private=(*chosen.allow_private, *subject.allow_private))
    # The key lives as long as the file: no need to tell anybody where it is kept.
    key = base64.b64encode(runtime.SystemRuntime().random_bytes(32)).decode()
    return Settings(url=f"sqlite:///{folder / 'bench.db'}", master_key=key, allow_private=subject.allow_private)


async def _first(engine: Engine, subject: Subject) -> Request:
    """One request, done: every station is at work, also where a former process still held its roles for some seconds."""
    request = await engine.submit(subject.payload(0))
    await request.outcome()
    return request


async def _idle(engine: Engine, seconds: float) -> float:
    """How much of a core an engine takes that has nothing to do, in percent."""
    start, busy = time.perf_counter(), time.process_time()
    await runtime.sleep(engine.road.runtime, seconds)
    return (time.process_time() - busy) / (time.perf_counter() - start) * 100
