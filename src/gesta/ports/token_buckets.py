"""Port: token buckets that all processes of a store share. They need not survive a power loss."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gesta.domain.token_bucket import Rate

#: Tenant and name of a bucket.
Name = tuple[str, str]


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """How many tokens to reserve of a bucket, and its rate, which is not stored."""

    name: Name
    rate: Rate
    tokens: int


class Reserved(msgspec.Struct, frozen=True, gc=False):
    """The times of the reserved tokens, and of the next token. Epoch milliseconds."""

    times: list[float]
    next_at: float


class TokenBuckets(Protocol):
    async def reserve(self, wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        """Reserve up to the wanted tokens of each bucket, in order; none is later than `ahead_ms`
        from now.
        """

    async def close(self, closed: Sequence[tuple[Name, int]]) -> None:
        """Give out no token of a bucket for this many milliseconds. A longer closure stays."""

    async def forget(self, limit: int) -> int:
        """Delete up to `limit` buckets that are full and open, as an unused one is; how many."""
