"""What a seed decides before a run begins, printed with every failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import msgspec


class Rates(msgspec.Struct, frozen=True):
    """How likely each fault is, at each opportunity for it."""

    #: A process dies at a store call, before or after its effect.
    crash_at_store: float = 0.0
    #: A process dies in a call of the provider, before or after its effect.
    crash_at_provider: float = 0.0
    #: A process stands still at a store call or in a call of the provider.
    freeze: float = 0.0
    store_error: float = 0.0
    answer_lost: float = 0.0
    #: A store call takes seconds.
    store_slow: float = 0.0
    #: The provider does something else than what it was asked for.
    provider: float = 0.0
    #: A call is none after all: there is no token for it, or the provider refuses the credential.
    deferred: float = 0.0


CALM = Rates()
SKEW_MS_MAX = 300_000


@dataclass(frozen=True)
class Options:
    seed: int
    submits: int
    decisions: int
    #: How long faults happen.
    seconds: float
    #: How far each process's clock is off.
    skews_ms: tuple[int, ...]
    rates: Rates
    #: Deaths by the clock, whatever the process is doing.
    kills: int
    #: Clean stops, as in a deployment.
    stops: int
    #: The queue is lost with everything in it.
    queue_lost: bool
    #: Rebuilds of the views by some process, while everything else goes on.
    rebuilds: int
    #: The queue is in a database of its own.
    separate_queue: bool
    #: And it leases jobs in the call that puts them; else the relay moves undispatched jobs.
    queue_leases_early: bool
    #: A program subscribes to the outcomes of requests.
    ears: bool
    #: People who are erased.
    erases: int
    #: Events in one batch of the projector.
    batch: int
    #: Into how many the log is divided among those who project.
    partitions: int
    #: Long after everything has come to rest a person looks at what failed or is unknown.
    people_after_seconds: float
    #: What a process appends it projects in the same commit, where it can.
    inline: bool
    #: What is submitted: names of payload types.
    payloads: tuple[str, ...] = (
        "Deduping",
        "Forgetting",
        "Asked",
        "Journalled",
        "Left",
        "Careless",
        "Encrypted",
    )

    @property
    def skew_ms(self) -> int:
        return max(map(abs, self.skews_ms))


def options(seed: int) -> Options:
    """The options of a seed: each run has some of the faults, because all of them at once hide each
    other.
    """
    random = Random(f"options {seed}")

    def sometimes(chance: float, rate: float) -> float:
        return rate * random.random() if random.random() < chance else 0.0

    rates = Rates(
        sometimes(0.5, 0.02),
        sometimes(0.5, 0.25),
        sometimes(0.4, 0.03),
        sometimes(0.4, 0.06),
        sometimes(0.4, 0.06),
        sometimes(0.4, 0.03),
        sometimes(0.8, 1.0),
        _deferred(seed),
    )
    processes, skewed = random.choice([1, 2, 2, 3]), random.random() < 0.25
    return Options(
        seed=seed,
        skews_ms=tuple(
            round(random.uniform(-1, 1) * SKEW_MS_MAX) if skewed else 0 for _ in range(processes)
        ),
        submits=random.randint(2, 7),
        decisions=random.choice([0, 2, 5, 8]),
        seconds=random.choice([4.0, 8.0, 15.0]),
        rates=rates,
        kills=random.choice([0, 0, 1, 2]),
        stops=random.choice([0, 0, 0, 1]),
        queue_lost=random.random() < 0.1,
        rebuilds=random.choice([0, 0, 0, 1, 2]),
        separate_queue=random.random() < 0.3,
        queue_leases_early=Random(f"leases early {seed}").random() < 0.5,
        ears=random.random() < 0.3,
        erases=random.choice([0, 0, 1, 2]),
        batch=random.choice([1, 2, 2_000]),
        people_after_seconds=random.choice([0.0, 20.0, 400.0]),
        partitions=random.choice([1, 3]),
        inline=Random(f"at once {seed}").random() < 0.5,
    )


def _deferred(seed: int) -> float:
    """With dice of its own, so that what else a seed means stays as it was."""
    random = Random(f"unspent {seed}")
    return random.random() if random.random() < 0.3 else 0.0


def faultless(seed: int) -> Options:
    """The same work without any fault."""
    chosen = options(seed)
    skews_ms = (0,) * len(chosen.skews_ms)
    return replace(
        chosen,
        rates=CALM,
        kills=0,
        stops=0,
        queue_lost=False,
        rebuilds=0,
        erases=0,
        skews_ms=skews_ms,
    )
