"""Views in SQLite. Implements gesta.ports.read_model; the docstrings there are the promise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import apsw
import msgspec

from gesta.domain.ids import id_end, id_floor
from gesta.domain.state import State
from gesta.ports.checkpoints import Checkpoint, Move, dispatched_of
from gesta.ports.job_queue import Job
from gesta.ports.leases import LiveProcess, RoleLease, fair_part
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
from gesta.runtime.clock import Runtime
from gesta.stores.recent_views import RecentViews, Saved
from gesta.stores.rows import process_of, process_row
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql

#: Later than every moment.
NEVER_MS = 2**63 - 1
#: Rows of a replaced table deleted per commit: other processes wait for the file no longer than for
#: any other commit.
STEP = 5_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(State).decode


class SqliteReadModel:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime = database, runtime
        self.recent = RecentViews()

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        found, missing = self.recent.get(keys)
        if missing:
            flat: list[Any] = [
                value
                for flow, tenant, request_id in missing
                for value in (tenant, flow, request_id)
            ]
            rows = await self._database.read(lambda db: ask_many(db, "get_views", 3, flat))
            for view in map(_view_of, rows):
                found[key_of(view.state)] = view
        return found

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move] = (),
    ) -> bool:
        return await self.save_with_jobs(views, (), quarantined, moves)

    async def move(self, moves: Sequence[Move], quarantined: Sequence[Quarantined] = ()) -> bool:
        return await self.save_with_jobs((), (), quarantined, moves)

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

    async def undispatched(self, limit: int) -> list[Job]:
        rows: list[Any] = await self._database.read(
            lambda db: db.execute(sql("first_undispatched"), (limit,)).fetchall()
        )
        return [Job(*[*values, bool(executed)]) for *values, executed in rows]

    async def find_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.read(
            lambda db: ask_many(db, "which_undispatched", 1, list(job_ids))
        )
        return {str(row[0]) for row in rows}

    async def remove_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.write(
            lambda db: ask_many(db, "remove_undispatched", 1, list(job_ids)), durable=False
        )
        return {str(row[0]) for row in rows}

    async def position(self, name: str) -> int:
        self.recent.forget()
        row = await self._database.read(
            lambda db: db.execute(sql("get_checkpoint"), (name,)).fetchone()
        )
        return 0 if row is None else int(row[0])

    async def checkpoints(self) -> list[Checkpoint]:
        self.recent.forget()
        rows = await self._database.read(lambda db: db.execute(sql("list_checkpoints")).fetchall())
        return [Checkpoint(*row) for row in rows]  # type: ignore[arg-type]

    async def begin(self, name: str, position: int) -> int:
        def begin(db: apsw.Connection) -> int:
            db.execute(sql("start_checkpoint"), (name, position))
            return int(db.execute(sql("get_checkpoint"), (name,)).get)

        # Durable: where somebody began to listen cannot be found out again.
        return await self._database.write(begin, durable=True)

    async def forget(self, name: str) -> None:
        await self._database.write(
            lambda db: db.execute(sql("forget_checkpoint"), (name,)).fetchall(), durable=True
        )

    async def note_error(self, name: str, error: str, at_ms: int) -> None:
        await self._database.write(
            lambda db: db.execute(sql("fail_checkpoint"), (name, error, at_ms)).fetchall(),
            durable=False,
        )

    async def find(self, chosen: Filter) -> list[View]:
        return await self._database.read(lambda db: _list(db, chosen))

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        rows: list[Any] = await self._database.read(
            lambda db: db.execute(sql("count_views"), (tenant,)).fetchall()
        )
        return {(str(flow), str(status)): int(count) for flow, status, count in rows}

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        def ask(db: apsw.Connection) -> tuple[list[View], int | None]:
            rows = db.execute(sql("due_views"), (now_ms, limit)).fetchall()
            return [_view_of(row) for row in rows], db.execute(sql("next_sweep"), (now_ms,)).get

        return await self._database.read(ask)

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        def postpone(db: apsw.Connection) -> None:
            for state, sweep_at_ms in looked_at:
                db.execute(
                    sql("postpone_sweep"),
                    (state.tenant, state.flow, state.id, state.version, sweep_at_ms),
                )

        await self._database.write(postpone, durable=False)

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        return await self._database.read(lambda db: _stale(db, before_ms, after, limit))

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        return await self._database.read(lambda db: _old(db, before_ms, after, limit, foreign))

    async def undecided(self) -> tuple[int, int | None]:
        row: Any = await self._database.read(
            lambda db: db.execute(sql("count_undecided_views")).fetchone()
        )
        return row[0], row[1]

    async def unsettled(self, failed_since_ms: int) -> dict[tuple[str, str], int]:
        rows: Any = await self._database.read(
            lambda db: db.execute(sql("count_unsettled_views"), (failed_since_ms,)).fetchall()
        )
        return {(flow, status): count for flow, status, count in rows}

    async def quarantined(self, tenant: str | None, limit: int) -> list[Quarantined]:
        rows = await self._database.read(
            lambda db: db.execute(sql("list_quarantined"), (tenant, limit)).fetchall()
        )
        return [Quarantined(*row) for row in rows]  # type: ignore[arg-type]

    async def claim(self, name: str, owner: str, lease_seconds: float) -> bool:
        now = self._runtime.now_ms()
        values = (name, owner, now + round(lease_seconds * 1000), now)

        def claim(db: apsw.Connection) -> bool:
            db.execute(sql("claim_role"), values)
            return db.changes() == 1

        return await self._database.write(claim, durable=False)

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        now = self._runtime.now_ms()
        return await self._database.write(
            lambda db: _share(db, role, count, owner, now, round(lease_seconds * 1000)),
            durable=False,
        )

    async def roles(self) -> list[RoleLease]:
        rows = await self._database.read(lambda db: db.execute(sql("list_roles")).fetchall())
        return [RoleLease(*row) for row in rows]  # type: ignore[arg-type]

    async def report(self, process: LiveProcess, lease_seconds: float) -> None:
        now = self._runtime.now_ms()
        row = (*process_row(process), now + round(lease_seconds * 1000))

        def report(db: apsw.Connection) -> None:
            db.execute(sql("report_process"), row)
            db.execute(sql("remove_dead_processes"), (now,))

        await self._database.write(report, durable=False)

    async def processes(self) -> list[LiveProcess]:
        now = self._runtime.now_ms()
        rows: list[Any] = await self._database.read(
            lambda db: db.execute(sql("list_processes"), (now,)).fetchall()
        )
        return [process_of(row) for row in rows]

    async def shadow(self) -> SqliteShadow:
        return await SqliteShadow.make(self._database, self.recent.forget)


def save_step(
    db: apsw.Connection,
    views: Sequence[View],
    quarantined: Sequence[Quarantined],
    moves: Sequence[Move],
) -> Saved:
    """Checkpoints first: if one is not ours to move, nothing else is written."""
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


def _stale(
    db: apsw.Connection, before_ms: int, after: Cursor, limit: int
) -> tuple[list[State], Cursor | None]:
    """At most one status at a time: the next call hops to the next.

    A cursor has a status and a place in the index of its requests. A rebuild or vacuum in between
    numbers rows anew: then some that changed
    in the very millisecond of the cursor may be left to the next walk.
    """
    status, *place = after or (WANTING[0], "", 0, 0)
    rows: list[Any] = db.execute(sql("stale_views"), (before_ms, status, *place, limit)).fetchall()
    page = [(_state_of(row), row[1]) for row in rows if row[0] is not None]
    found = [
        state for state, sweep_at_ms in page if should_have_a_job(state, sweep_at_ms, before_ms)
    ]
    if len(rows) < limit:
        following = WANTING[WANTING.index(status) + 1 :]
        return found, (following[0], "", 0, 0) if following else None
    _, _, tenant, updated_at, rowid = rows[-1]
    # Behind one that changed lately come only such, as far as this tenant goes.
    return found, (status, tenant, updated_at if updated_at < before_ms else NEVER_MS, rowid)


def _old(
    db: apsw.Connection, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str]
) -> tuple[list[State], ViewPosition | None]:
    """At most one tenant and flow at a time: the next call hops to the next."""
    tenant, flow, after_id = after
    before_id = id_end() if flow in foreign else id_floor(before_ms)
    rows = db.execute(sql("old_views"), (tenant, flow, after_id, before_id, limit)).fetchall()
    states = [_state_of(row) for row in rows]
    found = [state for state in states if state.is_terminal and state.updated_at < before_ms]
    if len(states) == limit:
        return found, (tenant, flow, states[-1].id)
    external_queue = db.execute(sql("next_tenant_flow"), (tenant, flow)).fetchone()
    return found, None if external_queue is None else (
        str(external_queue[0]),
        str(external_queue[1]),
        "",
    )


def _list(db: apsw.Connection, chosen: Filter) -> list[View]:
    values = (chosen.tenant, chosen.flow, chosen.status, chosen.before_id, chosen.limit)
    if chosen.status is not None and chosen.status not in UNINDEXED:
        return [_view_of(row) for row in db.execute(sql("list_views_by_status"), values).fetchall()]
    flows = (
        [chosen.flow]
        if chosen.flow is not None
        else [row[0] for row in db.execute(sql("flows_of_tenant"), (chosen.tenant,)).fetchall()]
    )
    found: list[View] = []
    for flow in flows:
        rows = db.execute(
            sql("list_views"), (chosen.tenant, flow, chosen.status, chosen.before_id, chosen.limit)
        ).fetchall()
        found += map(_view_of, rows)
    found.sort(key=lambda view: view.state.id, reverse=True)
    return found[: chosen.limit]


def _add_undispatched(db: apsw.Connection, jobs: Sequence[Job]) -> None:
    """The jobs of a tenant get rising turns, starting where the others are: the tenants come in
    turn, and no newcomer overtakes for long.
    """
    first = cast(int, db.execute(sql("first_undispatched_turn")).get or 1)
    tenants: list[Any] = list({job.tenant for job in jobs})
    last = {
        str(tenant): cast(int, turn or 0)
        for tenant, turn in ask_many(db, "last_undispatched_turns", 1, tenants)
    }
    flat: list[Any] = []
    for job in jobs:
        turn = last[job.tenant] = max(last.get(job.tenant, 0) + 1, first)
        flat += (
            job.id,
            job.tenant,
            job.flow,
            job.request_id,
            job.dispatch_version,
            job.kind,
            job.due_ms,
            job.priority,
            int(job.possibly_executed),
            turn,
        )
    run_many(db, "add_undispatched", 10, flat)


def _quarantine_step(db: apsw.Connection, quarantined: Sequence[Quarantined]) -> None:
    flat: list[Any] = []
    for one in quarantined:
        flat += (one.stream, one.version, one.what, one.tenant, one.error, one.at_ms)
    run_many(db, "quarantine", 6, flat)


def _view_rows(views: Sequence[View]) -> list[Any]:
    flat: list[Any] = []
    for view in views:
        state = view.state
        flat += (
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
    return flat


def _view_of(row: tuple[Any, ...]) -> View:
    return View(_decode(row[0]), row[1])


def _state_of(row: tuple[Any, ...]) -> State:
    return _decode(row[0])


class SqliteShadow:
    """Views rebuilt in a second table, while all processes continue with the first. `swapped` is
    called in the event loop once it has taken the place of `requests`.
    """

    def __init__(
        self, database: Database, made: tuple[str, int], swapped: Callable[[], None]
    ) -> None:
        self._database, self._swapped = database, swapped
        self._table, self._removals = made

    @classmethod
    async def make(cls, database: Database, swapped: Callable[[], None]) -> SqliteShadow:
        await _take_away(database)
        return cls(database, await database.write(_make, durable=False), swapped)

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        flat: list[Any] = [
            value for flow, tenant, request_id in keys for value in (tenant, flow, request_id)
        ]
        rows = await self._database.read(lambda db: ask_many(db, "get_views", 3, flat, self._table))
        return {key_of(view.state): view for view in map(_view_of, rows)}

    async def save(self, views: Sequence[View]) -> None:
        await self._database.write(
            lambda db: run_many(db, "save_views", 9, _view_rows(views), self._table), durable=False
        )

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        # Durable: a job put after this must not outlive the mark that keeps it from being put
        # again.
        is_done = await self._database.write(
            lambda db: _swap(db, self._table, self._removals, names, position, quarantined),
            durable=True,
        )
        if is_done:
            self._swapped()
            await _take_away(self._database)
        return is_done


async def _take_away(database: Database) -> None:
    """Delete tables that no process reads any more, in small steps: dropping a large table in one
    commit would hold the file for long.
    """
    while await database.write(_take_step, durable=False):
        pass


def _make(db: apsw.Connection) -> tuple[str, int]:
    """The new table, and how many requests had been removed when it was made."""
    # The number rises with every change of the schema, so nothing of this name is left from an
    # earlier rebuild.
    table = f"requests_shadow_{db.execute('pragma schema_version').get}"
    db.execute(sql("make_shadow").replace("{table}", table)).fetchall()
    return table, int(db.execute(sql("count_removals")).get)


def _take_step(db: apsw.Connection) -> bool:
    """Whether there may be more to take away."""
    table = db.execute(sql("leftover_shadows")).get
    if table is None:
        return False
    db.execute(sql("empty_shadow").replace("{table}", str(table)), (STEP,)).fetchall()
    if not db.changes():
        db.execute(sql("drop_shadow").replace("{table}", str(table)))
    return True


def _swap(
    db: apsw.Connection,
    table: str,
    removals: int,
    names: Sequence[str],
    position: int,
    quarantined: Sequence[Quarantined],
) -> bool:
    stood = [db.execute(sql("get_checkpoint"), (name,)).get or 0 for name in names]
    if min(stood) < position or db.execute(sql("count_removals")).get != removals:
        return False
    for name in names:
        db.execute(sql("note_dispatched"), (name, dispatched_of(name)))
        db.execute(sql("move_checkpoints_back"), (name, position))
    db.execute(sql("swap_views").replace("{table}", table)).fetchall()
    _quarantine_step(db, quarantined)
    return True
