"""Batches give way: while several tenants are at work, a large submit_many leaves the others their share of the road.

The log has one order, and the projector goes through it. What a batch appends stands before whoever comes next, so a tenant that submits
batch after batch would make all others wait for its own projection. A tenant that is alone is never slowed down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gesta.runtime import Runtime, sleep

#: Several tenants are at work when requests of different ones came within this time.
TOGETHER_SECONDS = 1.0
#: A batch waits at most this long for the projector, and then once more as long as it has taken itself, up to this.
WAIT_SECONDS_MAX = 1.0


class Company:
    """Whether a tenant is alone at work in this process, told by whose requests come by."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        #: Whose request came last, and when that was last another tenant's than the one before.
        self._tenant = ""
        self._changed_at = float("-inf")

    def saw(self, tenant: str) -> None:
        if tenant != self._tenant:
            if self._tenant:
                self._changed_at = self._runtime.monotonic()
            self._tenant = tenant

    @property
    def is_mixed(self) -> bool:
        return self._runtime.monotonic() - self._changed_at < TOGETHER_SECONDS


class Pace:
    def __init__(self, runtime: Runtime, company: Company, catch_up: Callable[[float], Awaitable[None]]) -> None:
        self._runtime, self._company, self._catch_up = runtime, company, catch_up
        self.saw = company.saw

    async def give_way(self, began: float) -> None:
        """Called by a batch that began then and is about to be appended."""
        if not self._company.is_mixed:
            return
        await self._catch_up(WAIT_SECONDS_MAX)
        taken = self._runtime.monotonic() - began
        if taken > 0:
            await sleep(self._runtime, min(taken, WAIT_SECONDS_MAX))
