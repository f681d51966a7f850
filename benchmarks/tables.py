"""What the bench prints: a table for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figures, PeerFigures
from benchmarks.subjects import PLAIN

if TYPE_CHECKING:
    from benchmarks.crash import CrashFigures
    from benchmarks.flood import FloodFigures
    from benchmarks.processes import ProcessFigures


def print_figures(title: str, figures: msgspec.Struct, rows: dict[str, str], *, json: bool) -> None:
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        Console().print(_table(title, rows))


def _table(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def crash_rows(figures: CrashFigures) -> dict[str, str]:
    one, every = (
        f"{figures.kills} kills, {figures.interrupted:,}",
        f"{figures.restarts} restarts, {figures.restart_interrupted:,}",
    )
    return {
        "one of two killed": (
            f"{one} requests interrupted,"
            f" {_seconds(figures.recovery_p50_seconds, figures.recovery_p99_seconds)}"
        ),
        "all killed": (
            f"{every} requests interrupted,"
            f" {_seconds(figures.restart_p50_seconds, figures.restart_p99_seconds)}"
        ),
        "count": (
            f"{figures.requests:,} requests, {figures.lost:,} lost, {figures.doubled:,} doubled"
        ),
        "repeated": f"{figures.repeated:,} calls under the same key, which made them harmless",
        "seconds": f"{figures.seconds:,.1f}",
    }


def _seconds(p50: float, p99: float) -> str:
    return f"on record again after p50 {p50:.2f} s, p99 {p99:.2f} s"


def flood_rows(figures: FloodFigures) -> dict[str, str]:
    from benchmarks.flood import FACTOR_MAX, PER_SECOND

    verdict = "within" if figures.is_within else "NOT within"
    return {
        "quiet": (
            f"p50 {figures.quiet_p50_ms:.1f} ms, p99 {figures.quiet_p99_ms:.1f} ms at {PER_SECOND}"
            " per second"
        ),
        "flooded": (
            f"p50 {figures.flooded_p50_ms:.1f} ms, p99 {figures.flooded_p99_ms:.1f} ms,"
            f" {figures.samples:,} samples"
        ),
        "factor": f"{figures.factor:.2f} at p99, {verdict} {FACTOR_MAX:g}",
        "flood": (
            f"{figures.flood_requests:,} requests of another tenant, {figures.flood_done:,} of them"
            " done meanwhile"
        ),
        "fsync": _disk(figures),
        "machine": f"{figures.cores} cores, Python {figures.python}",
    }


def process_rows(figures: ProcessFigures) -> dict[str, str]:
    p50, p99 = figures.other_process_start_p50_ms, figures.other_process_start_p99_ms
    idle = " and ".join(f"{percent:.2f}" for percent in figures.idle_cpu_percent)
    return {
        "sent from another process": (
            f"{figures.requests:,} requests, started after p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        ),
        "idle": f"{idle} % of a core, two processes on one store",
    }


def rows(figures: Figures) -> dict[str, str]:
    how = "submit_many" if figures.batch else "submit"
    keyed = " with a key each" if figures.keyed else ""
    return {
        "requests": (
            f"{figures.requests:,} by {how}{keyed}, {figures.history:,} in the store before"
        ),
        "seconds": f"{figures.seconds:,.2f}",
        "requests per second": f"{figures.requests_per_second:,.0f}{_median_of(figures.runs)}",
        "raw": f"{figures.raw_requests_per_second:,.0f} per second{_median_of(figures.raw_runs)}",
        "ratio": f"{figures.ratio:.2f}",
        **_plain_rows(figures),
        **_peer_rows(figures.peer),
        "latency at 50 per second": f"p50 {figures.p50_ms:.1f} ms, p99 {figures.p99_ms:.1f} ms",
        "memory": f"{figures.rss_mb:.0f} MB at most, {figures.rss_idle_mb:.0f} MB idle",
        "idle": f"{figures.idle_cpu_percent:.2f} % of a core",
        "fsync": _disk(figures),
        "machine": (
            f"{figures.cores} cores, Python {figures.python}, {figures.store} (raw:"
            f" {figures.raw_store})"
        ),
        "interpreter": (
            f"gc threshold {figures.gc_threshold:,}, switch interval"
            f" {figures.switch_interval_ms:g} ms"
        ),
        "count": "; ".join(figures.errors) or "every request done once",
    }


def _plain_rows(figures: Figures) -> dict[str, str]:
    if figures.of_plain is None:
        return {}
    runs = _listed(figures.plain_runs)
    if figures.flow == PLAIN.flow.name:
        return {
            "without keys": f"{runs} per second",
            "of that": f"{figures.of_plain:.2f} with them",
        }
    return {
        "plain flow": f"{runs} per second",
        "of the plain flow": (
            f"{figures.of_plain:.2f}; the provider's answers are given in this process, in place of"
            " its SDK's calls"
        ),
    }


def _peer_rows(peer: PeerFigures | None) -> dict[str, str]:
    if peer is None:
        return {}
    what = f"{peer.name} on {peer.store}, {peer.runtime}"
    return {
        "peer": f"{peer.requests_per_second:,.0f} per second{_median_of(peer.runs)}: {what}",
        "ratio to peer": f"{peer.ratio:.2f}",
    }


def _median_of(runs: Sequence[float]) -> str:
    return f", the median of {_listed(runs)}" if len(runs) > 1 else ""


def _listed(runs: Sequence[float]) -> str:
    return " and ".join(f"{run:,.0f}" for run in runs)


def _disk(figures: Figures | FloodFigures) -> str:
    if figures.fsync_ms is None:
        return "that of the server"
    return f"{figures.fsync_ms:.2f} ms on {figures.file_system}"
