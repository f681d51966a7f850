"""What is one transaction because all ports share the schema. Implements gesta.commits; the docstrings there are the promise."""

from __future__ import annotations

from collections.abc import Sequence

from gesta.adapters.postgresql.database import Database
from gesta.adapters.postgresql.event_store import PostgresqlEventStore
from gesta.adapters.postgresql.job_queue import PostgresqlJobQueue, job_values, taken_values
from gesta.adapters.postgresql.recording import record
from gesta.adapters.postgresql.views import PostgresqlViews
from gesta.commits import Entry, Projection, Recording
from gesta.domain.operation import State
from gesta.event_store import Append, Verdict
from gesta.job_queue import Job, Taken
from gesta.offer import Offer, chosen_of
from gesta.views import Move, Parked, View


class PostgresqlCommits:
    def __init__(
        self, database: Database, events: PostgresqlEventStore, views: PostgresqlViews, queue: PostgresqlJobQueue
    ) -> None:
        self._database, self._events, self._views, self._queue = database, events, views, queue

    async def append(self, appends: Sequence[Append], projection: Projection) -> list[Verdict]:
        return await self._events.append(appends)

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        parked: Sequence[Parked],
        moves: Sequence[Move],
        offer: Offer | None = None,
    ) -> bool:
        now = self._queue.now_ms()
        # All of them or none: then no turn has to be given.
        if offer is not None and jobs and len(chosen_of(jobs, offer.free, now)) == len(jobs):
            values = (offer.token, now, round(offer.lease_seconds * 1000), offer.durable)
            moved = await self._views.project_taken(views, parked, moves, taken_values(jobs, now), values)
            if moved is not None:
                offer.taken = [Taken(job, offer.token, 1, now) for job in jobs] if moved else []
                return moved
        given = await self._queue.turns_for(jobs, now)
        moved = await self._views.project(views, parked, moves, job_values(jobs, given, now))
        if jobs and moved:
            self._queue.wake()
        return moved

    async def remove(self, ended: Sequence[tuple[str, State]]) -> int:
        states = [state for _, state in ended]
        ((count,),) = await self._database.ask(
            "remove_requests",
            [stream for stream, _ in ended],
            [state.tenant for state in states],
            [state.flow for state in states],
            [state.id for state in states],
            [state.version for state in states],
        )
        self._events.forget_own()
        return int(count)

    async def record(self, entries: Sequence[Entry], projection: Projection | None = None) -> list[Recording]:
        if not entries:
            return []
        now = self._queue.now_ms()
        scores = await self._queue.scores_for([entry.settlement for entry in entries], now)
        appends = [entry.append for entry in entries if entry.append is not None]
        recordings, first = await record(self._database, entries, scores, now, durable=bool(appends))
        if appends:
            self._events.committed(appends, first)
        self._queue.wake()
        return recordings
