"""Token buckets in SQLite. Implements gesta.ports.token_buckets."""

from collections.abc import Sequence
from typing import Any

import apsw

from gesta.domain.token_bucket import Bucket, reserve
from gesta.ports.token_buckets import Name, Reserved, Wanted
from gesta.runtime.clock import Runtime
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql


class SqliteTokenBuckets:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime = database, runtime

    async def reserve(self, wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        names: list[Any] = [
            part for name in dict.fromkeys(one.name for one in wanted) for part in name
        ]

        def step(db: apsw.Connection) -> list[Reserved]:
            # The clock is read under the lock: others may have been served while we waited for it.
            now, answers = self._runtime.now_ms(), []
            rows: list[Any] = ask_many(db, "get_buckets", 2, names)
            buckets = {
                (tenant, name): Bucket(full_at, closed_until)
                for tenant, name, full_at, closed_until in rows
            }
            for one in wanted:
                bucket = buckets.get(one.name, Bucket())
                times, next_at, buckets[one.name] = reserve(
                    bucket, one.rate, one.tokens, now, ahead_ms
                )
                answers.append(Reserved(times, next_at))
            flat: list[Any] = [
                v for name, one in buckets.items() for v in (*name, one.full_at, one.closed_until)
            ]
            run_many(db, "save_buckets", 4, flat)
            return answers

        return await self._database.write(step, durable=False)

    async def close(self, closed: Sequence[tuple[Name, int]]) -> None:
        def step(db: apsw.Connection) -> None:
            now = self._runtime.now_ms()
            flat: list[Any] = [
                value for name, wait_ms in closed for value in (*name, 0.0, float(now + wait_ms))
            ]
            run_many(db, "close_buckets", 4, flat)

        await self._database.write(step, durable=False)

    async def forget(self, limit: int) -> int:
        def step(db: apsw.Connection) -> int:
            db.execute(sql("forget_buckets"), (float(self._runtime.now_ms()), limit))
            return db.changes()

        return await self._database.write(step, durable=False)
