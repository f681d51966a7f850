"""Port: the job queue. Jobs are pointers to requests, without data or secrets.

Projector and sweeper put jobs; workers take them under a lease.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from gesta.domain.ids import flow_of_external_queue
from gesta.domain.state import JobKind
from gesta.ports.leases import is_current


class Job(msgspec.Struct, frozen=True, gc=False):
    """A pointer to a request's open operation."""

    #: `{requestId}-{dispatchVersion}`; with tenant and flow if callers choose ids (State.job_id).
    id: str
    tenant: str
    #: The flow, or the external queue of a tenant (domain/ids.py).
    flow: str
    request_id: str
    dispatch_version: int
    kind: JobKind = "execute"
    due_ms: int = 0
    #: 1 = most urgent, 10 = least.
    priority: int = 5
    #: Put again by sweeper, restore or rebuild: an earlier job of this id may have been executed.
    possibly_executed: bool = False


class LeasedJob(msgspec.Struct, frozen=True, gc=False):
    """A job under a lease. `takes` above 1: an earlier lease has no recorded end."""

    job: Job
    token: str
    takes: int
    #: When it became available; queue_lag_ms is measured from then.
    available_ms: int
    #: The queue may have further copies of the job (no UniqueJobs). Then every attempt is
    #: journaled, and the journal shows what was executed.
    may_be_copy: bool = False

    @property
    def is_possibly_executed(self) -> bool:
        return self.takes > 1 or self.job.possibly_executed


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Delete the job."""

    job_id: str
    token: str


class Release(msgspec.Struct, frozen=True, gc=False):
    """Put the job back, not to be leased before `due_ms`; its lease has a recorded end."""

    job_id: str
    token: str
    due_ms: int


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Delete the job if it is not leased and every earlier lease has a recorded end."""

    job_id: str


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Hold the job under a scope until `unhold`: this lease executed nothing.

    An earlier lease without a recorded end stays noted.
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
#: done: as asked. lost: the token no longer holds the job. active: a Drop found the job leased or
#: possibly executed. absent: no such job.
Settled = Literal["done", "lost", "active", "absent"]

#: Waits for its time, is ready, leased by a worker, or held by a pause.
JobState = Literal["waiting", "ready", "leased", "held"]


class QueueStanding(msgspec.Struct, frozen=True, gc=False):
    """A live job and its state, for operators."""

    job: Job
    state: JobState
    #: Leases without a recorded end, the present one included.
    takes: int
    #: The end of its lease; None: it is not leased.
    until_ms: int | None = None

    def is_abandoned(self, now_ms: int) -> bool:
        """Whether its lease has expired and no worker has taken it since."""
        return self.until_ms is not None and not is_current(self.until_ms, now_ms)


class Backlog(msgspec.Struct, frozen=True, gc=False):
    """How many live jobs a flow has."""

    waiting: int = 0
    ready: int = 0
    #: Abandoned ones included.
    leased: int = 0
    #: Since when the oldest ready job could have been leased.
    oldest_ready_ms: int | None = None
    held: int = 0
    #: Leased jobs whose lease has expired: their worker is gone.
    abandoned: int = 0

    @property
    def at_work(self) -> int:
        """How many a live worker holds."""
        return self.leased - self.abandoned


def by_flow(backlog: Mapping[str, Backlog]) -> dict[str, Backlog]:
    """The backlog with the external queues of a flow added up."""
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
    """The core of a queue.

    A job gets its turn (domain/fair_queue.py) when it becomes ready: put or released when due, due
    after a delay, or unheld. Turns are fair between the tenants of a flow.
    """

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        """True: created. False: a job of that id is live and stays as it is. Without UniqueJobs a
        live id may be created again.

        On disk when it returns: the relay then deletes its undispatched jobs.
        """

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        """Lease up to `flows[flow]` due jobs of each flow in their turns, including jobs whose
        lease expired; and when the next job is due.

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

        `Hold` is settled only where the store has JobHolds, `Drop` only where it has UniqueJobs.
        """

    async def ready(self, timeout_seconds: float) -> None:
        """Return when a job may be ready, or after the timeout."""


class UniqueJobs(Protocol):
    """A queue that knows its jobs by id: it has one job per id, can drop it, and knows whether it
    is live.

    Without it the queue delivers at least once, and stores/waiting_room.py makes up for it.
    """

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are live."""


class JobCounts(Protocol):
    """For a queue that estimates how many jobs it has and cannot list them."""

    async def count(self, limit: int) -> int:
        """How many jobs are live, counted up to `limit`."""

    async def backlog(self) -> dict[str, Backlog]:
        """What is live, by flow. May read every job: never called by the pipeline."""

    async def moved(self) -> dict[str, int]:
        """Flow → how many jobs the broker has taken out of the queue: their workers died."""


class JobInspection(Protocol):
    """What the queue holds, for operators, gauges and backpressure."""

    async def count(self, limit: int) -> int:
        """How many jobs are live, counted up to `limit`."""

    async def backlog(self) -> dict[str, Backlog]:
        """What is live, by flow. May read every job: never called by the pipeline."""

    async def jobs(self, after_id: str, limit: int) -> list[QueueStanding]:
        """Live jobs in the order of their ids, after an id."""


class JobHolds(Protocol):
    """Jobs that a pause holds. The settlement `Hold` holds a job."""

    async def unhold(self, scope: str, limit: int) -> int:
        """Make up to `limit` jobs that are held under this scope ready again; returns how many.

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
        """Extend the lease on a job; returns its end, never earlier than before. None: this token
        no longer holds it.
        """

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        """Take over up to `limit` jobs with expired leases, of all external queues whose names
        begin with this prefix.
        """

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        """Which of these external queues have a job that could be leased now."""
