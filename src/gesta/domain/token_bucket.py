"""A token bucket as one number: when it would be full again.

Tokens have times, and those of the near future can be reserved.
"""

import msgspec


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """Times are epoch milliseconds, with fractions: a thousand tokens a second are one a
    millisecond.
    """

    full_at: float = 0.0
    #: No token before this, however full it is.
    closed_until: float = 0.0


class Rate(msgspec.Struct, frozen=True, gc=False):
    """A token each `gap_ms`, and `burst` of them at once after a rest."""

    gap_ms: float
    burst: int


def reserve(
    bucket: Bucket, rate: Rate, tokens: int, now: float, ahead_ms: float
) -> tuple[list[float], float, Bucket]:
    """The times of up to so many tokens, none later than `ahead_ms` from now; the time of the one
    after them; and what is left.
    """
    opens, latest, lead_ms = (
        max(now, bucket.closed_until),
        now + ahead_ms,
        (rate.burst - 1) * rate.gap_ms,
    )
    gap_ms = rate.gap_ms
    # Later than all that could be reserved by now it is only where a clock was ahead: nobody has to
    # wait until the clock is there again.
    full_at = min(bucket.full_at, latest + rate.burst * gap_ms)
    times: list[float] = []
    while True:
        at = max(opens, full_at - lead_ms)
        if len(times) == tokens or at > latest:
            return times, at, Bucket(full_at, bucket.closed_until)
        times.append(at)
        full_at = max(full_at, at) + gap_ms
