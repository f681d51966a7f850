"""The queue in PostgreSQL. Implements gesta.ports.job_queue.

Turns (domain/fair_queue.py) are read first and saved with the jobs, not under a lock. Two processes
that give turns at the same instant may give the same turn; those jobs are then equal.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from gesta.domain.fair_queue import QueueLine, give_turns, score_of
from gesta.ports.job_queue import Job, LeasedJob, Release, Settled, Settlement
from gesta.ports.transactions import Entry
from gesta.runtime.clock import Runtime
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.notifications import Notifications
from gesta.stores.postgresql.recording import record
from gesta.stores.postgresql.statements import Statements
from gesta.stores.rows import leased_job_of, which_written
from gesta.stores.sql_queries import SqlJobQueue

#: Waiting jobs that one take makes ready at most: a wave of retries must not block others.
WAKE_BATCH = 2_000
#: The column `jobs.state`.
WAITING, LEASED, HELD = 0, 2, 3


class Given(NamedTuple):
    """The score of each job, and what has to be saved: lines with their ends, flows with their
    present turns.
    """

    scores: dict[str, int]
    saved: tuple[list[str], list[str], list[int], list[int], list[str], list[int]]


NONE = Given({}, ([], [], [], [], [], []))


class PostgresqlJobQueue(SqlJobQueue):
    def __init__(self, database: Database, notifications: Notifications, runtime: Runtime) -> None:
        super().__init__(database, runtime)
        self._database, self._notifications = database, notifications
        notifications.on_commit(self._put.set)

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        if not jobs:
            return []
        now = self._runtime.now_ms()
        rows = await self._database.ask(
            "put_jobs", *job_values(jobs, await self.turns_for(jobs, now), now)
        )
        self.wake()
        return which_written([job.id for job in jobs], [row[0] for row in rows])

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        is_woken = False
        while True:
            now = self._runtime.now_ms()
            values = (
                token,
                list(flows),
                list(flows.values()),
                now,
                round(lease_seconds * 1000),
                durable,
                is_woken,
            )
            *rows, last = await self._database.ask("take_jobs", *values)
            if not last["must_wake"]:
                return [leased_job_of(list(row)[:-2], token) for row in rows], last["next_due"]
            await self._database.transact(self._wake_due, durable=False)
            is_woken = True

    async def extend(self, token: str, lease_seconds: float) -> bool:
        until_ms = self._lease_end(lease_seconds)
        return bool(
            await self._database.run("extend_lease", token, until_ms, self._runtime.now_ms())
        )

    async def lease_external(
        self, token: str, external_queue: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        if await self._database.ask("any_due_external_job", external_queue, self._runtime.now_ms()):
            await self._database.transact(self._wake_due, durable=False)
        rows = await self._database.ask(
            "lease_external_jobs", token, external_queue, limit, self._lease_end(lease_seconds)
        )
        return [leased_job_of(row, token) for row in rows]

    async def prolong(self, job_id: str, token: str, lease_seconds: float) -> int | None:
        values = (job_id, token, self._runtime.now_ms(), self._lease_end(lease_seconds))
        rows = await self._database.ask("extend_external_lease", *values)
        return rows[0][0] if rows else None

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        values = (
            token,
            external_queues,
            limit,
            self._runtime.now_ms(),
            self._lease_end(lease_seconds),
        )
        return [
            leased_job_of(row, token)
            for row in await self._database.ask("expired_external_jobs", *values)
        ]

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        return {
            row[0]
            for row in await self._database.ask(
                "external_queues_with_jobs", list(external_queues), self._runtime.now_ms()
            )
        }

    def _lease_end(self, lease_seconds: float) -> int:
        return self._runtime.now_ms() + round(lease_seconds * 1000)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        now = self._runtime.now_ms()
        scores = await self.scores_for(settlements, now)
        entries = [Entry(None, settlement) for settlement in settlements]
        recordings, _ = await record(self._database, entries, scores, now, durable=False)
        self.wake()
        return [recording.settled for recording in recordings]  # type: ignore[misc]

    async def unhold(self, scope: str, limit: int) -> int:
        async def unhold(connection: Connection) -> int:
            rows = await connection.fetch(self._database.sql("held_jobs"), scope, limit)
            return await self._make_ready(connection, rows, HELD)

        count = await self._database.transact(unhold, durable=False)
        self.wake()
        return count

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        rows = await self._database.ask("live_jobs", list(job_ids)) if job_ids else []
        return {row[0] for row in rows}

    def wake(self) -> None:
        """Call after a commit that may have made a job ready."""
        self._put.set()
        self._notifications.committed()

    async def turns_for(self, jobs: Sequence[Job], now_ms: int) -> Given:
        """The turns of jobs that are due. A job that is live already wastes its turn."""
        due = [
            (job.id, (job.flow, job.tenant, job.priority)) for job in jobs if job.due_ms <= now_ms
        ]
        return give(due, await self._database.ask("next_turns", *pairs_of(due))) if due else NONE

    async def scores_for(
        self, settlements: Sequence[Settlement | None], now_ms: int
    ) -> dict[str, int]:
        """The turns of jobs that are released and due now. They are saved first: a job that is not
        ours to release wastes its turn.
        """
        ids = [
            one.job_id for one in settlements if isinstance(one, Release) and one.due_ms <= now_ms
        ]
        if not ids:
            return {}

        async def scores(connection: Connection) -> dict[str, int]:
            rows = await connection.fetch(self._database.sql("turns_of_jobs"), ids)
            return await give_within(connection, self._database.sql, _lines(rows)) if rows else {}

        return await self._database.transact(scores, durable=False)

    async def _wake_due(self, connection: Connection) -> int:
        ((alone,),) = await connection.fetch(
            self._database.sql("lock_waking"), self._database.address.schema
        )
        if not alone:
            return 0
        rows = await connection.fetch(
            self._database.sql("due_jobs"), self._runtime.now_ms(), WAKE_BATCH
        )
        return await self._make_ready(connection, rows, WAITING)

    async def _make_ready(self, connection: Connection, rows: Sequence[Row], state: int) -> int:
        """Give turns to (id, flow, tenant, priority), in this order."""
        if not rows:
            return 0
        scores = await give_within(connection, self._database.sql, _lines(rows))
        ready = await connection.fetch(
            self._database.sql("make_ready"), list(scores), list(scores.values()), state
        )
        return len(ready)


def job_values(jobs: Sequence[Job], given: Given, now_ms: int) -> list[Any]:
    """What the function `put` takes, jobs in the order of their ids."""
    rows = []
    for job in sorted(jobs, key=_id):
        is_due = job.due_ms <= now_ms
        rows.append(
            (
                job.id,
                job.tenant,
                job.flow,
                job.request_id,
                job.dispatch_version,
                job.kind,
                int(is_due),
                now_ms if is_due else job.due_ms,
                job.priority,
                given.scores.get(job.id, 0),
                job.possibly_executed,
            )
        )
    return [*given.saved, rows]


def leased_values(jobs: Sequence[Job], now_ms: int) -> list[tuple[Any, ...]]:
    """Jobs that are leased as they are put, in the order of their ids."""
    return [
        (
            job.id,
            job.tenant,
            job.flow,
            job.request_id,
            job.dispatch_version,
            job.kind,
            LEASED,
            now_ms,
            job.priority,
            0,
            False,
        )
        for job in sorted(jobs, key=_id)
    ]


_id = attrgetter("id")


def _lines(rows: Sequence[Row]) -> list[tuple[str, QueueLine]]:
    return [(job_id, (flow, tenant, priority)) for job_id, flow, tenant, priority in rows]


def pairs_of(jobs: Iterable[tuple[str, QueueLine]]) -> tuple[list[str], list[str]]:
    """The flows and tenants whose turns have to be read."""
    pairs = list({(flow, tenant) for _, (flow, tenant, _) in jobs})
    return [flow for flow, _ in pairs], [tenant for _, tenant in pairs]


def give(jobs: Sequence[tuple[str, QueueLine]], rows: Sequence[Row]) -> Given:
    """Scores for (job id, line), in this order."""
    presents = {flow: turn for flow, tenant, _, turn in rows if tenant is None}
    ends: dict[QueueLine, int] = {
        (flow, tenant, priority): turn
        for flow, tenant, priority, turn in rows
        if tenant is not None
    }
    wanted = Counter(line for _, line in jobs)
    turns = give_turns(wanted, presents, ends)
    lines = [(*line, first + wanted[line]) for line, first in turns.items()]
    scores: dict[str, int] = {}
    for job_id, line in jobs:
        scores[job_id] = score_of(turns[line], line[2])
        turns[line] += 1
    return Given(
        scores,
        (
            [line[0] for line in lines],
            [line[1] for line in lines],
            [line[2] for line in lines],
            [line[3] for line in lines],
            list(presents),
            list(presents.values()),
        ),
    )


async def give_within(
    connection: Connection, sql: Statements, jobs: Sequence[tuple[str, QueueLine]]
) -> dict[str, int]:
    """Read, give and save turns inside a transaction; the scores."""
    given = give(jobs, await connection.fetch(sql("next_turns"), *pairs_of(jobs)))
    await connection.fetch(sql("save_turns"), *given.saved)
    return given.scores
