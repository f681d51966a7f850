"""Views, checkpoints, leases and undispatched jobs in PostgreSQL.

Implements gesta.ports.read_model, checkpoints, leases and undispatched_jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from gesta.domain.state import State
from gesta.ports.checkpoints import Move, dispatched_of
from gesta.ports.job_queue import Job
from gesta.ports.leases import LiveProcess
from gesta.ports.read_model import Key, Quarantined, View, key_of
from gesta.ports.transactions import Projection
from gesta.runtime.clock import Runtime
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.statements import VIEWS, Statements
from gesta.stores.recent_views import Saved
from gesta.stores.rows import process_row, undispatched_turns, view_of, view_row
from gesta.stores.sql_queries import SqlReadModel, storable

#: No line, no present, no job.
_NO_JOBS: list[list[Any]] = [[]] * 7


class PostgresqlReadModel(SqlReadModel):
    START = ("", 0, "", "")

    def __init__(self, database: Database, runtime: Runtime) -> None:
        super().__init__(database, runtime)
        self._database = database

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        found, missing = self.recent.get(keys)
        return found | await _get(self._database, missing) if missing else found

    async def project(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        jobs: Sequence[Sequence[Any]],
    ) -> bool:
        """As `save`, with jobs as the function `put` takes them."""
        (row,) = await self._database.ask("project", *_projection(views, quarantined, moves, jobs))
        return self.committed(views, Saved(row["moved"], row["written"] == len(views)))

    async def project_eager(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        jobs: Sequence[Any],
        free_slots: Sequence[Any],
    ) -> tuple[bool, bool] | None:
        """As `project`, with jobs that are leased as they are put; also whether the lease was
        renewed. None: that was not possible, and nothing was written.
        """
        (row,) = await self._database.ask(
            "project_leased", *_projection(views, quarantined, moves, (jobs,)), *free_slots
        )
        if not row["leased"]:
            return None
        saved = Saved(row["moved"], row["written"] == len(views))
        return self.committed(views, saved), bool(row["renewed"])

    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        if not jobs:
            return await self.project(views, quarantined, moves, _NO_JOBS)
        sql = self._database.sql

        async def save(connection: Connection) -> Saved:
            (row,) = await connection.fetch(
                sql("project"), *_projection(views, quarantined, moves, _NO_JOBS)
            )
            if row["moved"]:
                await _add_undispatched(connection, sql, jobs)
            return Saved(row["moved"], row["written"] == len(views))

        return self.committed(views, await self._database.transact(save, durable=False))

    def committed(self, views: Sequence[View], saved: Saved) -> bool:
        self.recent.committed(views, saved)
        return saved.moved

    async def find_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._database.ask("which_undispatched", list(job_ids))}

    async def remove_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._database.run("remove_undispatched", list(job_ids))}

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        rows = [(one.tenant, one.flow, one.id, one.version, at_ms) for one, at_ms in looked_at]
        await self._database.run("postpone_sweep", *columns_of(rows, 5))

    async def _stale_rows(self, *values: Any) -> list[Row]:
        async def ask(connection: Connection) -> list[Row]:
            await connection.execute(self._database.sql("walk_in_order"))
            return await connection.fetch(self._database.sql("stale_views"), *values)

        return await self._database.transact(ask, durable=False)

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        now, parts = self._runtime.now_ms(), [f"{role}/{n}" for n in range(count)]
        rows = await self._database.ask(
            "share_role", role, parts, owner, now + round(lease_seconds * 1000), now
        )
        return {parts.index(row[0]) for row in rows}

    async def report(self, process: LiveProcess, lease_seconds: float) -> None:
        now = self._runtime.now_ms()
        until_ms = now + round(lease_seconds * 1000)
        await self._database.run("report_process", *process_row(process), until_ms, now)

    async def shadow(self) -> PostgresqlShadow:
        database = self._database
        for (left,) in await database.ask("leftover_shadows", database.address.schema):
            text = database.sql("drop_shadow", left)
            await database.transact(partial(_with_table_lock, database, text), durable=False)
        ((number,),) = await database.ask("next_shadow")
        table = f"requests_shadow_{number}"

        async def make(connection: Connection) -> int:
            await connection.execute(database.sql("make_shadow", table))
            # The swap notices what is removed from here on.
            ((count,),) = await connection.fetch(database.sql("count_removals"))
            return int(count)

        removals = await database.transact(make, durable=False)
        return PostgresqlShadow(database, table, removals, swapped=self.recent.forget)


def columns_of(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows as one array per column."""
    return [[row[number] for row in rows] for number in range(width)]


async def _get(database: Database, keys: Sequence[Key], table: str = VIEWS) -> dict[Key, View]:
    flows, tenants, ids = columns_of(keys, 3)
    rows = await database.ask_text(database.sql("get_views", table), tenants, flows, ids)
    return {key_of(view.state): view for view in map(view_of, rows)}


def inline_values(projection: Projection) -> list[Any]:
    """The parameters of `record_inline` for views and checkpoints."""
    names, marks = list(projection.checkpoints), list(projection.checkpoints.values())
    return [names, [dispatched_of(name) for name in names], marks, _view_rows(projection.views)]


def _projection(
    views: Sequence[View],
    quarantined: Sequence[Quarantined],
    moves: Sequence[Move],
    jobs: Sequence[Sequence[Any]],
) -> list[Any]:
    """The parameters of `project`."""
    rows = [
        (one.name, one.before, one.after, dispatched_of(one.name), one.dispatched) for one in moves
    ]
    return [*columns_of(rows, 5), _view_rows(views), *_quarantined_columns(quarantined), *jobs]


def _view_rows(views: Sequence[View]) -> list[tuple[Any, ...]]:
    """In the order of the primary key, which the rows begin with."""
    rows = [view_row(view) for view in views]
    rows.sort()
    return rows


def _quarantined_columns(quarantined: Sequence[Quarantined]) -> list[list[Any]]:
    rows = [
        (one.stream, one.version, one.what, one.tenant, storable(one.error), one.at_ms)
        for one in quarantined
    ]
    return columns_of(rows, 6)


async def _add_undispatched(connection: Connection, sql: Statements, jobs: Sequence[Job]) -> None:
    rows = await connection.fetch(
        sql("last_undispatched_turns"), list({job.tenant for job in jobs})
    )
    # The row without a tenant is the first turn of all.
    last: dict[Any, int] = {tenant: turn or 0 for tenant, turn in rows}
    turns = undispatched_turns(jobs, last.pop(None) or 1, last)
    columns = columns_of([structs.astuple(job) for job in jobs], 9)
    await connection.fetch(sql("add_undispatched"), *columns, turns)


class PostgresqlShadow:
    """Views rebuilt in a second table, while all processes continue with the first.

    `removals`: how many requests had been removed when the table was made. `swapped` is called once
    the table has replaced `requests`.
    """

    def __init__(
        self, database: Database, table: str, removals: int, *, swapped: Callable[[], None]
    ) -> None:
        self._database, self._table, self._removals = database, table, removals
        self._swapped = swapped

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        return await _get(self._database, keys, self._table)

    async def save(self, views: Sequence[View]) -> None:
        text, rows = self._database.sql("save_shadow", self._table), _view_rows(views)
        await self._database.transact(
            lambda connection: connection.fetch(text, rows), durable=False
        )

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        sql, marks = self._database.sql, [dispatched_of(name) for name in names]

        async def swap(connection: Connection) -> bool:
            reached = await connection.fetch(sql("lock_checkpoints"), list(names))
            ((removals,),) = await connection.fetch(sql("lock_removals"))
            # A checkpoint that does not exist is at 0.
            lowest = min(row[0] for row in reached) if len(reached) == len(names) else 0
            if lowest < position or removals != self._removals:
                return False
            await connection.fetch(sql("note_dispatched"), list(names), marks)
            await connection.fetch(sql("move_checkpoints_back"), list(names), position)
            await _with_table_lock(self._database, sql("swap_views", self._table), connection)
            await connection.fetch(sql("quarantine"), *_quarantined_columns(quarantined))
            return True

        # Durable: a job put after this must not outlive the mark that keeps it from being put
        # again.
        is_swapped = await self._database.transact(swap, durable=True)
        if is_swapped:
            self._swapped()
        return is_swapped


async def _with_table_lock(database: Database, text: str, connection: Connection) -> None:
    """Run a statement that locks a whole table; it does not wait long for the lock."""
    await connection.execute(database.sql("limit_lock_wait"))
    await connection.execute(text)
