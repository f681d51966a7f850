"""Transactions across the ports of one file. Implements gesta.ports.transactions."""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, Appended, AppendVerdict
from gesta.ports.job_queue import Ack, Drop, Job, LeasedJob, Release
from gesta.ports.read_model import Quarantined, View
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording
from gesta.stores.recent_views import Saved
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.event_store import (
    SqliteEventStore,
    Written,
    append_one,
    append_step,
    attempt_all,
)
from gesta.stores.sqlite.job_queue import SqliteJobQueue, put_eager, settle_step
from gesta.stores.sqlite.read_model import SqliteReadModel, save_step
from gesta.stores.sqlite.statements import run_many, sql
from gesta.stores.sqlite.vault import empty_log, overwriting


class SqliteTransactions:
    def __init__(
        self,
        database: Database,
        *,
        events: SqliteEventStore,
        views: SqliteReadModel,
        queue: SqliteJobQueue,
    ) -> None:
        self._database, self._events, self._views, self._queue = database, events, views, queue

    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        def append(db: apsw.Connection) -> tuple[Written, Saved | None, list[LeasedJob]]:
            written = append_step(db, appends)
            # The clock is read under the lock: waiting for the lock must not shorten a lease.
            return written, *_project_inline(db, written, projection, self._queue.now_ms())

        writing = self._database.write(append, durable=True, size=len(appends))
        if projection.free_slots is None:
            self._wake_for(projection.jobs)
        written, saved, leased = await writing
        self._committed(appends, written, projection, saved)
        self._leased(projection.jobs, projection.free_slots, leased)
        return written.verdicts

    def _wake_for(self, jobs: Sequence[Job]) -> None:
        """Called when the write is queued: a take that is queued later follows it, perhaps in the
        same commit.
        """
        if jobs:
            self._queue.wake()

    def _leased(
        self, jobs: Sequence[Job], free_slots: FreeSlots | None, leased: list[LeasedJob]
    ) -> None:
        if free_slots is not None:
            free_slots.leased = leased
            self._wake_for(jobs[len(leased) :])

    def _committed(
        self,
        appends: Sequence[Append],
        written: Written,
        projection: Projection | None,
        saved: Saved | None,
    ) -> None:
        self._events.committed(appends, written, is_projected=saved is not None)
        if projection is not None and saved is not None and written.first is not None:
            projection.reached = written.first + written.size - 1
            self._views.recent.committed(projection.views, saved)

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        def project(db: apsw.Connection) -> tuple[Saved, list[LeasedJob]]:
            saved = save_step(db, views, quarantined, moves)
            return saved, put_eager(
                db, jobs, self._queue.now_ms(), free_slots
            ) if saved.moved and jobs else []

        saving = self._database.write(
            project, durable=free_slots is not None and free_slots.durable
        )
        if free_slots is None:
            self._wake_for(jobs)
        saved, leased = await saving
        self._views.recent.committed(views, saved)
        self._leased(jobs, free_slots, leased)
        return saved.moved

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        # Durable: what was reported as removed must not return after a power loss.
        count, destroyed = await self._database.write(
            lambda db: _remove_step(db, ended, secrets), durable=True
        )
        if destroyed:
            await empty_log(self._database)
        self._events.forget_own()
        return count

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        now = self._queue.now_ms()
        appends = [entry.append for entry in entries if entry.append is not None]
        durable = bool(appends)

        def record(db: apsw.Connection) -> tuple[list[Recording], Written, Saved | None]:
            recordings, written = _record_step(db, entries, appends, now)
            saved, _ = _project_inline(db, written, projection, now)
            return recordings, written, saved

        recordings, written, saved = await self._database.write(
            record, durable=durable, size=len(entries)
        )
        if durable:
            self._committed(appends, written, projection, saved)
        if Release in {type(entry.settlement) for entry in entries} or (
            projection is not None and projection.jobs
        ):
            self._queue.wake()
        return recordings


def _project_inline(
    db: apsw.Connection, written: Written, projection: Projection | None, now_ms: int
) -> tuple[Saved | None, list[LeasedJob]]:
    """Project if every event was written by this step and the checkpoints are right before the
    first; otherwise None, and nothing is written.
    """
    if projection is None or written.first is None:
        return None, []
    moves = projection.moves(written.first - 1, written.first + written.size - 1)
    saved = save_step(db, projection.views, (), moves)
    if not saved.moved:
        return None, []
    return saved, put_eager(
        db, projection.jobs, now_ms, projection.free_slots
    ) if projection.jobs else []


def _record_step(
    db: apsw.Connection, entries: Sequence[Entry], appends: list[Append], now_ms: int
) -> tuple[list[Recording], Written]:
    """The usual case, accepted events with acks of our jobs or without, takes two statements;
    otherwise the entries are recorded one by one.
    """
    settlements = [entry.settlement for entry in entries]
    acks = [one for one in settlements if isinstance(one, Ack)]
    if len(appends) == len(entries) == len(acks) + settlements.count(None):
        written = attempt_all(db, appends, lambda: _ack_all(db, acks))
        if written is not None:
            return [
                Recording(verdict, None if settlement is None else "done")
                for verdict, settlement in zip(written.verdicts, settlements, strict=True)
            ], written
    before, count = _end(db), sum([len(append.events) for append in appends])
    recordings = [_record_one(db, entry, now_ms) for entry in entries]
    # If all were written now, their events are in the order of the entries, too.
    first = before + 1 if count and _end(db) - before == count else None
    return recordings, Written([], first, count)


def _end(db: apsw.Connection) -> int:
    return int(db.execute(sql("end_of_log")).get or 0)


def _remove_step(
    db: apsw.Connection, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str]
) -> tuple[int, int]:
    """How many requests were removed, and how many versions of secrets destroyed."""
    flat: list[Any] = []
    for stream, state in ended:
        flat += (stream, state.tenant, state.flow, state.id, state.version)
    count = run_many(db, "name_leaving", 5, flat)
    if not count:
        return 0, 0
    db.execute(sql("remove_leaving")).fetchall()
    flat = []
    for stream, state in ended:
        if stream in secrets:
            flat += (state.tenant, secrets[stream], state.flow, state.id)
    with overwriting(db):
        return count, run_many(db, "delete_secrets_of_removed", 4, flat)


def _ack_all(db: apsw.Connection, acks: Sequence[Ack]) -> bool:
    flat: list[Any] = []
    for one in acks:
        flat += (one.job_id, one.token)
    return run_many(db, "ack_jobs", 2, flat) == len(acks)


def _record_one(db: apsw.Connection, entry: Entry, now_ms: int) -> Recording:
    append, settlement = entry.append, entry.settlement
    if isinstance(settlement, Drop) and append is not None:
        return _drop_and_append(db, append, settlement, now_ms)
    verdict = None if append is None else append_one(db, append)
    if settlement is None or not (verdict is None or isinstance(verdict, Appended)):
        return Recording(verdict, None)
    return Recording(verdict, settle_step(db, settlement, now_ms))


def _drop_and_append(
    db: apsw.Connection, append: Append, settlement: Drop, now_ms: int
) -> Recording:
    db.execute("savepoint dropping")
    settled = settle_step(db, settlement, now_ms)
    verdict = None if settled == "active" else append_one(db, append)
    if not isinstance(verdict, Appended):
        db.execute("rollback to dropping")
    db.execute("release dropping")
    # Refused events undo the drop: the job stays as it was.
    return Recording(verdict, settled if verdict is None or isinstance(verdict, Appended) else None)
