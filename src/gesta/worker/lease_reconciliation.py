"""Reconciles the leases the queue holds for this process with the jobs it knows.

The answer of the queue may be lost, or be overtaken by a settlement that is retried
(requests/store_retry.py). While the lease is renewed, no other worker takes such a job: so the
queue is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gesta.ports.job_queue import JobQueue, LeasedJob
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Runtime
from gesta.worker.lease import LEASE_SECONDS, MARGIN_SECONDS, NEVER, Lease

#: The queue is asked no more often than this.
LOOK_SECONDS = 1.0
#: For so long after an answer was lost: what was asked for may still be done when its connection is
#: gone.
LOST_SECONDS = 60.0


class Asked(NamedTuple):
    """A request for jobs: the token and the time, by the clock and by the count of retries."""

    token: str
    at: float
    since: int


class LeaseReconciliation:
    def __init__(
        self, queue: JobQueue, lease: Lease, *, store_retry: StoreRetry, runtime: Runtime
    ) -> None:
        self._queue, self._lease, self._store_retry = queue, lease, store_retry
        self._runtime = runtime
        self._lost_until = NEVER
        #: Jobs of which only the queue knows whether they are ours.
        self._doubted: set[str] = set()
        self._next_look = 0.0
        self._is_looking = False

    @property
    def is_uncertain(self) -> bool:
        """Whether the queue is being asked, or has to be asked soon: what it tells must not come by
        another way meanwhile.
        """
        return (
            self._is_looking or bool(self._doubted) or self._runtime.monotonic() < self._lost_until
        )

    @property
    def is_in_doubt(self) -> bool:
        now = self._runtime.monotonic()
        return (now < self._lost_until or bool(self._doubted)) and now >= self._next_look

    def answer_lost(self) -> None:
        """A take may have brought something, or do so yet."""
        self._lost_until = self._runtime.monotonic() + LOST_SECONDS

    def doubt(self, job_id: str) -> None:
        self._doubted.add(job_id)

    def ask(self) -> Asked:
        """To be kept until the queue has answered."""
        return Asked(self._lease.token, self._runtime.monotonic(), self._store_retry.count)

    def age(self, asked: Asked) -> float:
        return self._runtime.monotonic() - asked.at

    def renewed(self, asked: Asked) -> None:
        """The queue has leased or renewed jobs under this token."""
        self._lease.renewed(asked.token, asked.at)

    def sure(self, leased: list[LeasedJob], asked: Asked) -> list[LeasedJob]:
        """Without jobs that a retry may have released while the answer was on its way.

        An answer that took longer than the lease lasts says nothing: other workers may have had the
        jobs meanwhile.
        """
        if leased and self.age(asked) >= LEASE_SECONDS - MARGIN_SECONDS:
            self.answer_lost()
            return []
        sure = [one for one in leased if not self._store_retry.spoke_of(one.job.id, asked.since)]
        if len(sure) < len(leased):
            self._doubted |= {one.job.id for one in leased} - {one.job.id for one in sure}
        return sure

    async def look(self, known: Iterable[str]) -> list[LeasedJob]:
        """What is ours beside the jobs that are `known`.

        Raises StoreError; then it has to be asked again.
        """
        asked = self.ask()
        here, doubted = frozenset(known), set(self._doubted)
        self._next_look, self._is_looking = asked.at + LOOK_SECONDS, True
        try:
            is_held = await self._queue.extend(asked.token, LEASE_SECONDS)
            held = await self._queue.leased_by(asked.token) if is_held else []
        finally:
            self._is_looking = False
        if is_held:
            self.renewed(asked)
        ids = {one.job.id for one in held}
        self._doubted -= doubted - ids
        if asked.at < self._lost_until:
            # One that somebody here is about to give back may have been given back already, and
            # taken by that take.
            self._doubted |= ids & here
        found = self.sure([one for one in held if one.job.id not in here], asked)
        self._doubted -= {one.job.id for one in found}
        return found
