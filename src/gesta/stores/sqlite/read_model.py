"""Views, checkpoints, leases and undispatched jobs in SQLite.

Implements gesta.ports.read_model, checkpoints, leases and undispatched_jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw
from msgspec import structs

from gesta.domain.state import State
from gesta.ports.checkpoints import Move, dispatched_of
from gesta.ports.job_queue import Job
from gesta.ports.leases import LiveProcess, RoleLease, fair_part
from gesta.ports.read_model import Key, Quarantined, View, key_of
from gesta.runtime.clock import Runtime
from gesta.stores.recent_views import Saved
from gesta.stores.rows import process_row, undispatched_turns, view_of, view_row
from gesta.stores.sql_queries import SqlReadModel, storable
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql

#: Rows of a replaced table deleted per commit: other processes wait for the file no longer than for
#: any other commit.
STEP = 5_000


class SqliteReadModel(SqlReadModel):
    START = ("", 0, 0)

    def __init__(self, database: Database, runtime: Runtime) -> None:
        super().__init__(database, runtime)
        self._database = database

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        found, missing = self.recent.get(keys)
        return found | await _get(self._database, missing) if missing else found

    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        def save(db: apsw.Connection) -> Saved:
            saved = save_step(db, views, quarantined, moves)
            if saved.moved and jobs:
                _add_undispatched(db, jobs)
            return saved

        saved = await self._database.write(save, durable=False)
        self.recent.committed(views, saved)
        return saved.moved

    async def find_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.read(
            lambda db: ask_many(db, "which_undispatched", 1, list(job_ids))
        )
        return {row[0] for row in rows}

    async def remove_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.write(
            lambda db: ask_many(db, "remove_undispatched", 1, list(job_ids)), durable=False
        )
        return {row[0] for row in rows}

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        def postpone(db: apsw.Connection) -> None:
            for state, sweep_at_ms in looked_at:
                db.execute(
                    sql("postpone_sweep"),
                    (state.tenant, state.flow, state.id, state.version, sweep_at_ms),
                )

        await self._database.write(postpone, durable=False)

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        now = self._runtime.now_ms()
        return await self._database.write(
            lambda db: _share(db, role, count, owner, now, round(lease_seconds * 1000)),
            durable=False,
        )

    async def report(self, process: LiveProcess, lease_seconds: float) -> None:
        now = self._runtime.now_ms()

        def report(db: apsw.Connection) -> None:
            until_ms = now + round(lease_seconds * 1000)
            db.execute(sql("report_process"), (*process_row(process), until_ms))
            db.execute(sql("remove_dead_processes"), (now,))

        await self._database.write(report, durable=False)

    async def shadow(self) -> SqliteShadow:
        await _drop_leftovers(self._database)
        table, removals = await self._database.write(_make_shadow, durable=False)
        return SqliteShadow(self._database, table, removals, swapped=self.recent.forget)


async def _get(database: Database, keys: Sequence[Key], table: str = "requests") -> dict[Key, View]:
    flat: list[Any] = [
        value for flow, tenant, request_id in keys for value in (tenant, flow, request_id)
    ]
    rows = await database.read(lambda db: ask_many(db, "get_views", 3, flat, table))
    return {key_of(view.state): view for view in map(view_of, rows)}


def save_step(
    db: apsw.Connection,
    views: Sequence[View],
    quarantined: Sequence[Quarantined],
    moves: Sequence[Move],
) -> Saved:
    """Checkpoints first: if another process has moved one, nothing is written."""
    if not _move_all(db, moves):
        return Saved(moved=False, all_newer=False)
    written = run_many(db, "save_views", 9, _view_rows(views))
    _quarantine_step(db, quarantined)
    return Saved(moved=True, all_newer=written == len(views))


def _move_all(db: apsw.Connection, moves: Sequence[Move]) -> bool:
    if len(moves) <= 1:
        return all(_move(db, move) for move in moves)
    db.execute("savepoint moving")
    moved = all(_move(db, move) for move in moves)
    if not moved:
        db.execute("rollback to moving")
    db.execute("release moving")
    return moved


def _move(db: apsw.Connection, move: Move) -> bool:
    if move.before == 0:
        db.execute(sql("start_checkpoint"), (move.name, 0))
    db.execute(
        sql("move_checkpoint"),
        (move.name, move.before, move.after, dispatched_of(move.name), move.dispatched),
    )
    return db.changes() == 1


def _share(
    db: apsw.Connection, role: str, count: int, owner: str, now_ms: int, lease_ms: int
) -> set[int]:
    rows: list[Any] = db.execute(sql("list_role_parts"), (role,)).fetchall()
    known = {row[0]: RoleLease(*row) for row in rows}
    parts = [
        known.get(name, RoleLease(name, "", 0)) for name in (f"{role}/{n}" for n in range(count))
    ]
    alone = known.get(role)
    if lease_ms == 0 or (alone is not None and alone.owner != owner and alone.is_held(now_ms)):
        ours, until_ms = [part.name for part in parts if part.owner == owner], now_ms
    else:
        ours, until_ms = fair_part(parts, owner, now_ms), now_ms + lease_ms
    for name in ours:
        db.execute(sql("set_role"), (name, owner, until_ms))
    return {n for n, part in enumerate(parts) if part.name in ours} if until_ms > now_ms else set()


def _add_undispatched(db: apsw.Connection, jobs: Sequence[Job]) -> None:
    first = db.execute(sql("first_undispatched_turn")).get or 1
    tenants: list[Any] = list({job.tenant for job in jobs})
    last = {
        tenant: turn or 0 for tenant, turn in ask_many(db, "last_undispatched_turns", 1, tenants)
    }
    turns = undispatched_turns(jobs, first, last)
    flat: list[Any] = [
        value
        for job, turn in zip(jobs, turns, strict=True)
        for value in (*structs.astuple(job), turn)
    ]
    run_many(db, "add_undispatched", 10, flat)


def _quarantine_step(db: apsw.Connection, quarantined: Sequence[Quarantined]) -> None:
    flat: list[Any] = []
    for one in quarantined:
        flat += (one.stream, one.version, one.what, one.tenant, storable(one.error), one.at_ms)
    run_many(db, "quarantine", 6, flat)


def _view_rows(views: Sequence[View]) -> list[Any]:
    flat: list[Any] = []
    for view in views:
        flat += view_row(view)
    return flat


class SqliteShadow:
    """Views rebuilt in a second table, while all processes continue with the first.

    `removals`: how many requests had been removed when the table was made. `swapped` is called in
    the event loop once the table has replaced `requests`.
    """

    def __init__(
        self, database: Database, table: str, removals: int, *, swapped: Callable[[], None]
    ) -> None:
        self._database, self._table, self._removals = database, table, removals
        self._swapped = swapped

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        return await _get(self._database, keys, self._table)

    async def save(self, views: Sequence[View]) -> None:
        await self._database.write(
            lambda db: run_many(db, "save_views", 9, _view_rows(views), self._table), durable=False
        )

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        def swap(db: apsw.Connection) -> bool:
            reached = [db.execute(sql("get_checkpoint"), (name,)).get or 0 for name in names]
            removals = db.execute(sql("count_removals")).get
            if min(reached) < position or removals != self._removals:
                return False
            for name in names:
                db.execute(sql("note_dispatched"), (name, dispatched_of(name)))
                db.execute(sql("move_checkpoints_back"), (name, position))
            db.execute(sql("swap_views").replace("{table}", self._table)).fetchall()
            _quarantine_step(db, quarantined)
            return True

        # Durable: a job put after this must not outlive the mark that keeps it from being put
        # again.
        is_swapped = await self._database.write(swap, durable=True)
        if is_swapped:
            self._swapped()
            await _drop_leftovers(self._database)
        return is_swapped


async def _drop_leftovers(database: Database) -> None:
    """Drop tables that no process reads any more, in small steps: dropping a large table in one
    commit would block other processes.
    """
    while await database.write(_drop_some, durable=False):
        pass


def _make_shadow(db: apsw.Connection) -> tuple[str, int]:
    """The new table, and how many requests have been removed so far."""
    # The number rises with every change of the schema, so no earlier shadow has this name.
    table = f"requests_shadow_{db.execute('pragma schema_version').get}"
    db.execute(sql("make_shadow").replace("{table}", table)).fetchall()
    return table, int(db.execute(sql("count_removals")).get)


def _drop_some(db: apsw.Connection) -> bool:
    """False: nothing is left to drop."""
    table = db.execute(sql("leftover_shadows")).get
    if table is None:
        return False
    db.execute(sql("empty_shadow").replace("{table}", str(table)), (STEP,)).fetchall()
    if not db.changes():
        db.execute(sql("drop_shadow").replace("{table}", str(table)))
    return True
