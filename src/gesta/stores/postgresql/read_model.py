"""Views in PostgreSQL. Implements gesta.ports.read_model; the docstrings there are the promise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from gesta.domain.ids import id_end, id_floor
from gesta.domain.state import State
from gesta.ports.checkpoints import Checkpoint, Move, dispatched_of
from gesta.ports.job_queue import Job
from gesta.ports.leases import LiveProcess, RoleLease
from gesta.ports.read_model import (
    UNINDEXED,
    WANTING,
    Cursor,
    Filter,
    Key,
    Quarantined,
    View,
    ViewPosition,
    key_of,
    should_have_a_job,
)
from gesta.ports.transactions import Projection
from gesta.runtime.clock import Runtime
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.statements import Statements
from gesta.stores.recent_views import RecentViews, Saved
from gesta.stores.rows import process_of, process_row

#: No line, no present, no job.
_NO_JOBS: list[list[Any]] = [[]] * 7
#: Later than every moment.
NEVER_MS = 2**63 - 1

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(State).decode


class PostgresqlReadModel:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime = database, runtime
        self._recent = RecentViews()

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        found, missing = self._recent.get(keys)
        if missing:
            columns = (
                [key[1] for key in missing],
                [key[0] for key in missing],
                [key[2] for key in missing],
            )
            for view in map(_view_of, await self._database.ask("get_views", *columns)):
                found[key_of(view.state)] = view
        return found

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move] = (),
    ) -> bool:
        return await self.project(views, quarantined, moves, _NO_JOBS)

    async def move(self, moves: Sequence[Move], quarantined: Sequence[Quarantined] = ()) -> bool:
        return await self.project((), quarantined, moves, _NO_JOBS)

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
        """As `project`, with jobs that are taken as they are put, and whether the lease was
        renewed; None where that cannot be: nothing was written.
        """
        (row,) = await self._database.ask(
            "project_leased", *_projection(views, quarantined, moves, (jobs,)), *free_slots
        )
        if not row["leased"]:
            return None
        return self.committed(views, Saved(row["moved"], row["written"] == len(views))), bool(
            row["renewed"]
        )

    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        sql = self._database.sql

        async def save(connection: Connection) -> Saved:
            (row,) = await connection.fetch(
                sql("project"), *_projection(views, quarantined, moves, _NO_JOBS)
            )
            if row["moved"] and jobs:
                await _add_undispatched(connection, sql, jobs)
            return Saved(row["moved"], row["written"] == len(views))

        return self.committed(views, await self._database.transact(save, durable=False))

    def committed(self, views: Sequence[View], saved: Saved) -> bool:
        self._recent.committed(views, saved)
        return saved.moved

    async def undispatched(self, limit: int) -> list[Job]:
        return [Job(*row) for row in await self._database.ask("first_undispatched", limit)]

    async def find_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._database.ask("which_undispatched", list(job_ids))}

    async def remove_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        text, ids = self._database.sql("remove_undispatched"), list(job_ids)
        rows = await self._database.transact(
            lambda connection: connection.fetch(text, ids), durable=False
        )
        return {row[0] for row in rows}

    async def position(self, name: str) -> int:
        self._recent.forget()
        rows = await self._database.ask("get_checkpoint", name)
        return int(rows[0][0]) if rows else 0

    async def checkpoints(self) -> list[Checkpoint]:
        self._recent.forget()
        return [Checkpoint(*row) for row in await self._database.ask("list_checkpoints")]

    async def begin(self, name: str, position: int) -> int:
        async def begin(connection: Connection) -> int:
            await connection.fetch(self._database.sql("start_checkpoint"), name, position)
            ((stands,),) = await connection.fetch(self._database.sql("get_checkpoint"), name)
            return int(stands)

        # Durable: where somebody began to listen cannot be found out again.
        return await self._database.transact(begin, durable=True)

    async def forget(self, name: str) -> None:
        text = self._database.sql("forget_checkpoint")
        await self._database.transact(lambda connection: connection.fetch(text, name), durable=True)

    async def note_error(self, name: str, error: str, at_ms: int) -> None:
        await self._write("fail_checkpoint", name, _text_of(error), at_ms)

    async def find(self, chosen: Filter) -> list[View]:
        values = (chosen.tenant, chosen.flow, chosen.status, chosen.before_id, chosen.limit)
        if chosen.status is not None and chosen.status not in UNINDEXED:
            return [
                _view_of(row) for row in await self._database.ask("list_views_by_status", *values)
            ]
        flows = [chosen.flow]
        if chosen.flow is None:
            flows = [row[0] for row in await self._database.ask("flows_of_tenant", chosen.tenant)]
        found: list[View] = []
        for flow in flows:
            found += map(
                _view_of, await self._database.ask("list_views", chosen.tenant, flow, *values[2:])
            )
        found.sort(key=lambda view: view.state.id, reverse=True)
        return found[: chosen.limit]

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        return {
            (flow, status): count
            for flow, status, count in await self._database.ask("count_views", tenant)
        }

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        *rows, last = await self._database.ask("due_views", now_ms, limit)
        return [_view_of(row) for row in rows], last["sweep_at"]

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        states = [state for state, _ in looked_at]
        tenants, flows = [state.tenant for state in states], [state.flow for state in states]
        ids, versions = [state.id for state in states], [state.version for state in states]
        await self._write(
            "postpone_sweep",
            tenants,
            flows,
            ids,
            versions,
            [sweep_at_ms for _, sweep_at_ms in looked_at],
        )

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        """At most one status at a time: the next call hops to the next.

        A cursor has a status and a place in the order of its requests.
        """
        sql = self._database.sql
        status, *place = after or (WANTING[0], "", 0, "", "")

        async def ask(connection: Connection) -> list[Row]:
            await connection.execute(sql("walk_in_order"))
            return await connection.fetch(sql("stale_views"), before_ms, status, *place, limit)

        rows = await self._database.transact(ask, durable=False)
        page = [(_state_of(row), row["sweep_at"]) for row in rows if row["state"] is not None]
        found = [
            state for state, sweep_at_ms in page if should_have_a_job(state, sweep_at_ms, before_ms)
        ]
        if len(rows) < limit:
            following = WANTING[WANTING.index(status) + 1 :]
            return found, (following[0], "", 0, "", "") if following else None
        _, _, tenant, updated_at, flow, request_id = rows[-1]
        # Behind one that changed lately come only such, as far as this tenant goes.
        return found, (
            status,
            tenant,
            updated_at if updated_at < before_ms else NEVER_MS,
            flow,
            request_id,
        )

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        """At most one tenant and flow at a time: the next call hops to the next."""
        tenant, flow, after_id = after
        before_id = id_end() if flow in foreign else id_floor(before_ms)
        rows = await self._database.ask("old_views", tenant, flow, after_id, before_id, limit)
        states = [_state_of(row) for row in rows]
        found = [state for state in states if state.is_terminal and state.updated_at < before_ms]
        if len(states) == limit:
            return found, (tenant, flow, states[-1].id)
        external_queue = await self._database.ask("next_tenant_flow", tenant, flow)
        return found, (external_queue[0][0], external_queue[0][1], "") if external_queue else None

    async def undecided(self) -> tuple[int, int | None]:
        ((count, since),) = await self._database.ask("count_undecided_views")
        return count, since

    async def unsettled(self, failed_since_ms: int) -> dict[tuple[str, str], int]:
        rows = await self._database.ask("count_unsettled_views", failed_since_ms)
        return {(flow, status): count for flow, status, count in rows}

    async def quarantined(self, tenant: str | None, limit: int) -> list[Quarantined]:
        return [
            Quarantined(*row) for row in await self._database.ask("list_quarantined", tenant, limit)
        ]

    async def claim(self, name: str, owner: str, lease_seconds: float) -> bool:
        now = self._runtime.now_ms()
        return bool(
            await self._write("claim_role", name, owner, now + round(lease_seconds * 1000), now)
        )

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        now, parts = self._runtime.now_ms(), [f"{role}/{n}" for n in range(count)]
        rows = await self._database.ask(
            "share_role", role, parts, owner, now + round(lease_seconds * 1000), now
        )
        return {parts.index(row[0]) for row in rows}

    async def roles(self) -> list[RoleLease]:
        return [RoleLease(*row) for row in await self._database.ask("list_roles")]

    async def report(self, process: LiveProcess, lease_seconds: float) -> None:
        now = self._runtime.now_ms()
        until_ms = now + round(lease_seconds * 1000)
        await self._write("report_process", *process_row(process), until_ms, now)

    async def processes(self) -> list[LiveProcess]:
        rows = await self._database.ask("list_processes", self._runtime.now_ms())
        return [process_of(row) for row in rows]

    async def shadow(self) -> PostgresqlShadow:
        return await PostgresqlShadow.make(self._database, self._recent.forget)

    async def _write(self, name: str, *values: object) -> list[Any]:
        """One statement on rows that can be made again."""
        text = self._database.sql(name)
        return await self._database.transact(
            lambda connection: connection.fetch(text, *values), durable=False
        )


def inline_values(projection: Projection) -> list[Any]:
    """What the function `record_at_once` takes, but for jobs."""
    names = list(projection.checkpoints)
    rows = _view_values(projection.views)
    rows.sort()
    return [
        names,
        [dispatched_of(name) for name in names],
        list(projection.checkpoints.values()),
        rows,
    ]


def _projection(
    views: Sequence[View],
    quarantined: Sequence[Quarantined],
    moves: Sequence[Move],
    jobs: Sequence[Sequence[Any]],
) -> list[Any]:
    """What the function `project_in_order` takes."""
    names = [move.name for move in moves]
    places = [move.before for move in moves], [move.after for move in moves]
    marks = [dispatched_of(name) for name in names], [move.dispatched for move in moves]
    rows = _view_values(views)
    # By key, which is what they begin with.
    rows.sort()
    return [names, *places, *marks, rows, *_quarantined_columns(quarantined), *jobs]


async def _add_undispatched(connection: Connection, sql: Statements, jobs: Sequence[Job]) -> None:
    """The jobs of a tenant get rising turns, starting where the others are: the tenants come in
    turn, and no newcomer overtakes for long.
    """
    rows = await connection.fetch(
        sql("last_undispatched_turns"), list({job.tenant for job in jobs})
    )
    last: dict[str, int] = {tenant: turn or 0 for tenant, turn in rows if tenant is not None}
    first = next(turn for tenant, turn in rows if tenant is None) or 1
    turns = []
    for job in jobs:
        last[job.tenant] = max(last.get(job.tenant, 0) + 1, first)
        turns.append(last[job.tenant])
    await connection.fetch(
        sql("add_undispatched"),
        [job.id for job in jobs],
        [job.tenant for job in jobs],
        [job.flow for job in jobs],
        [job.request_id for job in jobs],
        [job.dispatch_version for job in jobs],
        [job.kind for job in jobs],
        [job.due_ms for job in jobs],
        [job.priority for job in jobs],
        [job.possibly_executed for job in jobs],
        turns,
    )


def _view_values(views: Sequence[View]) -> list[tuple[Any, ...]]:
    """Views as `view_row`s."""
    rows = []
    for view in views:
        state = view.state
        rows.append(
            (
                state.tenant,
                state.flow,
                state.id,
                state.status,
                state.version,
                state.updated_at,
                state.sweep_at,
                _encode(state),
                view.payload,
            )
        )
    return rows


def _quarantined_columns(quarantined: Sequence[Quarantined]) -> list[list[Any]]:
    return [
        [one.stream for one in quarantined],
        [one.version for one in quarantined],
        [one.what for one in quarantined],
        [one.tenant for one in quarantined],
        [_text_of(one.error) for one in quarantined],
        [one.at_ms for one in quarantined],
    ]


def _text_of(error: str) -> str:
    """The text of an error as PostgreSQL accepts it."""
    return error.replace("\x00", "").encode(errors="replace").decode()


def _view_of(row: Row) -> View:
    return View(_decode(row[0]), row[1])


def _state_of(row: Row) -> State:
    return _decode(row[0])


class PostgresqlShadow:
    """Views rebuilt in a second table, while all processes continue with the first. `swapped` is
    called once it has taken the place of `requests`.
    """

    def __init__(
        self, database: Database, *, table: str, removals: int, swapped: Callable[[], None]
    ) -> None:
        self._database, self._table, self._removals, self._swapped = (
            database,
            table,
            removals,
            swapped,
        )

    @classmethod
    async def make(cls, database: Database, swapped: Callable[[], None]) -> PostgresqlShadow:
        for (left,) in await database.ask("leftover_shadows", database.address.schema):
            text = database.sql("drop_shadow", left)
            await database.transact(partial(_alone, database, text), durable=False)
        ((number,),) = await database.ask("next_shadow")
        table = f"requests_shadow_{number}"

        async def make(connection: Connection) -> int:
            await connection.execute(database.sql("make_shadow", table))
            # What is removed from now on is noticed by the swap.
            ((count,),) = await connection.fetch(database.sql("count_removals"))
            return int(count)

        removals = await database.transact(make, durable=False)
        return cls(database, table=table, removals=removals, swapped=swapped)

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        columns = (
            [tenant for _, tenant, _ in keys],
            [flow for flow, _, _ in keys],
            [request_id for _, _, request_id in keys],
        )
        rows = await self._database.ask_text(self._database.sql("get_views", self._table), *columns)
        return {key_of(view.state): view for view in map(_view_of, rows)}

    async def save(self, views: Sequence[View]) -> None:
        text, rows = self._database.sql("save_shadow", self._table), _view_values(views)
        await self._database.transact(
            lambda connection: connection.fetch(text, rows), durable=False
        )

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        sql, marks = self._database.sql, [dispatched_of(name) for name in names]

        async def swap(connection: Connection) -> bool:
            stood = [row[0] for row in await connection.fetch(sql("lock_checkpoints"), list(names))]
            ((removals,),) = await connection.fetch(sql("lock_removals"))
            # One that is not there stands at 0.
            lowest = min(stood) if len(stood) == len(names) else 0
            if lowest < position or removals != self._removals:
                return False
            await connection.fetch(sql("note_dispatched"), list(names), marks)
            await connection.fetch(sql("move_checkpoints_back"), list(names), position)
            await _alone(self._database, sql("swap_views", self._table), connection)
            await connection.fetch(sql("quarantine"), *_quarantined_columns(quarantined))
            return True

        # Durable: a job put after this must not outlive the mark that keeps it from being put
        # again.
        is_done = await self._database.transact(swap, durable=True)
        if is_done:
            self._swapped()
        return is_done


async def _alone(database: Database, text: str, connection: Connection) -> None:
    """Run what needs a table for itself."""
    await connection.execute(database.sql("limit_lock_wait"))
    await connection.execute(text)
