"""Queries that the SQL stores share.

A statement of the same name takes the same parameters and returns the same columns in every store.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from gesta.domain.ids import id_end, id_floor, id_text
from gesta.domain.state import State
from gesta.ports.checkpoints import Checkpoint, Move
from gesta.ports.event_store import Claim, Recorded
from gesta.ports.job_queue import Backlog, HeldJob, Job, LeasedJob, QueueStanding
from gesta.ports.leases import LiveProcess, RoleLease
from gesta.ports.read_model import (
    UNINDEXED,
    WANTING,
    Cursor,
    Filter,
    Quarantined,
    View,
    ViewPosition,
    should_have_a_job,
)
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.own_events import OwnEvents
from gesta.stores.recent_views import RecentViews
from gesta.stores.rows import job_of, leased_job_of, process_of, queued_job_of, state_of, view_of

#: Later than every time.
NEVER_MS = 2**63 - 1


class SqlDatabase(Protocol):
    def ask(self, name: str, /, *values: Any) -> Awaitable[list[Any]]:
        """The rows of a named query."""

    def run(self, name: str, /, *values: Any, durable: bool = False) -> Awaitable[list[Any]]:
        """Run a named statement as one commit; its rows. On disk when it returns if `durable`."""


class SqlEventStore:
    def __init__(self, database: SqlDatabase, runtime: Runtime) -> None:
        self._sql, self._appended, self._own = database, Signal(runtime), OwnEvents(runtime)

    async def read_back(self, stream: str, before: int | None, limit: int) -> list[Recorded]:
        return [Recorded(*row) for row in await self._sql.ask("read_back", stream, before, limit)]

    async def claims(self, after: bytes, limit: int) -> list[Claim]:
        rows = await self._sql.ask("list_claims", after, limit)
        return [Claim(name, id_text(request_id), content) for name, request_id, content in rows]

    async def changed(self, timeout_seconds: float) -> None:
        await self._appended.wait(timeout_seconds)

    def forget_own(self) -> None:
        """Call after events were removed."""
        self._own.forget()


class SqlReadModel(ABC):
    #: The columns of a position in `stale_views` before the first request of a status.
    START: ClassVar[tuple[object, ...]]

    def __init__(self, database: SqlDatabase, runtime: Runtime) -> None:
        self._sql, self._runtime = database, runtime
        self.recent = RecentViews()

    @abstractmethod
    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool: ...

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move] = (),
    ) -> bool:
        return await self.save_with_jobs(views, (), quarantined, moves)

    async def move(self, moves: Sequence[Move], quarantined: Sequence[Quarantined] = ()) -> bool:
        return await self.save_with_jobs((), (), quarantined, moves)

    async def undispatched(self, limit: int, without: Sequence[str] = ()) -> list[Job]:
        left_out = msgspec.json.encode(list(without)).decode()
        return [job_of(row) for row in await self._sql.ask("first_undispatched", limit, left_out)]

    async def position(self, name: str) -> int:
        self.recent.forget()
        rows = await self._sql.ask("get_checkpoint", name)
        return rows[0][0] if rows else 0

    async def checkpoints(self) -> list[Checkpoint]:
        self.recent.forget()
        return [Checkpoint(*row) for row in await self._sql.ask("list_checkpoints")]

    async def begin(self, name: str, position: int) -> int:
        # Durable: nothing else records where a consumer began.
        ((begun,),) = await self._sql.run("begin_checkpoint", name, position, durable=True)
        return int(begun)

    async def forget(self, name: str) -> None:
        await self._sql.run("forget_checkpoint", name, durable=True)

    async def note_error(self, name: str, error: str, at_ms: int) -> None:
        await self._sql.run("fail_checkpoint", name, storable(error), at_ms)

    async def find(self, chosen: Filter) -> list[View]:
        values = (chosen.status, chosen.before_id, chosen.limit)
        if chosen.status is not None and chosen.status not in UNINDEXED:
            rows = await self._sql.ask("list_views_by_status", chosen.tenant, chosen.flow, *values)
            return [view_of(row) for row in rows]
        flows = [chosen.flow]
        if chosen.flow is None:
            flows = [row[0] for row in await self._sql.ask("flows_of_tenant", chosen.tenant)]
        found: list[View] = []
        for flow in flows:
            found += map(view_of, await self._sql.ask("list_views", chosen.tenant, flow, *values))
        found.sort(key=lambda view: view.state.id, reverse=True)
        return found[: chosen.limit]

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        rows = await self._sql.ask("count_views", tenant)
        return {(flow, status): count for flow, status, count in rows}

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        *rows, (_, _, next_ms) = await self._sql.ask("due_views", now_ms, limit)
        return [view_of(row) for row in rows], next_ms

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        """A page has requests of one status. A cursor is a status and a position in its index."""
        status, *position = after or (WANTING[0], *self.START)
        rows = await self._stale_rows(before_ms, status, *position, limit)
        found = [
            state
            for row in rows
            if row[0] is not None
            and should_have_a_job(state := state_of(row[0]), row[1], before_ms)
        ]
        if len(rows) < limit:
            following = WANTING[WANTING.index(status) + 1 :]
            return found, (following[0], *self.START) if following else None
        _, _, tenant, updated_at, *rest = rows[-1]
        # After a request that changed recently, this tenant has only such requests.
        return found, (status, tenant, updated_at if updated_at < before_ms else NEVER_MS, *rest)

    async def _stale_rows(self, *values: Any) -> list[Any]:
        return await self._sql.ask("stale_views", *values)

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        """A page has requests of one tenant and flow."""
        tenant, flow, after_id = after
        before_id = id_end() if flow in foreign else id_floor(before_ms)
        rows = await self._sql.ask("old_views", tenant, flow, after_id, before_id, limit)
        states = [state_of(row[0]) for row in rows]
        found = [state for state in states if state.is_terminal and state.updated_at < before_ms]
        if len(states) == limit:
            return found, (tenant, flow, states[-1].id)
        following = await self._sql.ask("next_tenant_flow", tenant, flow)
        return found, (*following[0], "") if following else None

    async def undecided(self) -> tuple[int, int | None]:
        ((count, since_ms),) = await self._sql.ask("count_undecided_views")
        return count, since_ms

    async def unsettled(self, failed_since_ms: int) -> dict[tuple[str, str], int]:
        rows = await self._sql.ask("count_unsettled_views", failed_since_ms)
        return {(flow, status): count for flow, status, count in rows}

    async def unknown(self, flow: str, limit: int) -> list[State]:
        return [state_of(row[0]) for row in await self._sql.ask("unknown_views", flow, limit)]

    async def quarantined(self, tenant: str | None, limit: int) -> list[Quarantined]:
        return [Quarantined(*row) for row in await self._sql.ask("list_quarantined", tenant, limit)]

    async def claim(self, name: str, owner: str, lease_seconds: float) -> bool:
        now = self._runtime.now_ms()
        until_ms = now + round(lease_seconds * 1000)
        return bool(await self._sql.run("claim_role", name, owner, until_ms, now))

    async def roles(self) -> list[RoleLease]:
        return [RoleLease(*row) for row in await self._sql.ask("list_roles")]

    async def processes(self) -> list[LiveProcess]:
        rows = await self._sql.ask("list_processes", self._runtime.now_ms())
        return [process_of(row) for row in rows]


class SqlJobQueue:
    def __init__(self, database: SqlDatabase, runtime: Runtime) -> None:
        self._sql, self._runtime = database, runtime
        self._put = Signal(runtime)

    async def leased_by(self, token: str) -> list[LeasedJob]:
        return [leased_job_of(row, token) for row in await self._sql.ask("leased_by", token)]

    async def held(self) -> list[HeldJob]:
        return [HeldJob(*row) for row in await self._sql.ask("count_held")]

    async def count(self, limit: int) -> int:
        ((count,),) = await self._sql.ask("count_jobs", limit)
        return int(count)

    async def backlog(self) -> dict[str, Backlog]:
        rows = await self._sql.ask("backlog", self._runtime.now_ms())
        return {flow: Backlog(*counts) for flow, *counts in rows}

    async def jobs(self, after_id: str, limit: int) -> list[QueueStanding]:
        now = self._runtime.now_ms()
        return [
            queued_job_of(row, now) for row in await self._sql.ask("list_jobs", after_id, limit)
        ]

    async def ready(self, timeout_seconds: float) -> None:
        await self._put.wait(timeout_seconds)

    def now_ms(self) -> int:
        return self._runtime.now_ms()


def storable(text: str) -> str:
    """A text without what PostgreSQL or UTF-8 cannot hold."""
    return text.replace("\x00", "").encode(errors="replace").decode()
