"""Jobs of slow endpoints in PostgreSQL. Implements gesta.ports.job_store.JobTable and JobRows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gesta.domain.stored_job import IN_A_ROW
from gesta.ports.job_store import Claim, JobCounts, Reaped, ReapedEnd
from gesta.runtime.clock import Runtime
from gesta.stores import job_rows
from gesta.stores.job_rows import (
    COUNTED,
    FORGET,
    WIDTH,
    Decide,
    JobRow,
    claim_text,
    fields_of_row,
    row_of,
)
from gesta.stores.job_table import RowTable
from gesta.stores.postgresql.connections import Connection
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.read_model import columns_of


class PostgresqlStoredJobs(RowTable):
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime, self.name = database, runtime, database.name

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        now = self._runtime.now_ms()
        new = [row_of(row, now) for row in rows]

        async def create(connection: Connection) -> list[str]:
            sql = self._database.sql
            await connection.fetch(sql("forget_stored_jobs"), now, FORGET)
            written = await connection.fetch(sql("create_stored_jobs"), *columns_of(new, WIDTH))
            codes, counts = job_rows.created(new, (row[0] for row in written))
            await self._note(connection, counts)
            return codes

        return await self._database.transact(create, durable=True)

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        rows = [JobRow(*row) for row in await self._database.ask("read_stored_jobs", list(ids))]
        return job_rows.found_fields(rows, ids, self._runtime.now_ms())

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
            list(claim.urgent),
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

    async def rows(self, after: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        found = await self._database.ask("list_stored_jobs", after, limit)
        return [(row[0], JobRow(*list(row)[1:])) for row in found]

    async def names(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._database.ask("list_stored_job_names")]

    async def fill(self, rows: Sequence[tuple[Any, ...]], names: Sequence[tuple[Any, ...]]) -> None:
        async def fill(connection: Connection) -> None:
            sql = self._database.sql
            await connection.fetch(sql("remove_stored_jobs"), [row[0] for row in rows])
            await connection.fetch(sql("create_stored_jobs"), *columns_of(rows, WIDTH))
            columns = columns_of(names, 2 + len(COUNTED))
            await connection.fetch(sql("set_stored_job_names"), *columns)

        await self._database.transact(fill, durable=True)

    async def _apply(
        self, connection: Connection, changes: Sequence[tuple[str, Decide]], now: int
    ) -> list[str]:
        sql = self._database.sql
        found = await connection.fetch(sql("lock_stored_jobs"), [one for one, _ in changes])
        codes, made = job_rows.applied([JobRow(*one) for one in found], changes, now)
        if made:
            last = {new.id: new for _, new in made}
            await connection.fetch(sql("save_stored_jobs"), *columns_of([*last.values()], WIDTH))
        await self._note(connection, job_rows.ended(made))
        return codes

    async def _note(self, connection: Connection, counts: Mapping[str, Counter[str]]) -> None:
        if counts:
            # In the order of their names: another transaction may count the same ones.
            names = sorted(counts)
            numbers = [[counts[name][kind] for name in names] for kind in COUNTED]
            await connection.fetch(self._database.sql("note_stored_jobs"), names, *numbers)
