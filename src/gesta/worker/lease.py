"""The lease of this process on the jobs it holds: renewed once a second for all of them together.

A worker that cannot renew ends its calls before the lease does: after that, another worker may call the provider.
"""

from __future__ import annotations

from collections.abc import Callable

from gesta.errors import StoreError
from gesta.job_queue import JobQueue
from gesta.runtime import Ids, Runtime, sleep
from gesta.telemetry import Telemetry

LEASE_SECONDS = 4.0
RENEWAL_SECONDS = 1.0
#: Calls are cut this long before the lease ends, so that they are over when another worker may begin.
MARGIN_SECONDS = 1.0


class Lease:
    def __init__(self, queue: JobQueue, runtime: Runtime, ids: Ids, telemetry: Telemetry, cut: Callable[[], None]) -> None:
        self._queue, self._runtime, self._ids, self._telemetry = queue, runtime, ids, telemetry
        self._cut = cut
        self.token = ids.new()
        self._until = float("-inf")
        #: Jobs taken and not settled yet.
        self.held = 0

    def renewed(self, asked_at: float) -> None:
        """A take or renewal that was asked for then has been granted."""
        self._until = max(self._until, asked_at + LEASE_SECONDS)

    def is_mine(self) -> bool:
        """Whether a call that starts now starts under the lease, with the margin to spare."""
        return self._runtime.monotonic() < self._until - MARGIN_SECONDS

    async def keep(self) -> None:
        """Renew for ever; when that fails for too long, cut the calls and go on under a new token."""
        while True:
            await sleep(self._runtime, RENEWAL_SECONDS)
            if self.held == 0:
                continue
            asked_at = self._runtime.monotonic()
            try:
                if await self._queue.extend(self.token, LEASE_SECONDS):
                    self.renewed(asked_at)
                else:
                    self._lose("another worker may have its jobs")
            except StoreError as error:
                self._telemetry.store_failed("lease", error)
                if not self.is_mine():
                    self._lose("the store is out of reach")

    def _lose(self, why: str) -> None:
        self._telemetry.log.warning("lease lost", reason=why, held=self.held)
        self.token, self._until = self._ids.new(), float("-inf")
        self._cut()
