"""Jobs of slow endpoints in PostgreSQL. Implements gesta.ports.job_store.JobTable."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from gesta.domain.stored_job import IN_A_ROW
from gesta.ports.job_store import (
    Claim,
    JobCounts,
    Reaped,
    ReapedEnd,
)
from gesta.runtime.clock import Runtime
from gesta.stores import job_rows
from gesta.stores.job_rows import Decide, JobRow, claim_text, fields_of_row, is_gone, row_of
from gesta.stores.job_table import RowTable
from gesta.stores.postgresql.connections import Connection
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.read_model import columns_of

WIDTH = len(JobRow._fields)
#: Ended jobs that one call removes at most.
FORGET = 1_000


class PostgresqlStoredJobs(RowTable):
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime, self.name = database, runtime, database.name

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        now = self._runtime.now_ms()
        new = [row_of(row, now) for row in rows]

        async def create(connection: Connection) -> list[str]:
            sql = self._database.sql
            await connection.fetch(sql("forget_stored_jobs"), now, FORGET)
            answer = await connection.fetch(sql("create_stored_jobs"), *columns_of(new, WIDTH))
            written = Counter(row[0] for row in answer)
            codes, names = [], Counter[str]()
            for row in new:
                is_new = written[row.id] > 0
                written[row.id] = 0
                names[row.name] += is_new
                codes.append("OK" if is_new else "DUPLICATE")
            await self._note(
                connection, {name: Counter(created=count) for name, count in names.items()}
            )
            return codes

        return await self._database.transact(create, durable=True)

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        now = self._runtime.now_ms()
        rows = [JobRow(*row) for row in await self._database.ask("read_stored_jobs", list(ids))]
        found = {row.id: fields_of_row(row) for row in rows if not is_gone(row, now)}
        return [found.get(one, "NOT_FOUND") for one in ids]

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        now = self._runtime.now_ms()
        # One statement is a transaction of its own, and one round trip.
        rows = await self._database.ask(
            "claim_stored_jobs",
            list(claim.names),
            now,
            claim.limit,
            claim.worker_id,
            claim_text(claim.worker_id, token),
            now + round(claim.lease_seconds * 1000),
            IN_A_ROW,
        )
        taken = sorted((row[0], JobRow(*list(row)[1:])) for row in rows)
        return [(row.id, fields_of_row(row)) for _, row in taken]

    async def reap(self, limit: int) -> list[Reaped]:
        now = self._runtime.now_ms()

        async def reap(connection: Connection) -> list[Reaped]:
            sql = self._database.sql
            await connection.fetch(sql("forget_stored_jobs"), now, FORGET)
            rows = await connection.fetch(sql("lost_stored_jobs"), now, limit)
            lost = [row[0] for row in rows]
            codes = await self._apply(connection, [(one, job_rows.reap) for one in lost], now)
            ends = cast("list[ReapedEnd]", codes)
            return [Reaped(one, end) for one, end in zip(lost, ends, strict=True)]

        return await self._database.transact(reap, durable=True)

    async def counts(self) -> JobCounts:
        ((*counts,),) = await self._database.ask("count_stored_jobs")
        return JobCounts(*counts)

    async def change(self, changes: Sequence[tuple[str, Decide]]) -> list[str]:
        if not changes:
            return []
        now = self._runtime.now_ms()
        return await self._database.transact(
            lambda connection: self._apply(connection, changes, now), durable=True
        )

    async def _apply(
        self, connection: Connection, changes: Sequence[tuple[str, Decide]], now: int
    ) -> list[str]:
        sql = self._database.sql
        ids = [one for one, _ in changes]
        found = await connection.fetch(sql("lock_stored_jobs"), ids)
        read = [JobRow(*one) for one in found]
        rows = {one.id: one for one in read if not is_gone(one, now)}
        codes, made = [], []
        for job_id, decide in changes:
            row = rows.get(job_id)
            if row is None:
                codes.append("NOT_FOUND")
                continue
            code, new = decide(row, now)
            codes.append(code)
            if new is not None:
                made.append((row, new))
                rows[job_id] = new
        if made:
            last = {new.id: new for _, new in made}
            await connection.fetch(sql("save_stored_jobs"), *columns_of([*last.values()], WIDTH))
        await self._note(connection, job_rows.ended(made))
        return codes

    async def _note(self, connection: Connection, counts: Mapping[str, Counter[str]]) -> None:
        kinds = ("created", "completed", "failed", "canceled")
        if counts:
            # In the order of their names: another transaction may count the same ones.
            names = sorted(counts)
            numbers = [[counts[name][kind] for name in names] for kind in kinds]
            await connection.fetch(self._database.sql("note_stored_jobs"), names, *numbers)
