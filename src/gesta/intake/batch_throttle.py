"""Slows down large batches while several tenants submit.

The projector reads the log in order, so a tenant that submits batch after batch would make all
others wait for its projection. A tenant that is alone is never slowed down.
"""

from collections.abc import Awaitable, Callable

from gesta.runtime.clock import Runtime, sleep

#: Several tenants are active if requests of different tenants arrived within this time.
TOGETHER_SECONDS = 1.0
#: How many requests of a batch are then appended in one part.
PART = 100
#: After each part a batch waits for the projector, and then this many times as long as the part
#: took: it uses a tenth of the capacity.
REST = 9
#: Neither wait is longer than this.
WAIT_SECONDS_MAX = 1.0


class BatchThrottle:
    def __init__(
        self, runtime: Runtime, not_far_behind: Callable[[float], Awaitable[None]]
    ) -> None:
        self._runtime, self._not_far_behind = runtime, not_far_behind
        #: The tenant of the last request, and when it last changed.
        self.tenant = ""
        self._changed_at = float("-inf")

    def saw(self, tenant: str) -> None:
        """Note a request of a tenant other than the previous one."""
        if self.tenant:
            self._changed_at = self._runtime.monotonic()
        self.tenant = tenant

    @property
    def is_mixed(self) -> bool:
        """Whether several tenants are active."""
        return self._runtime.monotonic() - self._changed_at < TOGETHER_SECONDS

    async def give_way(self, began: float) -> None:
        """Wait between two parts of a batch. `began`: when the last part began."""
        await self._not_far_behind(WAIT_SECONDS_MAX)
        leased = self._runtime.monotonic() - began
        if leased > 0:
            await sleep(self._runtime, min(leased * REST, WAIT_SECONDS_MAX))
