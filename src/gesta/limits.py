"""Rate limits of providers: token buckets by name, each tenant's apart from everybody else's.

A flow takes a token right before it calls the provider; without one the attempt is postponed, and none of its request's attempts is spent.
"""

from __future__ import annotations

import msgspec

from gesta.runtime import Runtime
from gesta.unspent import Postponed


class Limit(msgspec.Struct, frozen=True):
    """At most `per_second` tokens in the long run, and `burst` at once after a rest."""

    #: Scoped by tenant by the engine, e.g. "slack/T1/C2".
    name: str
    per_second: float
    burst: int = 1


class _Bucket:
    __slots__ = ("closed_until", "full_at")

    def __init__(self) -> None:
        #: When it would be full again; from here its content at any time is told.
        self.full_at = 0.0
        self.closed_until = 0.0


class Buckets:
    """All buckets of this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    async def take(self, tenant: str, limits: tuple[Limit, ...]) -> None:
        now = self._runtime.monotonic()
        found = [(limit, self._buckets.setdefault((tenant, limit.name), _Bucket())) for limit in limits]
        waits = [max(bucket.closed_until - now, _wait(limit, bucket, now)) for limit, bucket in found]
        if (longest := max(waits, default=0.0)) > 0:
            raise Postponed(longest)
        for limit, bucket in found:
            bucket.full_at = max(bucket.full_at, now) + 1 / limit.per_second

    async def close(self, tenant: str, name: str, seconds: float) -> None:
        bucket = self._buckets.setdefault((tenant, name), _Bucket())
        bucket.closed_until = max(bucket.closed_until, self._runtime.monotonic() + seconds)


def _wait(limit: Limit, bucket: _Bucket, now: float) -> float:
    """Seconds until there is a token."""
    return bucket.full_at - now - (limit.burst - 1) / limit.per_second


class Limits:
    """What an attempt is given: the buckets of its tenant."""

    __slots__ = ("_buckets", "_tenant")

    def __init__(self, buckets: Buckets, tenant: str) -> None:
        self._buckets, self._tenant = buckets, tenant

    async def take(self, *limits: Limit) -> None:
        """One token of each, or Postponed: then none was taken. Call it right before the provider is called."""
        await self._buckets.take(self._tenant, limits)

    async def close(self, name: str, seconds: float) -> None:
        """Nobody takes a token of this name before that: the provider said when it wants to be asked again."""
        await self._buckets.close(self._tenant, name, seconds)
