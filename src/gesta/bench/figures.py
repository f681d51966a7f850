"""What a bench run is asked for and what it prints."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    requests: int = 20_000
    #: Finished requests in the store before the clock starts.
    history: int = 0
    batch: bool = False
    keyed: bool = False
    #: A store of one's own instead of a fresh file; what is written there stays.
    url: str | None = None
    light_samples: int = 250
    idle_seconds: float = 3.0
    #: When nothing has ended for so long, what is missing counts as lost.
    stall_seconds: float = 30.0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Gesta's own part of the figures. Memory is that of the process with the engine; the raw runs have a process of their own."""

    requests: int
    seconds: float
    requests_per_second: float
    #: From submit to known outcome at 50 requests a second.
    p50_ms: float
    p99_ms: float
    #: The peak of idling, load and light load; and before any load.
    rss_mb: float
    rss_idle_mb: float
    idle_cpu_percent: float
    #: What the count found wrong; nothing when every request was done once.
    faults: list[str]


class Figures(Measured, frozen=True, kw_only=True):
    """All that `gesta bench --json` prints."""

    #: The mean of the bare loop before and after gesta, same history, same file system; and what gesta reaches of it.
    raw_requests_per_second: float
    ratio: float
    #: Far apart: the machine was not quiet, and the ratio is worth less.
    raw_runs: list[float]
    #: The median of writing 4 KB and syncing them in the same folder.
    fsync_ms: float
    flow: str
    history: int
    batch: bool
    keyed: bool
    light_samples: int
    file_system: str
    python: str
    cores: int
    sqlite: str
    raw_sqlite: str
    #: How the interpreter is tuned for the engine (gesta.runtime.run), for those who run one in a process of their own making.
    gc_threshold: int
    switch_interval_ms: float
