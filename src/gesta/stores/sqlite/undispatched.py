"""Jobs that wait beside the views until a relay has put them into a queue elsewhere.

Steps of views.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import apsw

from gesta.ports.job_queue import Job
from gesta.stores.sqlite.statements import ask_many, run_many, sql


def add_undispatched(db: apsw.Connection, jobs: Sequence[Job]) -> None:
    """A tenant's jobs have rising numbers, starting where the others are: the tenants come in turn,
    and no newcomer overtakes for long.
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


def first_undispatched(db: apsw.Connection, limit: int) -> list[Job]:
    return [_job(row) for row in db.execute(sql("first_undispatched"), (limit,)).fetchall()]


def which_undispatched(db: apsw.Connection, job_ids: Sequence[str]) -> set[str]:
    return {str(row[0]) for row in ask_many(db, "which_undispatched", 1, list(job_ids))}


def remove_undispatched(db: apsw.Connection, job_ids: Sequence[str]) -> set[str]:
    return {str(row[0]) for row in ask_many(db, "remove_undispatched", 1, list(job_ids))}


def _job(row: tuple[Any, ...]) -> Job:
    (
        job_id,
        tenant,
        flow,
        request_id,
        dispatch_version,
        kind,
        due_ms,
        priority,
        possibly_executed,
    ) = row
    return Job(
        job_id,
        tenant,
        flow,
        request_id,
        dispatch_version,
        kind,
        due_ms,
        priority,
        bool(possibly_executed),
    )
