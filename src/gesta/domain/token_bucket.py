"""A token bucket, stored as the time at which it will be full again.

Each token has a time; tokens of the near future can be reserved.
"""

import msgspec


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """Times are epoch milliseconds with fractions."""

    full_at: float = 0.0
    #: No token is available before this, however full the bucket is.
    closed_until: float = 0.0


class Rate(msgspec.Struct, frozen=True, gc=False):
    """One token every `gap_ms`, and up to `burst` tokens at once after a pause."""

    gap_ms: float
    burst: int


def reserve(
    bucket: Bucket, rate: Rate, tokens: int, now: float, ahead_ms: float
) -> tuple[list[float], float, Bucket]:
    """Reserve up to `tokens` tokens, none later than `ahead_ms` from now.

    Returns their times, the time of the next token after them, and the bucket afterwards.
    """
    opens, latest, lead_ms = (
        max(now, bucket.closed_until),
        now + ahead_ms,
        (rate.burst - 1) * rate.gap_ms,
    )
    gap_ms = rate.gap_ms
    # A later time can only come from a clock that was ahead. Callers must not wait for it.
    full_at = min(bucket.full_at, latest + rate.burst * gap_ms)
    times: list[float] = []
    at = max(opens, full_at - lead_ms)
    while len(times) < tokens and at <= latest:
        times.append(at)
        if at > opens:
            # The burst is used up: from here on they follow each other. Thousands may do so.
            full_at += gap_ms
            at = full_at - lead_ms
        else:
            full_at = max(full_at, at) + gap_ms
            at = max(opens, full_at - lead_ms)
    return times, at, Bucket(full_at, bucket.closed_until)
