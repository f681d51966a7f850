"""`gesta bench`, behind the command line: run, show progress on stderr, print figures on stdout."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from gesta import runtime
from gesta.bench import crash, flood, processes
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
    with _fresh(folder) as inside, subject_of(flow) as subject, Screen(STAGES) as screen:
        figures = measure(plan, subject, inside, screen.tell)
    _print(f"gesta bench: {figures.flow}", figures, _rows(figures), json=json)
    for fault in figures.faults:
        sys.stderr.write(f"wrong count: {fault}\n")
    return COUNT_IS_WRONG if figures.faults else 0


def run_crash_bench(*, kills: int = 8, json: bool = False, folder: str | None = None) -> int:
    """Kill workers and print how soon others went on; the exit code: 0, or 1 when a request was lost or done twice."""
    with _fresh(folder) as inside, Screen(crash.STAGES) as screen:
        figures = runtime.run(crash.measure_crashes(kills, inside, screen.tell))
    _print("gesta bench: crash", figures, _crash_rows(figures), json=json)
    for fault in figures.faults:
        sys.stderr.write(f"wrong count: {fault}\n")
    return COUNT_IS_WRONG if figures.faults else 0


def run_processes_bench(
    *, json: bool = False, folder: str | None = None, light_samples: int = 250, idle_seconds: float = 5.0
) -> int:
    """Measure several processes on one file and print; the exit code: 0."""
    with _fresh(folder) as inside, Screen(processes.STAGES) as screen:
        figures = runtime.run(processes.measure_processes(light_samples, idle_seconds, inside, screen.tell))
    _print("gesta bench: processes", figures, _process_rows(figures), json=json)
    return 0


def run_flood_bench(
    *,
    requests: int = 100_000,
    json: bool = False,
    folder: str | None = None,
    quiet_seconds: float = 10.0,
    flood_seconds: float = 30.0,
) -> int:
    """Measure what a flood of one tenant does to another and print; the exit code: 0."""
    plan = FloodPlan(requests, quiet_seconds, flood_seconds)
    with _fresh(folder) as inside, Screen(flood.STAGES) as screen:
        figures = measure_flood(plan, inside, screen.tell)
    _print("gesta bench: a flood beside a few requests", figures, _flood_rows(figures), json=json)
    return 0


@contextmanager
def _fresh(folder: str | None) -> Iterator[Path]:
    """A folder for the run; it is removed with everything in it."""
    with tempfile.TemporaryDirectory(prefix="gesta-bench-", dir=bench_folder(folder)) as inside:
        yield Path(inside)


def _print(title: str, figures: msgspec.Struct, rows: dict[str, str], *, json: bool) -> None:
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        Console().print(_table(title, rows))


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
        columns = (TextColumn("{task.description:<17}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
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


def _table(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _crash_rows(figures: crash.CrashFigures) -> dict[str, str]:
    one, every = (
        f"{figures.kills} kills, {figures.interrupted:,}",
        f"{figures.restarts} restarts, {figures.restart_interrupted:,}",
    )
    return {
        "one of two killed": f"{one} requests interrupted, {_seconds(figures.recovery_p50_seconds, figures.recovery_p99_seconds)}",
        "all killed": f"{every} requests interrupted, {_seconds(figures.restart_p50_seconds, figures.restart_p99_seconds)}",
        "count": f"{figures.requests:,} requests, {figures.lost:,} lost, {figures.doubled:,} doubled",
        "repeated": f"{figures.repeated:,} calls under the same key, which made them harmless",
        "seconds": f"{figures.seconds:,.1f}",
    }


def _seconds(p50: float, p99: float) -> str:
    return f"on record again after p50 {p50:.2f} s, p99 {p99:.2f} s"


def _flood_rows(figures: FloodFigures) -> dict[str, str]:
    verdict = "within" if figures.is_within else "NOT within"
    return {
        "quiet": f"p50 {figures.quiet_p50_ms:.1f} ms, p99 {figures.quiet_p99_ms:.1f} ms at {flood.PER_SECOND} per second",
        "flooded": f"p50 {figures.flooded_p50_ms:.1f} ms, p99 {figures.flooded_p99_ms:.1f} ms, {figures.samples:,} samples",
        "factor": f"{figures.factor:.2f} at p99, {verdict} {FACTOR_MAX:g}",
        "flood": f"{figures.flood_requests:,} requests of another tenant, {figures.flood_done:,} of them done meanwhile",
        "fsync": f"{figures.fsync_ms:.2f} ms on {figures.file_system}",
        "machine": f"{figures.cores} cores, Python {figures.python}",
    }


def _process_rows(figures: processes.ProcessFigures) -> dict[str, str]:
    p50, p99 = figures.other_process_start_p50_ms, figures.other_process_start_p99_ms
    idle = " and ".join(f"{percent:.2f}" for percent in figures.idle_cpu_percent)
    return {
        "sent from another process": f"{figures.requests:,} requests, started after p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        "idle": f"{idle} % of a core, two processes on one file",
    }


def _rows(figures: Figures) -> dict[str, str]:
    how = "submit_many" if figures.batch else "submit"
    keyed = " with a key each" if figures.keyed else ""
    raw = " and ".join(f"{run:,.0f}" for run in figures.raw_runs)
    return {
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
