"""What a bench run is asked for and what it prints."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from gesta.testing.scratch_store import ChosenStore

#: The bare loop writes the history anew for each of its runs.
ROUNDS, ROUNDS_AFTER_HISTORY = 7, 3


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    requests: int = 20_000
    #: How often the load is measured, each time between two runs of what it is held against:
    #: machines are never quiet for long. None: 7, or 3 with a history.
    rounds: int | None = None
    #: Finished requests in the store before the clock starts.
    history: int = 0
    batch: bool = False
    keyed: bool = False
    #: As --url, --queue-url and --views-url have it.
    store: ChosenStore = field(default_factory=ChosenStore)
    #: Another system that is measured in the same run.
    peer: str | None = None
    light_samples: int = 250
    idle_seconds: float = 3.0
    #: When nothing has ended for so long, what is missing counts as lost.
    stall_seconds: float = 30.0

    @property
    def round_count(self) -> int:
        if self.rounds is not None:
            return self.rounds
        return ROUNDS_AFTER_HISTORY if self.history else ROUNDS


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Gesta's own part of the figures.

    Memory is that of the process with the engine; raw runs and servers have processes of their own.
    """

    #: In each round; `seconds` and the rate are those of the median round.
    requests: int
    seconds: float
    requests_per_second: float
    #: The rate of each round.
    runs: list[float]
    #: From submit to known outcome at 50 requests a second.
    p50_ms: float
    p99_ms: float
    #: The peak of idling, load and light load; and before any load.
    rss_mb: float
    rss_idle_mb: float
    idle_cpu_percent: float
    #: What the count found wrong; nothing when every request was done once.
    errors: list[str]


class PeerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Another system under the same load, before and after each round of gesta."""

    name: str
    requests_per_second: float
    runs: list[float]
    #: How many times as many requests a second gesta has done.
    ratio: float
    #: What it ran on and wrote to.
    runtime: str
    store: str


class Figures(Measured, frozen=True, kw_only=True):
    """All that `make bench --json` prints."""

    #: The median of the bare loop's runs, same history, same file system; and what gesta reaches of
    #: it: the median of its rounds, each
    #: held against the runs right before and after it.
    raw_requests_per_second: float
    ratio: float
    #: Far apart: the machine was not quiet, and the ratio is worth less.
    raw_runs: list[float]
    #: The plain flow in the same run, before and after each round of a channel that is held against
    #: it, and what the channel reaches of it;
    #: with `--keyed` the plain flow without keys.
    plain_runs: list[float]
    of_plain: float | None
    #: Another system in the same run, where one was asked for.
    peer: PeerFigures | None
    #: The median of writing 4 KB and syncing them in the same folder. It is unknown for another's
    #: server, nor its file system.
    fsync_ms: float | None
    flow: str
    history: int
    batch: bool
    keyed: bool
    light_samples: int
    file_system: str | None
    python: str
    cores: int
    #: What the engine and the bare loop wrote to, with their versions.
    store: str
    raw_store: str
    #: How the interpreter is tuned for the engine (gesta.runtime.clock.run), for those who run one
    #: in a process of their own making.
    gc_threshold: int
    switch_interval_ms: float
