"""Station 5, the short way: free slots of a worker are offered with the jobs that are put, so that
put and take are one.

The projector asks its own process's worker for an offer (worker/offering.py) and gives it to the
store with the jobs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from gesta.domain.fair_queue import give_turns, score_of
from gesta.ports.job_queue import Job, LeasedJob
from gesta.ports.read_model import View


class FreeSlots:
    """So many free slots of each flow.

    Jobs that find nobody waiting before them are taken in the commit that puts them.

    `leased` is filled in once that commit stands. The long way, ready for the next take, go: a job
    that is suspect or not due, all jobs of a
    flow of which one is ready already, those beyond its slots, and everything while some lease is
    dead or some other job has fallen due and
    waits to be woken. One that is live stays as it is. A store may take fewer, or none.
    """

    __slots__ = ("durable", "free", "lease_seconds", "leased", "made", "renewed", "token")

    def __init__(
        self, token: str, free: Mapping[str, int], lease_seconds: float, *, durable: bool
    ) -> None:
        self.token, self.free, self.lease_seconds, self.durable = (
            token,
            free,
            lease_seconds,
            durable,
        )
        self.leased: list[LeasedJob] = []
        #: Whether the lease lasts for `lease_seconds` from here; otherwise it was left as it was,
        #: with half of that to go at least.
        self.renewed = True
        #: Job id → the request, where that commit makes it, too: then nothing of its stream is
        #: unseen when the job is taken.
        self.made: Mapping[str, View] = {}


class EagerDispatch(Protocol):
    """Where a projector gets offers.

    Each has to be answered, also where the store's answer is lost.
    """

    def make(self, jobs: Sequence[Job]) -> FreeSlots | None:
        """For jobs that are about to be put."""

    def answered(self, free_slots: FreeSlots, *, is_lost: bool) -> None: ...


def chosen_of(jobs: Sequence[Job], free: Mapping[str, int], now_ms: int) -> list[Job]:
    """Those of new jobs that so many free slots take, where nobody waits before them: in their
    turns, if there are more of them.
    """
    takable = [
        job
        for job in jobs
        if job.due_ms <= now_ms and job.flow in free and not job.possibly_executed
    ]
    counts = Counter([job.flow for job in takable])
    if all(free[flow] >= count for flow, count in counts.items()):
        return takable
    lines = [(job.flow, job.tenant, job.priority) for job in takable]
    turns = give_turns(Counter(lines), {}, {})
    ranked = []
    for number, line in enumerate(lines):
        ranked.append((score_of(turns[line], line[2]), number))
        turns[line] += 1
    chosen, left = set(), dict(free)
    for _, number in sorted(ranked):
        if left[lines[number][0]] > 0:
            left[lines[number][0]] -= 1
            chosen.add(number)
    return [job for number, job in enumerate(takable) if number in chosen]
