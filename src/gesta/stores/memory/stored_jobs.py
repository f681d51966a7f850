"""Jobs of slow endpoints in memory. Implements gesta.ports.job_store.JobTable and JobRows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gesta.domain.stored_job import WAITING, JobStatus, rotate
from gesta.ports.job_store import Claim, JobCounts, Reaped
from gesta.runtime.clock import Runtime
from gesta.stores import job_rows
from gesta.stores.job_rows import COUNTED, Decide, JobRow, fields_of_row, row_of
from gesta.stores.job_table import RowTable
from gesta.stores.memory.fences import MemoryFences


class MemoryStoredJobs(RowTable):
    name = "memory"

    def __init__(self, runtime: Runtime, fences: MemoryFences | None = None) -> None:
        self._runtime, self._fences = runtime, fences or MemoryFences()
        #: In the order in which they were created.
        self.stored: dict[str, JobRow] = {}
        self.turns: dict[str, int] = {}
        self.counted: dict[str, Counter[str]] = {}

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        self._fences.check()
        new = [row_of(row, self._runtime.now_ms()) for row in rows]
        written = list(dict.fromkeys(row.id for row in new if row.id not in self.stored))
        codes, counts = job_rows.created(new, written)
        for row, code in zip(new, codes, strict=True):
            if code == "OK":
                self.stored[row.id] = row
        self._note(counts)
        return codes

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        return job_rows.found_fields(self._found(ids), ids, self._runtime.now_ms())

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        chosen, served = rotate(self.due(claim), self.turns, claim.limit, claim.urgent)
        if chosen:
            self._fences.check_jobs()
        top = max(self.turns.values(), default=0)
        self.turns |= {name: top + place + 1 for place, name in enumerate(served)}
        for one in chosen:
            row = self.stored[one]
            self.stored[one] = job_rows.claimed(row, claim, token, self._runtime.now_ms())
        return [(one, fields_of_row(self.stored[one])) for one in chosen]

    def due(self, claim: Claim) -> dict[str, list[str]]:
        """Ids of the due jobs of each name, the oldest first."""
        now = self._runtime.now_ms()
        due = sorted(
            (row for row in self.stored.values() if row.status in WAITING and row.due_ms <= now),
            key=lambda row: row.due_ms,
        )
        return {name: [row.id for row in due if row.name == name] for name in claim.names}

    async def reap(self, limit: int) -> list[Reaped]:
        now = self._runtime.now_ms()
        lost = [
            row.id
            for row in self.stored.values()
            if row.status == JobStatus.IN_PROGRESS and (row.lease_until or 0) <= now
        ][:limit]
        ends: list[Any] = await self.change([(one, job_rows.reap) for one in lost])
        return [Reaped(one, end) for one, end in zip(lost, ends, strict=True)]

    async def counts(self) -> JobCounts:
        total = sum(self.counted.values(), Counter[str]())
        return JobCounts(**{kind: total[kind] for kind in COUNTED})

    async def change(self, changes: Sequence[tuple[str, Decide]]) -> list[str]:
        rows = self._found([one for one, _ in changes])
        codes, made = job_rows.applied(rows, changes, self._runtime.now_ms())
        if made:
            self._fences.check()
        self.stored |= {new.id: new for _, new in made}
        self._note(job_rows.ended(made))
        return codes

    async def rows(self, after: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        numbered = enumerate(self.stored.values(), 1)
        return [(number, row) for number, row in numbered if number > after][:limit]

    async def names(self) -> list[tuple[Any, ...]]:
        return [
            (name, self.turns.get(name, 0), *(count[kind] for kind in COUNTED))
            for name, count in sorted(self.counted.items())
        ]

    async def fill(self, rows: Sequence[tuple[Any, ...]], names: Sequence[tuple[Any, ...]]) -> None:
        self._fences.check()
        self.stored |= {row.id: row for row in map(JobRow._make, rows)}
        for name, turn, *counts in names:
            self.turns[name] = turn
            self.counted[name] = Counter(dict(zip(COUNTED, counts, strict=True)))

    def _found(self, ids: Sequence[str]) -> list[JobRow]:
        return [self.stored[one] for one in ids if one in self.stored]

    def _note(self, counts: Mapping[str, Counter[str]]) -> None:
        for name, count in counts.items():
            self.counted.setdefault(name, Counter()).update(count)
