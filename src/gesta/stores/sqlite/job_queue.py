"""The queue in SQLite. Implements gesta.ports.job_queue."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, assert_never, cast

import apsw
import msgspec

from gesta.domain.fair_queue import QueueLine, give_turns, score_of, turn_of
from gesta.ports.eager_dispatch import FreeSlots, chosen_of
from gesta.ports.job_queue import Ack, Drop, Hold, Job, LeasedJob, Release, Settled, Settlement
from gesta.runtime.clock import Runtime
from gesta.stores.rows import leased_job_of, which_written
from gesta.stores.sql_queries import SqlJobQueue
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql

#: Later than any turn.
_NEVER = 2**62

#: Waiting jobs that one take makes ready at most: a wave of retries must not block the writer.
WAKE_BATCH = 2_000

_Row = tuple[str, str, str, str, int, str, int, int, int, int]
_decode_rows = msgspec.json.Decoder(list[_Row]).decode


class SqliteJobQueue(SqlJobQueue):
    def __init__(self, database: Database, runtime: Runtime) -> None:
        super().__init__(database, runtime)
        self._database = database
        database.on_commit(self._put.set)

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        now = self._runtime.now_ms()
        created = await self._database.write(lambda db: put_new(db, jobs, now), durable=True)
        self.wake()
        return created

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        def take(db: apsw.Connection) -> tuple[list[str], int | None]:
            # The clock is read under the lock: waiting for the lock must not shorten the lease.
            return take_step(db, token, flows, self._runtime.now_ms(), round(lease_seconds * 1000))

        texts, next_due = await self._database.write(take, durable=durable)
        return [leased_job_of(row, token) for text in texts for row in _decode_rows(text)], next_due

    async def extend(self, token: str, lease_seconds: float) -> bool:
        def extend(db: apsw.Connection) -> bool:
            now = self._runtime.now_ms()
            db.execute(sql("extend_lease"), (token, now + round(lease_seconds * 1000), now))
            return db.changes() == 1

        return await self._database.write(extend, durable=False)

    async def lease_external(
        self, token: str, external_queue: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        def lease_external(db: apsw.Connection) -> str | None:
            now = self._runtime.now_ms()
            _make_ready(db, db.execute(sql("due_jobs"), (now, WAKE_BATCH)).fetchall())
            return _lease_ready(db, external_queue, limit, token, now + round(lease_seconds * 1000))

        text = await self._database.write(lease_external, durable=True)
        return [] if text is None else [leased_job_of(row, token) for row in _decode_rows(text)]

    async def prolong(self, job_id: str, token: str, lease_seconds: float) -> int | None:
        def prolong(db: apsw.Connection) -> int | None:
            now = self._runtime.now_ms()
            values = (job_id, token, now, now + round(lease_seconds * 1000))
            rows: list[Any] = db.execute(sql("extend_external_lease"), values).fetchall()
            return rows[0][0] if rows else None

        return await self._database.write(prolong, durable=False)

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        # The first text after all texts with the prefix.
        end = external_queues[:-1] + chr(ord(external_queues[-1]) + 1)

        def take_over(db: apsw.Connection) -> list[Any]:
            now = self._runtime.now_ms()
            values = (now, external_queues, end, limit, token, now + round(lease_seconds * 1000))
            return db.execute(sql("take_over_expired"), values).fetchall()

        rows = await self._database.write(take_over, durable=False)
        return [leased_job_of(row, token) for row in rows]

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        now = self._runtime.now_ms()
        flat: list[Any] = [value for queue in external_queues for value in (queue, now)]
        rows = await self._database.read(
            lambda db: ask_many(db, "external_queues_with_jobs", 2, flat)
        )
        return {row[0] for row in rows}

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        now = self._runtime.now_ms()
        settled = await self._database.write(
            lambda db: [settle_step(db, one, now) for one in settlements], durable=False
        )
        self.wake()
        return settled

    async def unhold(self, scope: str, limit: int) -> int:
        def unhold(db: apsw.Connection) -> int:
            return _make_ready(db, db.execute(sql("held_jobs"), (scope, limit)).fetchall())

        count = await self._database.write(unhold, durable=False)
        self.wake()
        return count

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.read(lambda db: ask_many(db, "live_jobs", 1, list(job_ids)))
        return {row[0] for row in rows}

    def wake(self) -> None:
        """Call in the event loop after a commit that may have made a job ready."""
        self._put.set()


def put_step(db: apsw.Connection, jobs: Sequence[Job], now_ms: int) -> int:
    """How many of the jobs were created.

    A job that is live already wastes its turn, and nothing else.
    """
    lines = [(job.flow, job.tenant, job.priority) if job.due_ms <= now_ms else None for job in jobs]
    turns = give(db, Counter([line for line in lines if line is not None]))
    flat: list[Any] = []
    for job, line in zip(jobs, lines, strict=True):
        is_due, available_ms, score = 0, job.due_ms, 0
        if line is not None:
            is_due, available_ms, score = 1, now_ms, score_of(turns[line], job.priority)
            turns[line] += 1
        flat += (
            job.id,
            job.tenant,
            job.flow,
            job.request_id,
            job.dispatch_version,
            job.kind,
            is_due,
            available_ms,
            job.priority,
            score,
            job.possibly_executed,
        )
    return run_many(db, "put_jobs", 11, flat)


def put_eager(
    db: apsw.Connection, jobs: Sequence[Job], now_ms: int, free_slots: FreeSlots | None
) -> list[LeasedJob]:
    """Put all jobs; those that a worker leases in its free slots by the same commit."""
    chosen = [] if free_slots is None else _chosen(db, jobs, now_ms, free_slots)
    if free_slots is None or not chosen or not _put_leased(db, chosen, now_ms, free_slots):
        put_step(db, jobs, now_ms)
        return []
    if len(chosen) < len(jobs):
        ours = {job.id for job in chosen}
        put_step(db, [job for job in jobs if job.id not in ours], now_ms)
    return [LeasedJob(job, free_slots.token, 1, now_ms) for job in chosen]


def _chosen(
    db: apsw.Connection, jobs: Sequence[Job], now_ms: int, free_slots: FreeSlots
) -> list[Job]:
    if (
        db.execute(sql("any_expired_lease"), (now_ms,)).get is not None
        or db.execute(sql("any_due"), (now_ms,)).get is not None
    ):
        # The next take makes those jobs ready: they come before these.
        return []
    wanted = {job.flow for job in jobs}
    free = {
        flow: slots
        for flow, slots in free_slots.free.items()
        if flow in wanted and db.execute(sql("any_ready"), (flow,)).get is None
    }
    return chosen_of(jobs, free, now_ms)


def _put_leased(
    db: apsw.Connection, jobs: Sequence[Job], now_ms: int, free_slots: FreeSlots
) -> bool:
    """Put all jobs, or none if a job of the same id is live."""
    flat: list[Any] = []
    for job in jobs:
        flat += (
            job.id,
            job.tenant,
            job.flow,
            job.request_id,
            job.dispatch_version,
            job.kind,
            now_ms,
            job.priority,
            free_slots.token,
        )
    db.execute("savepoint leasing")
    is_whole = run_many(db, "put_leased_jobs", 9, flat) == len(jobs)
    if is_whole:
        db.execute(
            sql("save_lease"), (free_slots.token, now_ms + round(free_slots.lease_seconds * 1000))
        )
    else:
        db.execute("rollback to leasing")
    db.execute("release leasing")
    return is_whole


def put_new(db: apsw.Connection, jobs: Sequence[Job], now_ms: int) -> list[bool]:
    """Put the jobs that are not live; which ones. Of two jobs with one id the first is put."""
    ids: list[Any] = [job.id for job in jobs]
    live = {row[0] for row in ask_many(db, "live_jobs", 1, ids)}
    created = which_written(ids, {job_id for job_id in ids if job_id not in live})
    put_step(db, [job for job, is_new in zip(jobs, created, strict=True) if is_new], now_ms)
    return created


def take_step(
    db: apsw.Connection, token: str, flows: dict[str, int], now_ms: int, lease_ms: int
) -> tuple[list[str], int | None]:
    """The leased jobs as JSON texts, one per flow, and when the next job may become ready."""
    if db.execute(sql("any_expired_lease"), (now_ms,)).get is not None:
        db.execute(sql("reclaim_expired_jobs"), (now_ms,))
        db.execute(sql("forget_leases"), (now_ms,))
    _make_ready(db, db.execute(sql("due_jobs"), (now_ms, WAKE_BATCH)).fetchall())
    leased = [_lease_ready(db, flow, free, token, None) for flow, free in flows.items()]
    texts = [text for text in leased if text is not None]
    if texts:
        db.execute(sql("save_lease"), (token, now_ms + lease_ms))
    moments = [db.execute(sql("next_due")).get, db.execute(sql("next_lease_end"), (token,)).get]
    return texts, min((moment for moment in moments if moment is not None), default=None)


def _lease_ready(
    db: apsw.Connection, flow: str, limit: int, token: str, until_ms: int | None
) -> str | None:
    """The leased jobs as one JSON text; None when none is ready. `until_ms`: the end of a lease to
    an external worker.
    """
    text, count, score = cast(
        tuple[str, int, int], db.execute(sql("select_ready"), (flow, limit)).fetchall()[0]
    )
    if not count:
        return None
    db.execute(sql("take_jobs"), (flow, limit, token, until_ms))
    serve(db, flow, score, is_drained=count < limit)
    return text


def _make_ready(db: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
    """Give turns to (id, flow, tenant, priority), in this order."""
    if not rows:
        return 0
    turns = give(db, Counter([row[1:] for row in rows]))
    flat: list[Any] = []
    for job_id, *rest in rows:
        line = cast(QueueLine, tuple(rest))
        flat += (job_id, score_of(turns[line], line[2]))
        turns[line] += 1
    return run_many(db, "make_ready", 2, flat)


def settle_step(db: apsw.Connection, settlement: Settlement, now_ms: int) -> Settled:
    match settlement:
        case Ack(job_id, token):
            changed = run_many(db, "ack_jobs", 2, [job_id, token])
        case Release(job_id, token, due_ms):
            changed = _release(db, job_id, token, due_ms, now_ms)
        case Hold(job_id, token, scope):
            db.execute(sql("hold_job"), (job_id, token, scope))
            changed = db.changes()
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
    is_due, score = due_ms <= now_ms, 0
    if is_due:
        found = db.execute(sql("turn_of_job"), (job_id, token)).fetchall()
        if not found:
            return 0
        line = cast(QueueLine, found[0])
        score = score_of(give(db, {line: 1})[line], line[2])
    db.execute(sql("release_job"), (job_id, token, int(is_due), max(due_ms, now_ms), score))
    return db.changes()


def give(db: apsw.Connection, wanted: Mapping[QueueLine, int]) -> dict[QueueLine, int]:
    """The first turn of each line for its number of new jobs. Saves the turns.

    Takes a few statements for any number of jobs.
    """
    if not wanted:
        return {}
    presents = dict(ask_many(db, "flow_turns", 1, list({flow for flow, _, _ in wanted})))
    tenants = {(flow, tenant) for flow, tenant, _ in wanted}
    rows = ask_many(db, "last_turns", 2, [name for pair in tenants for name in pair])
    firsts = give_turns(
        wanted, presents, {(flow, tenant, priority): end for flow, tenant, priority, end in rows}
    )
    run_many(
        db,
        "save_last_turns",
        4,
        [value for line, first in firsts.items() for value in (*line, first + wanted[line])],
    )
    return firsts


def serve(db: apsw.Connection, flow: str, score: int, *, is_drained: bool) -> None:
    """Note that jobs up to this score are leased. `is_drained`: no job is left, and every line
    starts after them.
    """
    turn = turn_of(score) + is_drained
    db.execute(sql("move_flow_turn"), (flow, turn))
    db.execute(sql("forget_last_turns"), (flow, _NEVER if is_drained else turn))
