"""Each benchmark behind its option: run, show progress on stderr, print figures on stdout."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from benchmarks.figures import Figures, Plan
from benchmarks.machine import bench_folder
from benchmarks.peer import open_peer
from benchmarks.run import STAGES, Tell, measure
from benchmarks.store import bench_store
from benchmarks.subjects import subject_of
from benchmarks.tables import crash_rows, flood_rows, print_figures, process_rows, rows
from gesta.demo.performance import Interruption
from gesta.errors import BadSettings
from gesta.runtime import clock as runtime
from gesta.testing.scratch_store import ChosenStore, is_fresh

T = TypeVar("T")

COUNT_IS_WRONG = 1


def run_bench(
    plan: Plan, *, flow: str = "plain", json: bool = False, folder: str | None = None
) -> int:
    """Measure and print; the exit code: 0, or 1 when a request was lost or executed twice.

    Works on fresh files below `folder` (default: the current one) and removes them.
    """
    _check(plan, flow)

    async def work(inside: Path, tell: Tell) -> Figures:
        with subject_of(flow) as subject:
            opened = await open_peer(plan.peer, inside) if plan.peer is not None else None
            async with bench_store(plan.store, inside) as store:
                return await measure(plan, subject, store, opened, tell)

    figures = _run(work, STAGES, folder)
    print_figures(f"bench: {figures.flow}", figures, rows(figures), json=json)
    return _verdict(figures.errors)


def run_crash_bench(
    *, kills: int = 8, url: str | None = None, json: bool = False, folder: str | None = None
) -> int:
    """Kill workers and print how soon others went on; the exit code: 0, or 1 when a request was
    lost or done twice.
    """
    # Here, as below: what is not asked for must not count among the memory of what is.
    from benchmarks import crash

    async def work(inside: Path, tell: Tell) -> crash.CrashFigures:
        async with bench_store(ChosenStore(url), inside) as store:
            return await crash.measure_crashes(kills, store, tell)

    _check_is_fresh(url)
    figures = _run(work, crash.STAGES, folder)
    print_figures("bench: crash", figures, crash_rows(figures), json=json)
    return _verdict(figures.errors)


def run_processes_bench(
    *,
    url: str | None = None,
    json: bool = False,
    folder: str | None = None,
    light_samples: int = 250,
    idle_seconds: float = 5.0,
) -> int:
    """Measure several processes on one store and print; the exit code: 0."""
    from benchmarks import processes

    async def work(inside: Path, tell: Tell) -> processes.ProcessFigures:
        async with bench_store(ChosenStore(url), inside) as store:
            return await processes.measure_processes(light_samples, idle_seconds, store, tell)

    _check_is_fresh(url)
    figures = _run(work, processes.STAGES, folder)
    print_figures("bench: processes", figures, process_rows(figures), json=json)
    return 0


def run_flood_bench(
    *,
    requests: int = 100_000,
    url: str | None = None,
    json: bool = False,
    folder: str | None = None,
    quiet_seconds: float = 10.0,
    flood_seconds: float = 30.0,
) -> int:
    """Measure what a flood of one tenant does to another and print; the exit code: 0."""
    from benchmarks import flood

    async def work(inside: Path, tell: Tell) -> flood.FloodFigures:
        async with bench_store(ChosenStore(url), inside) as store:
            return await flood.measure_flood(
                flood.FloodPlan(requests, quiet_seconds, flood_seconds), store, tell
            )

    _check_is_fresh(url)
    figures = _run(work, flood.STAGES, folder)
    print_figures("bench: a flood beside a few requests", figures, flood_rows(figures), json=json)
    return 0


def run_http_bench(
    *, requests: int = 20_000, url: str | None = None, json: bool = False, folder: str | None = None
) -> int:
    """Measure the API beside its bounds and print; the exit code: 0, or 1 when a request was lost
    or done twice.
    """
    from benchmarks import over_http

    async def work(inside: Path, tell: Tell) -> over_http.HttpFigures:
        async with bench_store(ChosenStore(url), inside) as store:
            return await over_http.measure_http(requests, store, tell)

    _check_is_fresh(url)
    figures = _run(work, over_http.STAGES, folder)
    print_figures("bench: over HTTP", figures, over_http.http_rows(figures), json=json)
    return _verdict(figures.errors)


def run_ingest_bench(
    *, requests: int = 20_000, url: str | None = None, json: bool = False, folder: str | None = None
) -> int:
    """Measure Slack events beside a bare route and print; the exit code: 0, or 1 when an event was
    lost or stored twice.
    """
    from benchmarks import ingest

    async def work(inside: Path, tell: Tell) -> ingest.IngestFigures:
        async with bench_store(ChosenStore(url), inside) as store:
            return await ingest.measure_ingest(requests, store, tell)

    _check_is_fresh(url)
    figures = _run(work, ingest.STAGES, folder)
    print_figures("bench: events in", figures, ingest.ingest_rows(figures), json=json)
    return _verdict(figures.errors)


def _run(
    work: Callable[[Path, Tell], Coroutine[Any, Any, T]], stages: Sequence[str], folder: str | None
) -> T:
    """In a folder that is removed with everything in it.

    A signal ends it in order, with 128 and its number as exit code.
    """
    with (
        tempfile.TemporaryDirectory(prefix="gesta-bench-", dir=bench_folder(folder)) as inside,
        Screen(stages) as screen,
    ):
        figures = runtime.run(_unless_interrupted(work(Path(inside), screen.tell)))
    if isinstance(figures, signal.Signals):
        sys.stderr.write("interrupted; nothing is left behind\n")
        raise SystemExit(128 + figures)
    return figures


async def _unless_interrupted(work: Coroutine[Any, Any, T]) -> T | signal.Signals:
    with Interruption() as interruption:
        try:
            return await work
        except asyncio.CancelledError:
            if interruption.number is None:
                raise
            return signal.Signals(interruption.number)


def _verdict(errors: Sequence[str]) -> int:
    for error in errors:
        sys.stderr.write(f"wrong count: {error}\n")
    return COUNT_IS_WRONG if errors else 0


def _check(plan: Plan, flow: str) -> None:
    if min(plan.requests, plan.round_count, plan.light_samples) < 1 or plan.history < 0:
        raise BadSettings(
            "requests, rounds and light_samples must be positive, history must not be negative"
        )
    if plan.peer is not None and (plan.batch or flow != "plain"):
        raise BadSettings(
            "peer: it is measured by single requests of the plain flow; leave out --batch and"
            " --flow, or --peer"
        )
    if plan.store.url is not None and plan.store.url.startswith("memory:"):
        raise BadSettings(
            "url: a store in memory keeps nothing that could be counted after the run; name a"
            " durable one"
        )
    if plan.history and not is_fresh(plan.store.url):
        raise BadSettings(
            "history: written into a fresh store only; leave out --url or --history, or name a"
            " PostgreSQL server"
        )


def _check_is_fresh(url: str | None) -> None:
    if not is_fresh(url):
        raise BadSettings(
            "url: --crash, --processes and --flood leave unfinished requests behind, so they work"
            " on a fresh store only; leave it out, or write --url postgresql, or name a PostgreSQL"
            " server"
        )


class Screen:
    """Progress on stderr.

    It is drawn between the stages only: a thread that draws would take its share of what is
    measured.
    """

    def __init__(self, stages: Sequence[str]) -> None:
        self._stages = stages
        columns = (
            TextColumn("{task.description:<17}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
        )
        self._progress = Progress(
            *columns, console=Console(stderr=True), auto_refresh=False, transient=True
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def tell(self, stage: str, done: int, total: int) -> None:
        """A stage has begun or got on; the ones before it are over."""
        if stage not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, completed=1, total=1)
            self._tasks[stage] = self._progress.add_task(
                f"{stage} ({self._stages.index(stage) + 1}/{len(self._stages)})"
            )
        self._progress.update(self._tasks[stage], completed=done, total=total, refresh=True)
