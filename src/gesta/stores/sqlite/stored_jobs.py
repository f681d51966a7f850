"""Jobs of slow endpoints in SQLite. Implements gesta.ports.job_store.JobTable and JobRows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import apsw

from gesta.domain.stored_job import rotate
from gesta.ports.job_store import Claim, JobCounts, Reaped, ReapedEnd
from gesta.runtime.clock import Runtime
from gesta.stores import job_rows
from gesta.stores.job_rows import COUNTED, FORGET, WIDTH, Decide, JobRow, fields_of_row, row_of
from gesta.stores.job_table import RowTable
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql

#: name, turn, counts.
NAME_WIDTH = 2 + len(COUNTED)


class SqliteStoredJobs(RowTable):
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime, self.name = database, runtime, database.path

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        def create(db: apsw.Connection) -> list[str]:
            now = self._runtime.now_ms()
            db.execute(sql("forget_stored_jobs"), (now, FORGET))
            new = [row_of(row, now) for row in rows]
            written = ask_many(db, "create_stored_jobs", WIDTH, _flat(new))
            codes, counts = job_rows.created(new, (row[0] for row in written))
            _note(db, counts)
            return codes

        return await self._database.write(create, durable=True)

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        rows = await self._database.read(lambda db: _rows(db, ids))
        return job_rows.found_fields(rows, ids, self._runtime.now_ms())

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        def take(db: apsw.Connection) -> list[JobRow]:
            now, due = self._runtime.now_ms(), {}
            for name in claim.names:
                found = db.execute(sql("due_stored_jobs"), (name, now, claim.limit))
                due[name] = [row[0] for row in found]
            turns = {str(row[0]): int(row[1]) for row in db.execute(sql("stored_job_turns"))}
            chosen, served = rotate(due, turns, claim.limit, claim.urgent)
            by_id = {row.id: row for row in _rows(db, chosen)}
            taken = [job_rows.claimed(by_id[one], claim, token, now) for one in chosen]
            _save(db, taken)
            top = max(turns.values(), default=0)
            _note(db, {}, {name: top + place + 1 for place, name in enumerate(served)})
            return taken

        taken = await self._database.write(take, durable=True)
        return [(row.id, fields_of_row(row)) for row in taken]

    async def reap(self, limit: int) -> list[Reaped]:
        def reap(db: apsw.Connection) -> list[Reaped]:
            now = self._runtime.now_ms()
            db.execute(sql("forget_stored_jobs"), (now, FORGET))
            lost = [row[0] for row in db.execute(sql("lost_stored_jobs"), (now, limit))]
            ends = cast("list[ReapedEnd]", _apply(db, [(one, job_rows.reap) for one in lost], now))
            return [Reaped(one, end) for one, end in zip(lost, ends, strict=True)]

        return await self._database.write(reap, durable=True)

    async def counts(self) -> JobCounts:
        ((*counts,),) = await self._database.ask("count_stored_jobs")
        return JobCounts(*counts)

    async def change(self, changes: Sequence[tuple[str, Decide]]) -> list[str]:
        return await self._database.write(
            lambda db: _apply(db, changes, self._runtime.now_ms()), durable=True
        )

    async def rows(self, after: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        found = await self._database.ask("list_stored_jobs", after, limit)
        return [(row[0], _row(row[1:])) for row in found]

    async def names(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._database.ask("list_stored_job_names")]

    async def fill(self, rows: Sequence[tuple[Any, ...]], names: Sequence[tuple[Any, ...]]) -> None:
        def fill(db: apsw.Connection) -> None:
            run_many(db, "remove_stored_jobs", 1, [row[0] for row in rows])
            ask_many(db, "create_stored_jobs", WIDTH, _flat(rows))
            run_many(db, "set_stored_job_names", NAME_WIDTH, _flat(names))

        await self._database.write(fill, durable=True)


def _flat(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [value for row in rows for value in row]


def _row(row: Sequence[Any]) -> JobRow:
    return JobRow(*row)._replace(is_canceled=bool(row[6]))


def _rows(db: apsw.Connection, ids: Sequence[str]) -> list[JobRow]:
    return [_row(row) for row in ask_many(db, "read_stored_jobs", 1, [*dict.fromkeys(ids)])]


def _apply(db: apsw.Connection, changes: Sequence[tuple[str, Decide]], now: int) -> list[str]:
    codes, made = job_rows.applied(_rows(db, [one for one, _ in changes]), changes, now)
    _save(db, [new for _, new in made])
    _note(db, job_rows.ended(made))
    return codes


def _save(db: apsw.Connection, rows: Sequence[JobRow]) -> None:
    for row in rows:
        db.execute(sql("save_stored_job"), tuple(row))


def _note(
    db: apsw.Connection, counts: Mapping[str, Counter[str]], turns: Mapping[str, int] | None = None
) -> None:
    none: Counter[str] = Counter()
    rows = [
        (name, (turns or {}).get(name, 0), *(counts.get(name, none)[kind] for kind in COUNTED))
        for name in turns or counts
    ]
    run_many(db, "note_stored_jobs", NAME_WIDTH, _flat(rows))
