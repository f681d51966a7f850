"""The lease of this process on the jobs it holds: renewed once a second for all of them together,
and reconciled with the queue when an answer was lost.

A worker that cannot renew the lease cancels its calls before the lease ends: after that, another
worker may call the provider.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gesta.ports.job_queue import JobQueue, LeasedJob
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Runtime, Timer, sleep
from gesta.runtime.component import Process, repeat

LEASE_SECONDS = 4.0
RENEWAL_SECONDS = 1.0
#: Calls are cancelled this long before the lease ends, so that they have ended when another worker
#: may begin.
MARGIN_SECONDS = 1.0
#: The queue is asked no more often than this.
LOOK_SECONDS = 1.0
#: The queue is asked for this long after an answer was lost: the call may still be executed after
#: its connection was closed.
LOST_SECONDS = 60.0
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
        """A take or renewal that was requested at that time has been granted."""
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
        """Renew until cancelled. When that fails for too long, the calls are cancelled and work
        continues under a new token.
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
            # Jobs that were left under this lease need it to expire; a later take would renew it.
            self.resign()

    def lose(self, why: str) -> None:
        """Cancel the calls and continue under a new token."""
        self._process.telemetry.log.warning("lease lost", reason=why, held=self.held)
        self.resign()
        self._cut()

    def resign(self) -> None:
        """From now on no call starts under this lease."""
        self.token, self._until = self._ids.new(), NEVER


class Asked(NamedTuple):
    """A request for jobs: the token and the time, by the clock and by the count of retries."""

    token: str
    at: float
    since: int


class LeaseReconciliation:
    """Reconciles the leases the queue holds for this process with the jobs it knows.

    The answer of the queue may be lost, or be overtaken by a settlement that is retried
    (requests/store_retry.py). While the lease is renewed, no other worker takes such a job: so the
    queue is asked.
    """

    def __init__(
        self, queue: JobQueue, lease: Lease, *, store_retry: StoreRetry, runtime: Runtime
    ) -> None:
        self._queue, self._lease, self._store_retry = queue, lease, store_retry
        self._runtime = runtime
        self._lost_until = NEVER
        #: Jobs of which only the queue knows whether this process holds them.
        self._uncertain: set[str] = set()
        self._next_look = 0.0
        self._is_looking = False

    @property
    def is_uncertain(self) -> bool:
        """Whether the queue is being asked or must be asked soon. Until then no job may arrive by
        eager dispatch.
        """
        return (
            self._is_looking
            or bool(self._uncertain)
            or self._runtime.monotonic() < self._lost_until
        )

    @property
    def should_look(self) -> bool:
        now = self._runtime.monotonic()
        return (now < self._lost_until or bool(self._uncertain)) and now >= self._next_look

    def answer_lost(self) -> None:
        """A take may have leased jobs, or may still do so."""
        self._lost_until = self._runtime.monotonic() + LOST_SECONDS

    def mark_uncertain(self, job_id: str) -> None:
        self._uncertain.add(job_id)

    def ask(self) -> Asked:
        """The token and time of a request to the queue, kept until it is answered."""
        return Asked(self._lease.token, self._runtime.monotonic(), self._store_retry.count)

    def age(self, asked: Asked) -> float:
        return self._runtime.monotonic() - asked.at

    def renewed(self, asked: Asked) -> None:
        """The queue has leased or renewed jobs under this token."""
        self._lease.renewed(asked.token, asked.at)

    def sure(self, leased: list[LeasedJob], asked: Asked) -> list[LeasedJob]:
        """Removes jobs that a retry may have released while the answer was in transit.

        An answer that took longer than the lease lasts proves nothing: other workers may have had
        the jobs meanwhile.
        """
        if leased and self.age(asked) >= LEASE_SECONDS - MARGIN_SECONDS:
            self.answer_lost()
            return []
        if self._store_retry.is_quiet(asked.since):
            return leased
        sure = [
            one for one in leased if not self._store_retry.was_repeated(one.job.id, asked.since)
        ]
        if len(sure) < len(leased):
            self._uncertain |= {one.job.id for one in leased} - {one.job.id for one in sure}
        return sure

    async def look(self, known: Iterable[str]) -> list[LeasedJob]:
        """The jobs of this process beside the jobs that are `known`.

        Raises StoreError; then the queue has to be asked again.
        """
        asked = self.ask()
        here, uncertain = frozenset(known), set(self._uncertain)
        self._next_look, self._is_looking = asked.at + LOOK_SECONDS, True
        try:
            is_held = await self._queue.extend(asked.token, LEASE_SECONDS)
            held = await self._queue.leased_by(asked.token) if is_held else []
        finally:
            self._is_looking = False
        if is_held:
            self.renewed(asked)
        ids = {one.job.id for one in held}
        self._uncertain -= uncertain - ids
        if asked.at < self._lost_until:
            # A job that is about to be released here may already be released, and leased again by
            # the take whose answer was lost.
            self._uncertain |= ids & here
        found = self.sure([one for one in held if one.job.id not in here], asked)
        self._uncertain -= {one.job.id for one in found}
        return found
