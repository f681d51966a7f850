"""Fences in PostgreSQL: a row, and triggers that refuse writes. Implements gesta.ports.fences."""

from collections.abc import Sequence

from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.stores.postgresql.connections import Connection
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.job_queue import PostgresqlJobQueue, job_values
from gesta.stores.rows import fence_of, triggers_of


class PostgresqlFences:
    def __init__(self, database: Database, queue: PostgresqlJobQueue) -> None:
        self._database, self._queue = database, queue

    async def put_up(self, fence: Fence) -> None:
        async def put_up(connection: Connection) -> None:
            await connection.fetch(
                self._database.sql("note_fence"), fence.kind, fence.tenant or "", fence.other
            )
            await connection.execute(self._database.sql(f"fence_{triggers_of(fence)}"))

        await self._database.transact(put_up, durable=True)

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        sql, now = self._database.sql, self._queue.now_ms()
        values = job_values(jobs, await self._queue.turns_for(jobs, now), now)

        async def take_down(connection: Connection) -> None:
            await connection.fetch(sql("forget_fence"), fence.kind, fence.tenant or "")
            standing = map(fence_of, await connection.fetch(sql("list_fences")))
            if triggers_of(fence) not in map(triggers_of, standing):
                await connection.execute(sql(f"unfence_{triggers_of(fence)}"))
            if jobs:
                await connection.fetch(sql("put_jobs"), *values)

        await self._database.transact(take_down, durable=True)
        self._queue.wake()

    async def standing(self) -> list[Fence]:
        return [fence_of(row) for row in await self._database.ask("list_fences")]
