"""Jobs that wait beside the views until a relay has put them into a queue elsewhere.

Steps of views.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from gesta.ports.job_queue import Job
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.statements import Statements


async def add_undispatched(connection: Connection, sql: Statements, jobs: Sequence[Job]) -> None:
    """A tenant's jobs have rising numbers, starting where the others are: the tenants come in turn,
    and no newcomer overtakes for long.
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


def job_of(row: Row) -> Job:
    return Job(*row)
