"""Jobs of slow endpoints in SQLite. Implements gesta.ports.job_store.JobTable."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import apsw

from gesta.domain.stored_job import rotate
from gesta.ports.job_store import (
    Claim,
    JobCounts,
    Reaped,
    ReapedEnd,
)
from gesta.runtime.clock import Runtime
from gesta.stores import job_rows
from gesta.stores.job_rows import Decide, JobRow, fields_of_row, is_gone, row_of
from gesta.stores.job_table import RowTable
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql

WIDTH = len(JobRow._fields)


class SqliteStoredJobs(RowTable):
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime, self.name = database, runtime, database.path

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        def create(db: apsw.Connection) -> list[str]:
            now = self._runtime.now_ms()
            _forget(db, now)
            new = [row_of(row, now) for row in rows]
            flat: list[Any] = [value for row in new for value in row]
            written = Counter(row[0] for row in ask_many(db, "create_stored_jobs", WIDTH, flat))
            codes, names = [], Counter[str]()
            for row in new:
                is_new = written[row.id] > 0
                written[row.id] = 0
                names[row.name] += is_new
                codes.append("OK" if is_new else "DUPLICATE")
            _note(db, {name: Counter(created=count) for name, count in names.items()})
            return codes

        return await self._database.write(create, durable=True)

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        now = self._runtime.now_ms()
        rows = await self._database.read(lambda db: _rows(db, ids))
        found = {row.id: fields_of_row(row) for row in rows if not is_gone(row, now)}
        return [found.get(one, "NOT_FOUND") for one in ids]

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        def take(db: apsw.Connection) -> list[JobRow]:
            now = self._runtime.now_ms()
            due = {
                name: [
                    row[0] for row in db.execute(sql("due_stored_jobs"), (name, now, claim.limit))
                ]
                for name in claim.names
            }
            turns = {str(row[0]): int(row[1]) for row in db.execute(sql("stored_job_turns"))}
            chosen, served = rotate(due, turns, claim.limit)
            by_id = {row.id: row for row in _rows(db, chosen)}
            taken = [job_rows.claimed(by_id[one], claim, token, now) for one in chosen]
            _save(db, taken)
            top = max(turns.values(), default=0)
            if served:
                flat: list[Any] = [
                    value
                    for place, name in enumerate(served)
                    for value in (name, top + place + 1, 0, 0, 0, 0)
                ]
                run_many(db, "note_stored_jobs", 6, flat)
            return taken

        return [
            (row.id, fields_of_row(row)) for row in await self._database.write(take, durable=True)
        ]

    async def reap(self, limit: int) -> list[Reaped]:
        def reap(db: apsw.Connection) -> list[Reaped]:
            now = self._runtime.now_ms()
            _forget(db, now)
            lost = [row[0] for row in db.execute(sql("lost_stored_jobs"), (now, limit))]
            codes = _apply(db, [(one, job_rows.reap) for one in lost], now)
            ends = cast("list[ReapedEnd]", codes)
            return [Reaped(one, end) for one, end in zip(lost, ends, strict=True)]

        return await self._database.write(reap, durable=True)

    async def counts(self) -> JobCounts:
        ((*counts,),) = await self._database.ask("count_stored_jobs")
        return JobCounts(*counts)

    async def change(self, changes: Sequence[tuple[str, Decide]]) -> list[str]:
        return await self._database.write(
            lambda db: _apply(db, changes, self._runtime.now_ms()), durable=True
        )


#: Ended jobs that one call removes at most.
FORGET = 1_000


def _forget(db: apsw.Connection, now: int) -> None:
    db.execute(sql("forget_stored_jobs"), (now, FORGET))


def _rows(db: apsw.Connection, ids: Sequence[str]) -> list[JobRow]:
    return [
        JobRow(*row)._replace(is_canceled=bool(row[6]))
        for row in ask_many(db, "read_stored_jobs", 1, [*dict.fromkeys(ids)])
    ]


def _apply(db: apsw.Connection, changes: Sequence[tuple[str, Decide]], now: int) -> list[str]:
    rows = {row.id: row for row in _rows(db, [one for one, _ in changes]) if not is_gone(row, now)}
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
    _save(db, [new for _, new in made])
    _note(db, job_rows.ended(made))
    return codes


def _save(db: apsw.Connection, rows: Sequence[JobRow]) -> None:
    for row in rows:
        db.execute(sql("save_stored_job"), tuple(row))


def _note(db: apsw.Connection, counts: Mapping[str, Counter[str]]) -> None:
    kinds = ("created", "completed", "failed", "canceled")
    flat = [
        value
        for name, count in counts.items()
        for value in (name, 0, *(count[kind] for kind in kinds))
    ]
    run_many(db, "note_stored_jobs", 6, flat)
