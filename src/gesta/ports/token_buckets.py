"""Port: token buckets that all processes of a store share.

What is in them is worth a second: it need not survive a power loss.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gesta.domain.token_bucket import Rate

#: Tenant and name of a bucket.
Name = tuple[str, str]


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """Tokens that somebody wants, and how fast the bucket fills.

    The rate is theirs who ask: it is stored nowhere.
    """

    name: Name
    rate: Rate
    tokens: int


class Reserved(msgspec.Struct, frozen=True, gc=False):
    """The times of the tokens that are now the asker's alone, and when the next one after them
    falls.

    Epoch milliseconds.
    """

    times: list[float]
    next_at: float


class TokenBuckets(Protocol):
    async def reserve(self, wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        """Up to so many tokens of each, none that falls later than `ahead_ms` from now.

        One call for many, in their order.
        """

    async def close(self, closed: Sequence[tuple[Name, int]]) -> None:
        """Nobody gets a token of these for so many milliseconds.

        A bucket that is closed for longer stays so.
        """

    async def forget(self, limit: int) -> int:
        """Remove up to `limit` buckets that are full and open, which is what one is that nobody has
        ever used; how many.
        """
