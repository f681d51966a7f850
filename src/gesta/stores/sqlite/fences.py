"""Fences in SQLite: a row, and triggers that refuse writes. Implements gesta.ports.fences."""

from collections.abc import Sequence

import apsw

from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.stores.rows import fence_of, triggers_of
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.job_queue import SqliteJobQueue, put_new
from gesta.stores.sqlite.statements import sql


class SqliteFences:
    def __init__(self, database: Database, queue: SqliteJobQueue) -> None:
        self._database, self._queue = database, queue

    async def put_up(self, fence: Fence) -> None:
        def put_up(db: apsw.Connection) -> None:
            db.execute(sql("note_fence"), (fence.kind, fence.tenant or "", fence.other))
            db.execute(sql(f"fence_{triggers_of(fence)}")).fetchall()

        await self._database.write(put_up, durable=True)

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        now = self._queue.now_ms()

        def take_down(db: apsw.Connection) -> None:
            db.execute(sql("forget_fence"), (fence.kind, fence.tenant or ""))
            standing = map(fence_of, db.execute(sql("list_fences")).fetchall())
            if triggers_of(fence) not in map(triggers_of, standing):
                db.execute(sql(f"unfence_{triggers_of(fence)}")).fetchall()
            put_new(db, jobs, now)

        await self._database.write(take_down, durable=True)
        self._queue.wake()

    async def standing(self) -> list[Fence]:
        return [fence_of(row) for row in await self._database.ask("list_fences")]
