"""The queue in SQLite. Implements gesta.job_queue; the docstrings there are the promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, assert_never

import apsw
import msgspec

from gesta.adapters.sqlite.database import Database
from gesta.adapters.sqlite.statements import ask_many, run_many, sql
from gesta.domain.operation import JobKind
from gesta.job_queue import Ack, Backlog, Drop, Job, Release, Settled, Settlement, Standing, Taken
from gesta.runtime import Runtime, Signal

#: A step of priority counts like this much waiting, so that the urgent go first and nobody waits for ever.
PRIORITY_MS = 10_000

_Row = tuple[str, str, str, str, int, JobKind, int, int, int, int]
_decode_rows = msgspec.json.Decoder(list[_Row]).decode


class SqliteJobQueue:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime = database, runtime
        self._put = Signal(runtime)
        database.on_commit(self._put.set)

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        now = self._runtime.now_ms()
        created = await self._database.write(lambda db: [put_step(db, [job], now) == 1 for job in jobs], durable=True)
        self.wake()
        return created

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[Taken], int | None]:
        def take(db: apsw.Connection) -> tuple[list[str], int | None]:
            # The clock is read when the lock is held: the wait for it must not eat into the lease.
            return take_step(db, token, flows, self._runtime.now_ms(), round(lease_seconds * 1000))

        texts, next_due = await self._database.write(take, durable=durable)
        return [_taken(row, token) for text in texts for row in _decode_rows(text)], next_due

    async def extend(self, token: str, lease_seconds: float) -> bool:
        def extend(db: apsw.Connection) -> bool:
            now = self._runtime.now_ms()
            db.execute(sql("extend_lease"), (token, now + round(lease_seconds * 1000), now))
            return db.changes() == 1

        return await self._database.write(extend, durable=False)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        now = self._runtime.now_ms()
        settled = await self._database.write(lambda db: [settle_step(db, one, now) for one in settlements], durable=False)
        self.wake()
        return settled

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.read(lambda db: ask_many(db, "live_jobs", 1, list(job_ids)))
        return {str(row[0]) for row in rows}

    async def backlog(self) -> dict[str, Backlog]:
        now = self._runtime.now_ms()
        rows = await self._database.read(lambda db: db.execute(sql("backlog"), (now,)).fetchall())
        return {str(flow): Backlog(*counts) for flow, *counts in rows}  # type: ignore[arg-type]

    async def jobs(self, after_id: str, limit: int) -> list[Standing]:
        now = self._runtime.now_ms()
        rows = await self._database.read(lambda db: db.execute(sql("list_jobs"), (after_id, limit)).fetchall())
        return [_standing(row, now) for row in rows]

    async def ready(self, timeout_seconds: float) -> None:
        await self._put.wait(timeout_seconds)

    def now_ms(self) -> int:
        return self._runtime.now_ms()

    def wake(self) -> None:
        """Called in the event loop once a commit stands that may have made a job ready."""
        self._put.set()


def score(available_ms: int, priority: int) -> int:
    """The static place of a job in its flow's order; lower goes first."""
    return available_ms + (priority - 5) * PRIORITY_MS


def put_step(db: apsw.Connection, jobs: Sequence[Job], now_ms: int) -> int:
    """How many of the jobs were created."""
    flat: list[Any] = []
    for job in jobs:
        due = max(job.due_ms, now_ms)
        flat += (
            job.id, job.tenant, job.flow, job.request_id, job.dispatch_version, job.kind, 1 if job.due_ms <= now_ms else 0, due, job.priority,
            score(due, job.priority), int(job.suspect),
        )  # fmt: skip
    return run_many(db, "put_jobs", 11, flat)


def take_step(db: apsw.Connection, token: str, flows: dict[str, int], now_ms: int, lease_ms: int) -> tuple[list[str], int | None]:
    """The taken jobs as JSON texts, one per flow, and when the next job may be had."""
    if db.execute(sql("dead_leases"), (now_ms,)).get is not None:
        db.execute(sql("reclaim_jobs"), (now_ms,))
        db.execute(sql("forget_leases"), (now_ms,))
    db.execute(sql("wake_jobs"), (now_ms,))
    texts = []
    for flow, free in flows.items():
        text = db.execute(sql("select_ready"), (flow, free)).get
        if text != "[]":
            db.execute(sql("take_jobs"), (flow, free, token))
            texts.append(text)
    if texts:
        db.execute(sql("hold_lease"), (token, now_ms + lease_ms))
    moments = [db.execute(sql("next_due")).get, db.execute(sql("next_lease_end"), (token,)).get]
    return texts, min((moment for moment in moments if moment is not None), default=None)


def settle_step(db: apsw.Connection, settlement: Settlement, now_ms: int) -> Settled:
    """One settlement by itself, with what came of it."""
    match settlement:
        case Ack(job_id, token):
            changed = run_many(db, "ack_jobs", 2, [job_id, token])
        case Release(job_id, token, due_ms):
            changed = _release(db, job_id, token, due_ms, now_ms)
        case Drop(job_id):
            db.execute(sql("drop_job"), (job_id,))
            changed = db.changes()
        case _:
            assert_never(settlement)
    if changed:
        return "done"
    if db.execute(sql("job_state"), (settlement.job_id,)).get is None:
        return "absent"
    return "active" if isinstance(settlement, Drop) else "lost"


def _release(db: apsw.Connection, job_id: str, token: str, due_ms: int, now_ms: int) -> int:
    priority = db.execute(sql("job_priority"), (job_id,)).get or 5
    due = max(due_ms, now_ms)
    db.execute(sql("release_jobs"), (job_id, token, 1 if due_ms <= now_ms else 0, due, score(due, priority)))
    return db.changes()


def _standing(row: tuple[Any, ...], now_ms: int) -> Standing:
    job_id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, state, takes = row
    # A waiting job becomes ready at the next take, which may be long in coming.
    named: Literal["waiting", "ready", "leased"] = "leased" if state == 2 else "ready" if due_ms <= now_ms else "waiting"
    return Standing(Job(job_id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, bool(suspect)), named, takes)


def _taken(row: _Row, token: str) -> Taken:
    job_id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes = row
    job = Job(job_id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, bool(suspect))
    return Taken(job, token, takes, due_ms)
