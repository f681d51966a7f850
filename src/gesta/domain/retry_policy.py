"""How long to wait before the next attempt, or that there is none."""

import msgspec

#: A provider that says "in a thousand years" is asked again in one; any later moment would not even
#: fit into an event.
LONGEST_WAIT_SECONDS = 366 * 86_400.0


class RetryPolicy(msgspec.Struct, frozen=True):
    """Full jitter over a doubling, capped ceiling; or a fixed schedule with a little jitter where a
    contract names one.
    """

    #: Attempts in all, the first one included.
    attempts: int = 5
    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    #: No attempt starts later than this after the first one. None: only `attempts` bounds it.
    elapsed_seconds: float | None = None
    #: Seconds before attempt 2, 3, …; the last value repeats. Replaces the doubling and its cap.
    schedule_seconds: tuple[float, ...] = ()
    #: A scheduled delay is stretched by up to this share, so that a thousand receivers do not come
    #: back at once.
    schedule_jitter: float = 0.1
    #: And shortened by up to this share, where a contract says ±.
    schedule_shrink: float = 0.0

    def delay_seconds(
        self, attempts_made: int, chance: float, retry_after_seconds: float = 0.0
    ) -> float | None:
        """The wait after `attempts_made` attempts, never shorter than the provider asked for; None
        when the budget is spent.

        `chance` is a random number in [0, 1) that the caller drew, so that the same command always
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
            # The exponent is bounded so that a policy of a thousand attempts does not overflow a
            # float.
            backoff = chance * min(
                self.cap_seconds, self.base_seconds * 2 ** min(attempts_made - 1, 30)
            )
        return min(max(backoff, retry_after_seconds), LONGEST_WAIT_SECONDS)
