"""Eager dispatch: a worker offers its free slots to the projector of its process, so that jobs are
put and leased in one commit.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gesta.domain.fair_queue import give_turns, score_of
from gesta.ports.job_queue import Job, LeasedJob
from gesta.ports.read_model import View


@dataclass(slots=True, eq=False)
class FreeSlots:
    """A worker's free slots, offered with jobs that are put.

    The commit that puts the jobs leases those that nothing precedes; `leased` has them afterwards.
    Not leased but put as ready are: a job that is possibly executed or not due; all jobs of a flow
    that has a ready job; jobs beyond the slots; and all jobs while a lease has expired or another
    job is due. A job that is live stays as it is. A store may lease fewer jobs, or none.
    """

    token: str
    #: Flow → its free slots.
    free: Mapping[str, int]
    lease_seconds: float
    #: Whether the lease must be on disk.
    durable: bool = field(kw_only=True)
    leased: list[LeasedJob] = field(default_factory=list, init=False)
    #: False: the lease was not renewed and lasts for at least half of `lease_seconds`.
    renewed: bool = field(default=True, init=False)
    #: Job id → the request, if the same commit creates it: the view then has all of its events.
    made: Mapping[str, View] = field(default_factory=dict, init=False)


class EagerDispatch(Protocol):
    def make(self, jobs: Sequence[Job]) -> FreeSlots | None:
        """An offer of free slots for jobs that are about to be put."""

    def answered(self, free_slots: FreeSlots, *, is_lost: bool) -> None:
        """To be called for every offer. `is_lost`: the answer of the store was lost."""


class EagerJobs(Protocol):
    """For a queue in another database that leases jobs in the call that puts them.

    Then jobs need no record as undispatched: the projector puts them before it moves its
    checkpoint. After a crash in between it puts them again.
    """

    async def put_leased(self, jobs: Sequence[Job], free_slots: FreeSlots) -> list[bool]:
        """As JobQueue.put. Also leases those that nothing precedes to the worker with free
        slots.
        """


def chosen_of(jobs: Sequence[Job], free: Mapping[str, int], now_ms: int) -> list[Job]:
    """The new jobs that fit into free slots, in their turns, if no other job is ready."""
    leasable = [
        job
        for job in jobs
        if job.due_ms <= now_ms and job.flow in free and not job.possibly_executed
    ]
    counts = Counter([job.flow for job in leasable])
    if all(free[flow] >= count for flow, count in counts.items()):
        return leasable
    lines = [(job.flow, job.tenant, job.priority) for job in leasable]
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
    return [job for number, job in enumerate(leasable) if number in chosen]
