"""How long to wait before the next attempt, and when to stop trying."""

import msgspec

#: A longer Retry-After is cut to this: a later time would not fit into an event.
LONGEST_WAIT_SECONDS = 366 * 86_400.0


class RetryPolicy(msgspec.Struct, frozen=True):
    """Exponential backoff with full jitter and a cap; or a fixed schedule with a little jitter,
    where a contract requires one.
    """

    #: Attempts in all, the first one included.
    attempts: int = 5
    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    #: No attempt starts later than this after the first one. None: only `attempts` limits them.
    elapsed_seconds: float | None = None
    #: Seconds before attempt 2, 3, …; the last value repeats. Replaces the doubling and its cap.
    schedule_seconds: tuple[float, ...] = ()
    #: A scheduled delay is extended by up to this share, so that many requests do not retry at the
    #: same time.
    schedule_jitter: float = 0.1
    #: A scheduled delay is shortened by up to this share, where a contract says ±.
    schedule_shrink: float = 0.0

    def delay_seconds(
        self, attempts_made: int, chance: float, retry_after_seconds: float = 0.0
    ) -> float | None:
        """Seconds to wait after `attempts_made` attempts, at least as long as the provider asked
        for; None when no attempt is left.

        `chance` is a random number in [0, 1) from the caller, so that the same command always
        gives the same events.
        """
        if attempts_made >= self.attempts:
            return None
        if self.schedule_seconds:
            planned = self.schedule_seconds[
                max(0, min(attempts_made, len(self.schedule_seconds)) - 1)
            ]
            backoff = planned * (
                1 - self.schedule_shrink + (self.schedule_shrink + self.schedule_jitter) * chance
            )
        else:
            # The exponent is limited: a thousand attempts would overflow a float.
            backoff = chance * min(
                self.cap_seconds, self.base_seconds * 2 ** min(attempts_made - 1, 30)
            )
        return min(max(backoff, retry_after_seconds), LONGEST_WAIT_SECONDS)
