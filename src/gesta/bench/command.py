"""`gesta bench`, behind the command line: run, show progress on stderr, print figures on stdout."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from gesta.bench import flood
from gesta.bench.figures import Figures, Plan
from gesta.bench.flood import FACTOR_MAX, FloodFigures, FloodPlan, measure_flood
from gesta.bench.machine import bench_folder
from gesta.bench.run import STAGES, measure
from gesta.bench.subjects import subject_of
from gesta.errors import BadSettings

COUNT_IS_WRONG = 1


def run_bench(
    *,
    requests: int = 20_000,
    history: int = 0,
    batch: bool = False,
    keyed: bool = False,
    flow: str = "plain",
    url: str | None = None,
    json: bool = False,
    folder: str | None = None,
    light_samples: int = 250,
    idle_seconds: float = 3.0,
    stall_seconds: float = 30.0,
) -> int:
    """Measure and print; the exit code: 0, or 1 when a request was lost or done twice.

    Works on fresh files below `folder` (default: the current one) and removes them.
    """
    plan = Plan(requests, history, batch, keyed, url, light_samples, idle_seconds, stall_seconds)
    _check(plan)
    below = bench_folder(folder)
    with (
        subject_of(flow) as subject,
        tempfile.TemporaryDirectory(prefix="gesta-bench-", dir=below) as inside,
        Screen(STAGES) as screen,
    ):
        figures = measure(plan, subject, Path(inside), screen.tell)
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        Console().print(_table(figures))
    for fault in figures.faults:
        sys.stderr.write(f"wrong count: {fault}\n")
    return COUNT_IS_WRONG if figures.faults else 0


def run_flood(
    *,
    requests: int = 100_000,
    json: bool = False,
    folder: str | None = None,
    quiet_seconds: float = 10.0,
    flood_seconds: float = 30.0,
) -> int:
    """Measure what a flood of one tenant does to another and print it. Works on a fresh file below `folder` and removes it."""
    plan = FloodPlan(requests, quiet_seconds, flood_seconds)
    below = bench_folder(folder)
    with tempfile.TemporaryDirectory(prefix="gesta-bench-", dir=below) as inside, Screen(flood.STAGES) as screen:
        figures = measure_flood(plan, Path(inside), screen.tell)
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        Console().print(_flood_table(figures))
    return 0


def _check(plan: Plan) -> None:
    if plan.requests < 1 or plan.light_samples < 1 or plan.history < 0:
        raise BadSettings("requests and light_samples must be positive, history must not be negative")
    if plan.url is None:
        return
    if plan.url.startswith("memory:"):
        raise BadSettings("url: a store in memory keeps nothing that could be counted after the run; name a durable one")
    if plan.history:
        raise BadSettings("history: written into a fresh file only; leave out --url or --history")


class Screen:
    """Progress on stderr. It is drawn between the stages only: a thread that draws would take its share of what is measured."""

    def __init__(self, stages: Sequence[str]) -> None:
        self._stages = stages
        columns = (TextColumn("{task.description:<12}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def tell(self, stage: str, done: int, total: int) -> None:
        """A stage has begun or got on; the ones before it are over."""
        if stage not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, completed=1, total=1)
            self._tasks[stage] = self._progress.add_task(f"{stage} ({self._stages.index(stage) + 1}/{len(self._stages)})")
        self._progress.update(self._tasks[stage], completed=done, total=total, refresh=True)


def _table(figures: Figures) -> Table:
    table = Table(title=f"gesta bench: {figures.flow}", show_header=False, title_justify="left")
    how = "submit_many" if figures.batch else "submit"
    keyed = " with a key each" if figures.keyed else ""
    raw = " and ".join(f"{run:,.0f}" for run in figures.raw_runs)
    rows = {
        "requests": f"{figures.requests:,} by {how}{keyed}, {figures.history:,} in the store before",
        "seconds": f"{figures.seconds:,.2f}",
        "requests per second": f"{figures.requests_per_second:,.0f}",
        "raw": f"{figures.raw_requests_per_second:,.0f} per second, the mean of {raw}",
        "ratio": f"{figures.ratio:.2f}",
        "latency at 50 per second": f"p50 {figures.p50_ms:.1f} ms, p99 {figures.p99_ms:.1f} ms",
        "memory": f"{figures.rss_mb:.0f} MB at most, {figures.rss_idle_mb:.0f} MB idle",
        "idle": f"{figures.idle_cpu_percent:.2f} % of a core",
        "fsync": f"{figures.fsync_ms:.2f} ms on {figures.file_system}",
        "machine": f"{figures.cores} cores, Python {figures.python}, SQLite {figures.sqlite} (raw: {figures.raw_sqlite})",
        "interpreter": f"gc threshold {figures.gc_threshold:,}, switch interval {figures.switch_interval_ms:g} ms",
        "count": "; ".join(figures.faults) or "every request done once",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _flood_table(figures: FloodFigures) -> Table:
    table = Table(title="gesta bench: a flood beside a few requests", show_header=False, title_justify="left")
    verdict = "within" if figures.is_within else "NOT within"
    rows = {
        "quiet": f"p50 {figures.quiet_p50_ms:.1f} ms, p99 {figures.quiet_p99_ms:.1f} ms at {flood.PER_SECOND} per second",
        "flooded": f"p50 {figures.flooded_p50_ms:.1f} ms, p99 {figures.flooded_p99_ms:.1f} ms, {figures.samples:,} samples",
        "factor": f"{figures.factor:.2f} at p99, {verdict} {FACTOR_MAX:g}",
        "flood": f"{figures.flood_requests:,} requests of another tenant, {figures.flood_done:,} of them done meanwhile",
        "fsync": f"{figures.fsync_ms:.2f} ms on {figures.file_system}",
        "machine": f"{figures.cores} cores, Python {figures.python}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
