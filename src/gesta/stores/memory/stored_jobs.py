"""Jobs of slow endpoints in memory. Implements gesta.ports.job_store.JobTable."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gesta.domain.stored_job import WAITING, JobStatus, rotate
from gesta.ports.job_store import Claim, JobCounts, Reaped
from gesta.runtime.clock import Runtime
from gesta.stores import job_rows
from gesta.stores.job_rows import Decide, JobRow, fields_of_row, is_gone, row_of
from gesta.stores.job_table import RowTable


class MemoryStoredJobs(RowTable):
    name = "memory"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        #: In the order in which they were created.
        self.rows: dict[str, JobRow] = {}
        self.turns: dict[str, int] = {}
        self.total: Counter[str] = Counter()

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        return [self._create(row_of(row, self._runtime.now_ms())) for row in rows]

    def _create(self, row: JobRow) -> str:
        if row.id in self.rows:
            return "DUPLICATE"
        self.rows[row.id] = row
        self.total["created"] += 1
        return "OK"

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        now = self._runtime.now_ms()
        found = {one: self.rows[one] for one in ids if one in self.rows}
        return [
            fields_of_row(found[one])
            if one in found and not is_gone(found[one], now)
            else "NOT_FOUND"
            for one in ids
        ]

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        chosen, served = rotate(self.due(claim), self.turns, claim.limit)
        top = max(self.turns.values(), default=0)
        self.turns |= {name: top + place + 1 for place, name in enumerate(served)}
        for one in chosen:
            row = self.rows[one]
            self.rows[one] = job_rows.claimed(row, claim, token, self._runtime.now_ms())
        return [(one, fields_of_row(self.rows[one])) for one in chosen]

    def due(self, claim: Claim) -> dict[str, list[str]]:
        """Ids of the due jobs of each name, the oldest first."""
        now = self._runtime.now_ms()
        due = sorted(
            (row for row in self.rows.values() if row.status in WAITING and row.due_ms <= now),
            key=lambda row: row.due_ms,
        )
        return {name: [row.id for row in due if row.name == name] for name in claim.names}

    async def reap(self, limit: int) -> list[Reaped]:
        now = self._runtime.now_ms()
        lost = [
            row.id
            for row in self.rows.values()
            if row.status == JobStatus.IN_PROGRESS and (row.lease_until or 0) <= now
        ][:limit]
        ends: list[Any] = await self.change([(one, job_rows.reap) for one in lost])
        return [Reaped(one, end) for one, end in zip(lost, ends, strict=True)]

    async def counts(self) -> JobCounts:
        return JobCounts(**self.total)

    async def change(self, changes: Sequence[tuple[str, Decide]]) -> list[str]:
        codes: list[str] = []
        for job_id, decide in changes:
            row = self.rows.get(job_id)
            if row is None or is_gone(row, self._runtime.now_ms()):
                codes.append("NOT_FOUND")
                continue
            code, new = decide(row, self._runtime.now_ms())
            codes.append(code)
            if new is not None:
                self.rows[job_id] = new
                for count in job_rows.ended([(row, new)]).values():
                    self.total += count
        return codes
