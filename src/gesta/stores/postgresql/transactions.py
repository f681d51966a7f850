"""Transactions across the ports of one schema. Implements gesta.ports.transactions."""

from collections.abc import Mapping, Sequence

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots, chosen_of
from gesta.ports.event_store import Append, AppendVerdict
from gesta.ports.job_queue import Drop, Job, LeasedJob, Release
from gesta.ports.read_model import Quarantined, View
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording
from gesta.runtime.clock import Runtime
from gesta.stores.first_claims import append_with_claims, have_claims
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.errors import Between
from gesta.stores.postgresql.event_store import PostgresqlEventStore
from gesta.stores.postgresql.job_queue import NONE, PostgresqlJobQueue, job_values, leased_values
from gesta.stores.postgresql.read_model import PostgresqlReadModel, columns_of, inline_values
from gesta.stores.postgresql.recording import Scores, record, record_values, recordings_of
from gesta.stores.recent_views import Saved

#: Pause of inline projection after another process appended in between.
ALONE_SECONDS = 1.0


class PostgresqlTransactions:
    def __init__(
        self,
        database: Database,
        *,
        events: PostgresqlEventStore,
        views: PostgresqlReadModel,
        queue: PostgresqlJobQueue,
        runtime: Runtime,
    ) -> None:
        self._database, self._events, self._views, self._queue, self._runtime = (
            database,
            events,
            views,
            queue,
            runtime,
        )
        self._alone_from = float("-inf")

    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        async def append(fitting: Sequence[Append]) -> list[AppendVerdict]:
            # The projection is of all of them.
            fits = len(fitting) == len(appends)
            recordings = await self.record(
                [Entry(one, None) for one in fitting], projection if fits else None
            )
            return [recording.verdict for recording in recordings]  # type: ignore[misc]

        if have_claims(appends):
            return await append_with_claims(appends, self._events.put_claims, append)
        return await append(appends)

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        now = self._queue.now_ms()
        # All or none: then no turn has to be given.
        if (
            free_slots is not None
            and jobs
            and len(chosen_of(jobs, free_slots.free, now)) == len(jobs)
        ):
            values = (
                free_slots.token,
                now,
                round(free_slots.lease_seconds * 1000),
                free_slots.durable,
            )
            answer = await self._views.project_eager(
                views, quarantined, moves, leased_values(jobs, now), values
            )
            if answer is not None:
                moved, free_slots.renewed = answer
                free_slots.leased = (
                    [LeasedJob(job, free_slots.token, 1, now) for job in jobs] if moved else []
                )
                return moved
        given = await self._queue.turns_for(jobs, now)
        moved = await self._views.project(views, quarantined, moves, job_values(jobs, given, now))
        if jobs and moved:
            self._queue.wake()
        return moved

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        rows = [(stream, one.tenant, one.flow, one.id, one.version) for stream, one in ended]
        secret = [
            (one.tenant, secrets[stream], one.flow, one.id)
            for stream, one in ended
            if stream in secrets
        ]

        async def remove(connection: Connection) -> tuple[int, list[Row]]:
            sql = self._database.sql
            ((count,),) = await connection.fetch(sql("remove_requests"), *columns_of(rows, 5))
            if not count or not secret:
                return int(count), []
            text = sql("delete_secrets_of_removed")
            return int(count), await connection.fetch(text, *columns_of(secret, 4))

        count, destroyed = await self._database.transact(remove, durable=True)
        if destroyed:
            await self._database.run_outside("clean_vault")
        self._events.forget_own()
        return count

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        if not entries:
            return []
        now = self._queue.now_ms()
        scores = await self._queue.scores_for([entry.settlement for entry in entries], now)
        appends = [entry.append for entry in entries if entry.append is not None]
        if (
            projection is not None
            and appends
            and self._runtime.monotonic() >= self._alone_from
            and _fit_together(entries)
        ):
            try:
                return await self._record_inline(entries, appends, scores, projection, now)
            except Between:
                # Another process appends at the same time: the next try would fail, too.
                self._alone_from = self._runtime.monotonic() + ALONE_SECONDS
        recordings, first = await record(
            self._database, entries, scores, now, durable=bool(appends)
        )
        if appends:
            self._events.committed(appends, first)
        self._wake_for(entries)
        return recordings

    async def _record_inline(
        self,
        entries: Sequence[Entry],
        appends: Sequence[Append],
        scores: Scores,
        projection: Projection,
        now: int,
    ) -> list[Recording]:
        jobs, free_slots = projection.jobs, projection.free_slots
        if (
            jobs
            and free_slots is not None
            and len(chosen_of(jobs, free_slots.free, now)) == len(jobs)
        ):
            values = [
                *NONE.saved,
                leased_values(jobs, now),
                free_slots.token,
                now,
                round(free_slots.lease_seconds * 1000),
            ]
        else:
            free_slots = None
            values = [*job_values(jobs, await self._queue.turns_for(jobs, now), now), None, now, 0]
        (row,) = await self._database.ask(
            "record_inline",
            *record_values(entries, scores, now, durable=True),
            *inline_values(projection),
            *values,
        )
        recordings = recordings_of(entries, row)
        first = row["first_position"]
        if row["projected"]:
            projection.reached = first + sum([len(append.events) for append in appends]) - 1
            self._views.committed(
                projection.views,
                Saved(moved=True, all_newer=row["written"] == len(projection.views)),
            )
            if free_slots is not None:
                free_slots.leased, free_slots.renewed = (
                    [LeasedJob(job, free_slots.token, 1, now) for job in jobs],
                    row["renewed"],
                )
        self._events.committed(appends, first, projected_to=projection.reached)
        if row["projected"] and jobs and free_slots is None:
            self._queue.wake()
        self._wake_for(entries)
        return recordings

    def _wake_for(self, entries: Sequence[Entry]) -> None:
        if Release in {type(entry.settlement) for entry in entries}:
            self._queue.wake()


def _fit_together(entries: Sequence[Entry]) -> bool:
    """Whether probably no entry is refused: there is no drop, and no key occurs twice."""
    keys = [
        entry.append.claim.name
        for entry in entries
        if entry.append is not None and entry.append.claim is not None
    ]
    return len(set(keys)) == len(keys) and Drop not in {type(entry.settlement) for entry in entries}
