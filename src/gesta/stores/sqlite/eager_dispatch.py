"""Jobs that are put and taken in one commit, where a worker offers its free slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from gesta.ports.eager_dispatch import FreeSlots, chosen_of
from gesta.ports.job_queue import Job, LeasedJob
from gesta.stores.sqlite.job_queue import put_step
from gesta.stores.sqlite.statements import run_many, sql


def put_eager(
    db: apsw.Connection, jobs: Sequence[Job], now_ms: int, free_slots: FreeSlots | None
) -> list[LeasedJob]:
    """Put all of them; those that are the offering worker's by that."""
    chosen = [] if free_slots is None else _chosen(db, jobs, now_ms, free_slots)
    if free_slots is None or not chosen or not _put_taken(db, chosen, now_ms, free_slots):
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
        # A take brings those jobs back, or wakes them: they come before these.
        return []
    wanted = {job.flow for job in jobs}
    free = {
        flow: slots
        for flow, slots in free_slots.free.items()
        if flow in wanted and db.execute(sql("any_ready"), (flow,)).get is None
    }
    return chosen_of(jobs, free, now_ms)


def _put_taken(
    db: apsw.Connection, jobs: Sequence[Job], now_ms: int, free_slots: FreeSlots
) -> bool:
    """All of them, or none where one of that id is live already: whose that is, nobody asks
    here.
    """
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
    db.execute("savepoint offered")
    is_whole = run_many(db, "put_leased_jobs", 9, flat) == len(jobs)
    if is_whole:
        db.execute(
            sql("save_lease"), (free_slots.token, now_ms + round(free_slots.lease_seconds * 1000))
        )
    else:
        db.execute("rollback to offered")
    db.execute("release offered")
    return is_whole
