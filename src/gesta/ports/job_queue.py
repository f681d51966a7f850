"""Station 5, port: the queue holds pointers, never data or secrets.

Projector and sweep put; workers take under a lease.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from gesta.domain.ids import flow_of_external_queue
from gesta.domain.state import JobKind


class Job(msgspec.Struct, frozen=True, gc=False):
    """A pointer to a request's open operation."""

    #: `{requestId}-{dispatchVersion}`; where the caller brought the id, tenant and flow are part of
    #: it (State.job_id).
    id: str
    tenant: str
    #: What it is taken by: the flow, or the lane of a tenant where others execute the flow
    #: (domain/ids.py, lane_of).
    flow: str
    request_id: str
    dispatch_version: int
    kind: JobKind = "execute"
    due_ms: int = 0
    #: 1 = most urgent, 10 = least.
    priority: int = 5
    #: Put back by sweep, restore or rebuild: nobody knows whether an earlier job of this id was
    #: executed.
    possibly_executed: bool = False


class LeasedJob(msgspec.Struct, frozen=True, gc=False):
    """A job under a lease. `takes` above 1: an earlier take has no recorded end."""

    job: Job
    token: str
    takes: int
    #: When it could have been taken first; what queue_lag_ms is measured from.
    available_ms: int

    @property
    def is_possibly_executed(self) -> bool:
        return self.takes > 1 or self.job.possibly_executed


class Ack(msgspec.Struct, frozen=True, gc=False):
    """The job is done with."""

    job_id: str
    token: str


class Release(msgspec.Struct, frozen=True, gc=False):
    """Back into the queue, not before `due_ms`; the take counts as ended."""

    job_id: str
    token: str
    due_ms: int


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Remove the job if nobody holds it and nobody may have held it without a recorded end."""

    job_id: str


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Set the job aside under a scope until `unhold`: nothing was called.

    Whoever may have held it before stays remembered.
    """

    job_id: str
    token: str
    scope: str


class HeldJob(msgspec.Struct, frozen=True, gc=False):
    """How many of a tenant's jobs are held under a scope."""

    tenant: str
    scope: str
    count: int


Settlement = Ack | Release | Drop | Hold
#: done: acked, released, held or removed. lost: the lease is another's by now. active: somebody
#: holds it. absent: no such job.
Settled = Literal["done", "lost", "active", "absent"]


#: No lease lasts longer.
LONGEST_LEASE_MS = 600_000

#: Waits for its time, is ready to be taken, leased by a worker, or held by a pause.
JobState = Literal["waiting", "ready", "leased", "held"]


class QueueStanding(msgspec.Struct, frozen=True, gc=False):
    """A live job as it stands, for people who look."""

    job: Job
    state: JobState
    #: Takes without a recorded end, the present one included.
    takes: int
    #: When the lease on it ends or ended; None: it is not leased.
    until_ms: int | None = None

    def is_abandoned(self, now_ms: int) -> bool:
        """Its lease is over, and nobody has come for it since.

        One that ends later than any lasts was made before the clock was set back.
        """
        return self.until_ms is not None and not now_ms < self.until_ms <= now_ms + LONGEST_LEASE_MS


class Backlog(msgspec.Struct, frozen=True, gc=False):
    """How many live jobs a flow has."""

    waiting: int = 0
    ready: int = 0
    #: Abandoned ones included.
    leased: int = 0
    #: Since when the oldest ready one could have been taken.
    oldest_ready_ms: int | None = None
    held: int = 0
    #: Leased ones whose lease is over: whoever took them is gone, and nobody has come for them
    #: since.
    abandoned: int = 0

    @property
    def at_work(self) -> int:
        """How many somebody has in hand."""
        return self.leased - self.abandoned


def by_flow(backlog: Mapping[str, Backlog]) -> dict[str, Backlog]:
    """The same with all lanes of a flow as one."""
    found: dict[str, list[Backlog]] = {}
    for name, one in backlog.items():
        found.setdefault(flow_of_external_queue(name), []).append(one)
    return {flow: _together(parts) for flow, parts in found.items()}


def _together(parts: list[Backlog]) -> Backlog:
    oldest = min(
        (one.oldest_ready_ms for one in parts if one.oldest_ready_ms is not None), default=None
    )
    names = ("waiting", "ready", "leased", "held", "abandoned")
    return Backlog(
        oldest_ready_ms=oldest, **{name: sum(getattr(one, name) for one in parts) for name in names}
    )


class JobQueue(Protocol):
    """The core of a queue; each call carries many jobs.

    A job gets its turn (domain/fair_queue.py) when it becomes ready: put or released when due, due
    after a delay, or unheld. Turns are fair between the tenants of a flow.
    """

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        """True: created. False: a job of that id is live already; nothing changed.

        On disk when it returns: a relay forgets them then.
        """

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        """Lease up to `flows[flow]` due jobs of each flow in their turns, including jobs whose
        lease expired; and when the next job falls due.

        `durable`: the lease serves as the journal, so it must be on disk before this returns.
        """

    async def leased_by(self, token: str) -> list[LeasedJob]:
        """The jobs leased under this token, as `take` returned them: for a worker that lost the
        answer.
        """

    async def extend(self, token: str, lease_seconds: float) -> bool:
        """Renew every lease of this token. False: it expired; another worker may have its jobs."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Ack, release, hold or drop, each fenced by its token.

        `Hold` is settled only where the store has JobHolds.
        """

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are live."""

    async def ready(self, timeout_seconds: float) -> None:
        """Return when a job may be ready, at the latest after the timeout. A hint, never a
        promise.
        """


class JobInspection(Protocol):
    """What the queue holds, for operators, gauges and backpressure."""

    async def count(self, limit: int) -> int:
        """How many jobs are live, counted up to `limit`."""

    async def backlog(self) -> dict[str, Backlog]:
        """What is live, by flow. May read every job: never called by the pipeline."""

    async def jobs(self, after_id: str, limit: int) -> list[QueueStanding]:
        """Live jobs in the order of their ids, behind `after_id`."""


class JobHolds(Protocol):
    """Jobs that a pause keeps out of the way. The settlement `Hold` puts a job there."""

    async def unhold(self, scope: str, limit: int) -> int:
        """Make up to `limit` jobs that are held under this scope ready again; how many.

        Fewer than `limit`: none is left.
        """

    async def held(self) -> list[HeldJob]:
        """What is held, counted by tenant and scope."""


class ExternalLeases(Protocol):
    """Jobs leased to external workers, each under a lease of its own. `take` never returns them."""

    async def lease_external(
        self, token: str, external_queue: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        """Lease up to `limit` due jobs of an external queue in their turns; on disk when it
        returns: the lease is the journal.

        Only the holder renews these leases. An expired one stays until `expired_leases` takes it
        over.
        """

    async def prolong(self, job_id: str, token: str, lease_seconds: float) -> int | None:
        """The new end of the lease on a job, never earlier than before; None: this token no longer
        holds it.
        """

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        """Take over up to `limit` jobs with expired leases, of all external queues whose names
        begin with this prefix.
        """

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        """Which of these external queues have a job that could be leased now."""
