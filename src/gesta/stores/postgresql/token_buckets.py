"""Token buckets in PostgreSQL. Implements gesta.ports.token_buckets."""

from collections.abc import Sequence

from gesta.domain.token_bucket import Bucket, reserve
from gesta.ports.token_buckets import Name, Reserved, Wanted
from gesta.runtime.clock import OnClock
from gesta.stores.postgresql.database import Database


class PostgresqlTokenBuckets:
    def __init__(self, database: Database, runtime: OnClock) -> None:
        self._database, self._runtime = database, runtime

    async def reserve(self, wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        now = float(self._runtime.now_ms())
        rows = await self._database.ask(
            "reserve_tokens",
            [one.name[0] for one in wanted],
            [one.name[1] for one in wanted],
            [one.rate.gap_ms for one in wanted],
            [one.rate.burst for one in wanted],
            [one.tokens for one in wanted],
            now,
            float(ahead_ms),
        )
        answers: dict[int, Reserved] = {}
        for place, full_at, closed_until, given in rows:
            times, next_at, _ = reserve(
                Bucket(full_at, closed_until), wanted[place - 1].rate, given, now, ahead_ms
            )
            answers[place] = Reserved(times, next_at)
        return [answers[place] for place in range(1, len(wanted) + 1)]

    async def close(self, closed: Sequence[tuple[Name, int]]) -> None:
        now = self._runtime.now_ms()
        untils = [float(now + wait_ms) for _, wait_ms in closed]
        await self._database.ask(
            "close_buckets",
            [name[0] for name, _ in closed],
            [name[1] for name, _ in closed],
            untils,
        )

    async def forget(self, limit: int) -> int:
        return len(await self._database.ask("forget_buckets", float(self._runtime.now_ms()), limit))
