"""The lease of this process on the jobs it holds: renewed once a second for all of them together.

A worker that cannot renew ends its calls before the lease does: after that, another worker may call
the provider.
"""

from __future__ import annotations

from collections.abc import Callable

from gesta.ports.job_queue import JobQueue
from gesta.runtime.clock import Timer, sleep
from gesta.runtime.component import Process, repeat

LEASE_SECONDS = 4.0
RENEWAL_SECONDS = 1.0
#: Calls are cut this long before the lease ends, so that they are over when another worker may
#: begin.
MARGIN_SECONDS = 1.0
NEVER = float("-inf")


class Lease:
    def __init__(self, queue: JobQueue, process: Process, cut: Callable[[], None]) -> None:
        self._queue, self._process, self._cut = queue, process, cut
        self._runtime, self._ids = process.runtime, process.ids
        self.token = process.ids.new()
        self._until = NEVER
        self._watch: Timer | None = None
        #: Jobs taken and not settled yet.
        self.held = 0

    def renewed(self, token: str, asked_at: float) -> None:
        """A take or renewal that was asked for then has been granted."""
        if token != self.token:
            # Lost while the answer was on its way.
            return
        self._until = max(self._until, asked_at + LEASE_SECONDS)
        if self._watch is None:
            self._watch_the_end()

    def covers(self, token: str) -> bool:
        """Whether a call for a job under this token starts under the lease, with the margin to
        spare.
        """
        return token == self.token and self._runtime.monotonic() < self._until - MARGIN_SECONDS

    async def keep(self) -> None:
        """Renew for ever; when that fails for too long, the calls are cut and work goes on under a
        new token.
        """
        await repeat(self._renew, "lease", self._process, pause_seconds=0.0)

    async def _renew(self) -> None:
        await sleep(self._runtime, RENEWAL_SECONDS)
        if self.held == 0 or self._until == NEVER:
            return
        asked_at, token = self._runtime.monotonic(), self.token
        if await self._queue.extend(token, LEASE_SECONDS):
            self.renewed(token, asked_at)
        elif token == self.token:
            self.lose("another worker may have its jobs")

    def _watch_the_end(self) -> None:
        left = self._until - MARGIN_SECONDS - self._runtime.monotonic()
        self._watch = self._runtime.call_later(max(0.0, left), self._end_comes_near)

    def _end_comes_near(self) -> None:
        # By the clock and not by a renewal's answer: a store may be silent for longer than the
        # lease lasts.
        self._watch = None
        if self._until == NEVER:
            return
        if self.covers(self.token):
            self._watch_the_end()
        elif self.held:
            self.lose("it could not be renewed in time")
        else:
            # What was left to its end must find one: a take that is granted after this would renew
            # it.
            self.resign()

    def lose(self, why: str) -> None:
        """Cut the calls and go on under a new token."""
        self._process.telemetry.log.warning("lease lost", reason=why, held=self.held)
        self.resign()
        self._cut()

    def resign(self) -> None:
        """No call starts under this lease any more."""
        self.token, self._until = self._ids.new(), NEVER
