"""How many jobs one take may bring, to which requests they point, whether the next take follows at
once, and how long to wait otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gesta.ports.job_queue import LeasedJob
from gesta.ports.read_model import Key, View

#: A queue tells when a job was put; should it ever not, this is how long a job lies unnoticed.
POLL_SECONDS = 1.0
#: How often a queue is asked for a job that is due by our clock and not by its own.
CLOCK_PAUSE_SECONDS = 0.1
#: A flow's slots are filled by so many takes at least. Calls that begin together end together, and
#: until then whoever comes waits: a few
#: waves a moment apart leave a slot for another tenant's job soon.
TAKES_TO_FILL = 8
#: Smaller takes would cost more than the waves do,
TAKE_LEAST = 8
#: and so many slots left for later takes are enough for anybody.
KEPT_BACK_MOST = 1_000


def batch_max(slots: int) -> int:
    """How many jobs of a flow one take may bring."""
    return max(TAKE_LEAST, slots // TAKES_TO_FILL, slots - KEPT_BACK_MOST)


def few(most: int) -> int:
    """How many of them it asks for where nobody is thought to wait."""
    return max(TAKE_LEAST, most // TAKES_TO_FILL)


def by_job(
    leased: Sequence[LeasedJob], keys: Sequence[Key], found: Mapping[Key, View]
) -> dict[str, View]:
    """What was found of the requests that jobs point to, by the ids of the jobs; `keys` has one for
    each job.
    """
    return {one.job.id: found[key] for one, key in zip(leased, keys, strict=True) if key in found}


def may_have_more(
    asked: Mapping[str, int], leased: Sequence[LeasedJob], next_due_ms: int | None, asked_ms: int
) -> bool:
    """Whether the queue may have left out jobs that are ready: as many came as were asked for, or
    more are due than it wakes at once.
    """
    if not leased:
        return False
    came = Counter([one.job.flow for one in leased])
    return any(came[flow] >= most for flow, most in asked.items()) or (
        next_due_ms is not None and next_due_ms <= asked_ms
    )


def pause_seconds(next_due_ms: int | None, asked_ms: int, now_ms: int) -> float:
    """Until the next job falls due, as far as the queue knows."""
    if next_due_ms is None:
        return POLL_SECONDS
    # Due before we asked, and not given to us: the queue's clock is behind ours.
    least = 0.001 if next_due_ms > asked_ms else CLOCK_PAUSE_SECONDS
    return min(POLL_SECONDS, max(least, (next_due_ms - now_ms) / 1000))
