"""Jobs that wait beside the views until a relay has put them into a queue elsewhere, in the order
of their tenants' turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from gesta.ports.job_queue import Job
from gesta.stores.memory.sorted_index import SortedIndex


class UndispatchedJobs:
    """A tenant's jobs have rising numbers, starting where the others are: the tenants come in turn,
    and no newcomer overtakes for long.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[int, Job]] = {}
        self._in_turn: SortedIndex[tuple[int, str, str]] = SortedIndex()
        #: How many jobs of each tenant are pending, and the number of its last one.
        self._counts: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def add(self, jobs: Sequence[Job]) -> None:
        first = next((turn for turn, _, _ in self._in_turn.ascending()), 1)
        for job in jobs:
            if job.id in self._jobs:
                continue
            turn = self._last[job.tenant] = max(self._last.get(job.tenant, 0) + 1, first)
            self._counts[job.tenant] += 1
            self._jobs[job.id] = turn, job
            self._in_turn.add((turn, job.tenant, job.id))

    def first(self, limit: int) -> list[Job]:
        return [self._jobs[job_id][1] for _, _, job_id in islice(self._in_turn.ascending(), limit)]

    def which(self, job_ids: Sequence[str]) -> set[str]:
        return {job_id for job_id in job_ids if job_id in self._jobs}

    def remove(self, job_ids: Sequence[str]) -> set[str]:
        removed = self.which(job_ids)
        for job_id in removed:
            turn, job = self._jobs.pop(job_id)
            self._in_turn.remove((turn, job.tenant, job_id))
            self._counts[job.tenant] -= 1
            if not self._counts[job.tenant]:
                del self._counts[job.tenant], self._last[job.tenant]
        return removed
