"""How much a key may ask of one process: so many calls a second, and twice as many at once after a
rest.
"""

from __future__ import annotations

from math import ceil

#: Keys whose rate is remembered. Those that rest are full again, so they can be forgotten.
KEYS_MAX = 10_000


class KeyRates:
    """A bucket per key, in this process: it keeps one caller from taking the machine, not from
    adding up over many.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self.burst = max(1, round(per_second * 2))
        #: As a header tells it.
        self.told = b"%d" % self.burst
        #: Key → tokens that were left, and when.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key_id: str, weight: int, now: float) -> tuple[int, int]:
        """How many are left, and after how many seconds this call would be taken; 0: it is."""
        left, at = self._buckets.get(key_id, (float(self.burst), now))
        left = min(float(self.burst), left + (now - at) * self._per_second)
        # A batch that is larger than any bucket must not wait for ever: it takes a full one.
        needed = min(weight, self.burst)
        if needed > left:
            return 0, max(1, ceil((needed - left) / self._per_second))
        if len(self._buckets) >= KEYS_MAX and key_id not in self._buckets:
            self._buckets.clear()
        self._buckets[key_id] = left - needed, now
        return int(left - needed), 0
