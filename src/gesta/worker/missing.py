"""Jobs whose requests are not there yet: where queue and log are different servers, a pointer may
be ahead of the log it points into, for a moment.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from gesta.ports.job_queue import LeasedJob

TRIES = 5
PAUSE_MS = 500
#: Another process may find what we did not: so many are remembered at most.
KEPT = 10_000


class Missing:
    def __init__(self) -> None:
        #: Job → how often its request was not there.
        self._tries: dict[str, int] = {}

    def is_hopeless(self, job_id: str) -> bool:
        """Count one more try; whether it was the last."""
        tries = self._tries.pop(job_id, 0) + 1
        if tries >= TRIES:
            return True
        if len(self._tries) >= KEPT:
            self._tries.clear()
        self._tries[job_id] = tries
        return False

    def found(self, leased: Iterable[LeasedJob], found: Container[str]) -> None:
        """Forget those whose requests are there after all; `found` has the ids of their jobs."""
        if self._tries:
            for one in leased:
                if one.job.id in found:
                    self._tries.pop(one.job.id, None)

    def __len__(self) -> int:
        return len(self._tries)
