"""Batches give way: while several tenants are at work, a large submit_many leaves the others their
share of the road.

The log has one order, and the projector goes through it. What a batch appends stands before whoever
comes next, so a tenant that submits
batch after batch would make all others wait for its own projection. A tenant that is alone is never
slowed down.
"""

from collections.abc import Awaitable, Callable

from gesta.runtime.clock import Runtime, sleep

#: Several tenants are at work when requests of different ones came within this time.
TOGETHER_SECONDS = 1.0
#: Requests of a batch that are appended at once then.
PART = 100
#: After each part a batch waits for the projector, and then so many times as long as all this has
#: taken: it has a tenth of the road.
REST = 9
#: Neither wait is longer than this.
WAIT_SECONDS_MAX = 1.0


class BatchThrottle:
    def __init__(
        self, runtime: Runtime, not_far_behind: Callable[[float], Awaitable[None]]
    ) -> None:
        self._runtime, self._not_far_behind = runtime, not_far_behind
        #: Whose request came last, and when that was last another tenant's than the one before.
        self.tenant = ""
        self._changed_at = float("-inf")

    def saw(self, tenant: str) -> None:
        """A request has come, of another tenant than the one before."""
        if self.tenant:
            self._changed_at = self._runtime.monotonic()
        self.tenant = tenant

    @property
    def is_mixed(self) -> bool:
        """Whether several tenants are at work."""
        return self._runtime.monotonic() - self._changed_at < TOGETHER_SECONDS

    async def give_way(self, began: float) -> None:
        """Called between two parts of a batch; the one before began then."""
        await self._not_far_behind(WAIT_SECONDS_MAX)
        leased = self._runtime.monotonic() - began
        if leased > 0:
            await sleep(self._runtime, min(leased * REST, WAIT_SECONDS_MAX))
