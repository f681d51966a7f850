"""Lanes of the SQLite queue: jobs that others execute, each under a lease of its own.

The steps of gesta.ports.job_queue's verbs for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import apsw

from gesta.stores.sqlite.fair_queue import serve
from gesta.stores.sqlite.statements import ask_many, sql


def lease_external_step(
    db: apsw.Connection, token: str, external_queue: str, limit: int, until_ms: int
) -> str | None:
    """The jobs as one JSON text; None when there is none. Those that are due have been made
    ready.
    """
    text, count, score = db.execute(sql("select_ready"), (external_queue, limit)).fetchall()[0]
    if not count:
        return None
    db.execute(sql("lease_external_jobs"), (external_queue, limit, token, until_ms))
    serve(db, external_queue, cast(int, score), is_drained=cast(int, count) < limit)
    return cast(str, text)


def prolong_step(
    db: apsw.Connection, job_id: str, token: str, now_ms: int, until_ms: int
) -> int | None:
    rows = db.execute(sql("extend_external_lease"), (job_id, token, now_ms, until_ms)).fetchall()
    return cast(int, rows[0][0]) if rows else None


def expired_leases_step(
    db: apsw.Connection, token: str, external_queues: str, limit: int, now_ms: int, until_ms: int
) -> list[tuple[apsw.SQLiteValue, ...]]:
    """The rows of the jobs, taken over."""
    rows = db.execute(
        sql("expired_external_jobs"), (now_ms, external_queues, after(external_queues), limit)
    ).fetchall()
    for row in rows:
        db.execute(sql("take_over_job"), (row[0], token, until_ms))
    return rows


def stocked_rows(db: apsw.Connection, external_queues: Sequence[str], now_ms: int) -> set[str]:
    flat: list[Any] = [
        value for external_queue in external_queues for value in (external_queue, now_ms)
    ]
    return {str(row[0]) for row in ask_many(db, "external_queues_with_jobs", 2, flat)}


def after(prefix: str) -> str:
    """The first text behind all that begin so."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
