"""What the queue holds for this process and nobody here knows of, or may not know of.

The answer to a take may be lost, or be overtaken by a settlement that is repeated (repeats.py).
While the lease is renewed, nobody else
would take such a job: so the queue is asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from gesta.ports.job_queue import JobQueue, LeasedJob
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Runtime
from gesta.worker.lease import LEASE_SECONDS, MARGIN_SECONDS, NEVER, Lease

#: The queue is asked no more often than this.
LOOK_SECONDS = 1.0
#: For so long after an answer was lost: what was asked for may still be done when its connection is
#: gone.
LOST_SECONDS = 60.0


class LeaseReconciliation:
    def __init__(
        self, queue: JobQueue, store_retry: StoreRetry, lease: Lease, runtime: Runtime
    ) -> None:
        self._queue, self._store_retry, self._lease, self._runtime = (
            queue,
            store_retry,
            lease,
            runtime,
        )
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

    def sure(self, leased: list[LeasedJob], since: int, asked_at: float) -> list[LeasedJob]:
        """Without those that were given back once more, perhaps, while the answer was on its way.

        Of an answer that was longer in coming than the lease lasts nothing is sure: others may have
        had them, and the lease been taken anew.
        """
        if leased and self._runtime.monotonic() - asked_at >= LEASE_SECONDS - MARGIN_SECONDS:
            self.answer_lost()
            return []
        sure = [one for one in leased if not self._store_retry.spoke_of(one.job.id, since)]
        if len(sure) < len(leased):
            self._doubted |= {one.job.id for one in leased} - {one.job.id for one in sure}
        return sure

    async def look(self, known: Iterable[str]) -> list[LeasedJob]:
        """What is ours beside the jobs that are `known`.

        Raises StoreError; then it has to be asked again.
        """
        asked_at, token, since = (
            self._runtime.monotonic(),
            self._lease.token,
            self._store_retry.count,
        )
        here, doubted = frozenset(known), set(self._doubted)
        self._next_look, self._is_looking = asked_at + LOOK_SECONDS, True
        try:
            is_held = await self._queue.extend(token, LEASE_SECONDS)
            held = await self._queue.leased_by(token) if is_held else []
        finally:
            self._is_looking = False
        if is_held:
            self._lease.renewed(token, asked_at)
        ids = {one.job.id for one in held}
        self._doubted -= doubted - ids
        if asked_at < self._lost_until:
            # One that somebody here is about to give back may have been given back already, and
            # taken by that take.
            self._doubted |= ids & here
        found = self.sure([one for one in held if one.job.id not in here], since, asked_at)
        self._doubted -= {one.job.id for one in found}
        return found
