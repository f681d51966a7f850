"""Token buckets in a dict. Implements gesta.ports.token_buckets."""

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from gesta.domain.token_bucket import Bucket, reserve
from gesta.ports.token_buckets import Name, Reserved, Wanted
from gesta.runtime.clock import Runtime


class MemoryTokenBuckets:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._buckets: dict[Name, Bucket] = {}

    async def reserve(self, wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        now, answers = self._runtime.now_ms(), []
        for one in wanted:
            bucket = self._buckets.get(one.name, Bucket())
            times, next_at, self._buckets[one.name] = reserve(
                bucket, one.rate, one.tokens, now, ahead_ms
            )
            answers.append(Reserved(times, next_at))
        return answers

    async def close(self, closed: Sequence[tuple[Name, int]]) -> None:
        now = self._runtime.now_ms()
        for name, milliseconds in closed:
            bucket = self._buckets.get(name, Bucket())
            self._buckets[name] = replace(
                bucket, closed_until=max(bucket.closed_until, float(now + milliseconds))
            )

    async def forget(self, limit: int) -> int:
        now = self._runtime.now_ms()
        idle = [
            name
            for name, one in self._buckets.items()
            if one.full_at <= now and one.closed_until <= now
        ]
        for name in islice(idle, limit):
            del self._buckets[name]
        return min(len(idle), limit)
