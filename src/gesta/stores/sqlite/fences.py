"""Fences in SQLite: a row, and triggers that refuse.

Implements gesta.ports.fences; the docstrings there are the promise.
"""

from collections.abc import Sequence

import apsw

from gesta.ports.fences import Fence, FenceKind
from gesta.ports.job_queue import Job
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.job_queue import SqliteJobQueue, put_new
from gesta.stores.sqlite.statements import sql


class SqliteFences:
    def __init__(self, database: Database, queue: SqliteJobQueue) -> None:
        self._database, self._queue = database, queue

    async def put_up(self, fence: Fence) -> None:
        def put_up(db: apsw.Connection) -> None:
            db.execute(sql("note_fence"), (fence.kind, fence.tenant or "", fence.other))
            db.execute(sql(f"fence_{_triggers(fence)}")).fetchall()

        await self._database.write(put_up, durable=True)

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        now = self._queue.now_ms()

        def take_down(db: apsw.Connection) -> None:
            db.execute(sql("forget_fence"), (fence.kind, fence.tenant or ""))
            if _triggers(fence) not in {_triggers(one) for one in _standing(db)}:
                db.execute(sql(f"unfence_{_triggers(fence)}")).fetchall()
            put_new(db, jobs, now)

        await self._database.write(take_down, durable=True)
        self._queue.wake()

    async def standing(self) -> list[Fence]:
        return await self._database.read(_standing)


def _standing(db: apsw.Connection) -> list[Fence]:
    rows = db.execute(sql("list_fences")).fetchall()
    return [
        Fence(_kind(str(kind)), str(other), str(tenant) or None) for kind, other, tenant in rows
    ]


def _triggers(fence: Fence) -> str:
    """The set of triggers that a fence needs.

    Those for tenants look at the rows, so one set serves them all.
    """
    return fence.kind if fence.tenant is None else "tenant"


def _kind(text: str) -> FenceKind:
    return "filling" if text == "filling" else "left"
