"""A role that one process at a time should play: projecting, sweeping. A lease for thrift; correctness never rests on it."""

from __future__ import annotations

from gesta.runtime import Runtime
from gesta.views import Views

#: Those who wait look once in RENEWAL_SECONDS, so another process takes over at most the sum of both after the player died.
LEASE_SECONDS = 3.0
RENEWAL_SECONDS = 1.0


class Role:
    def __init__(self, name: str, owner: str, views: Views, runtime: Runtime) -> None:
        self._name, self._owner, self._views, self._runtime = name, owner, views, runtime
        self._renewed_at = float("-inf")

    @property
    def was_ours(self) -> bool:
        """Whether it was ours when it was last taken or renewed."""
        return self._renewed_at > float("-inf")

    async def is_ours(self) -> bool:
        """Take or renew the role, at most once a second."""
        now = self._runtime.monotonic()
        if now - self._renewed_at >= RENEWAL_SECONDS:
            self._renewed_at = now if await self._views.claim(self._name, self._owner, LEASE_SECONDS) else float("-inf")
        return self.was_ours
