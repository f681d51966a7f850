"""A role that one process at a time should play: projecting, sweeping.

A lease for thrift; correctness never rests on it.
"""

from __future__ import annotations

from contextlib import suppress

from gesta.errors import StoreError
from gesta.ports.read_model import ReadModel
from gesta.runtime.clock import Runtime

#: Those who wait look once in RENEWAL_SECONDS, so another process takes over at most the sum of
#: both after the player died.
LEASE_SECONDS = 3.0
RENEWAL_SECONDS = 1.0
NEVER = float("-inf")


class Role:
    def __init__(self, name: str, owner: str, views: ReadModel, runtime: Runtime) -> None:
        self._name, self._owner, self._views, self._runtime = name, owner, views, runtime
        self._renewed_at = NEVER
        self._is_given_up = False
        #: Whether the store has ever said who plays it: us, or somebody whom we can stand in for.
        self.is_known = False

    @property
    def was_ours(self) -> bool:
        """Whether it was ours when it was last taken or renewed."""
        return self._renewed_at > NEVER

    async def is_ours(self) -> bool:
        """Take or renew the role, at most once a second."""
        now = self._runtime.monotonic()
        if not self._is_given_up and now - self._renewed_at >= RENEWAL_SECONDS:
            is_ours = await self._views.claim(self._name, self._owner, LEASE_SECONDS)
            self.is_known = True
            # Given up while the answer was on its way, it must not look as if it were ours.
            self._renewed_at = now if is_ours and not self._is_given_up else NEVER
        return self.was_ours

    async def give_up(self) -> None:
        """Never play it again, so that the next process need not wait until the lease ends."""
        if not self._is_given_up:
            self._is_given_up, self._renewed_at = True, NEVER
            # A store that does not hear of it will see the lease end.
            with suppress(StoreError):
                await self._views.claim(self._name, self._owner, 0.0)
