"""The ports of one engine, as a store adapter provides them.

An adapter declares its capabilities by the ports that it fills in. If a port is missing, the engine
compensates where it can, and otherwise refuses with an error that names the port (`Missing`).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import NoReturn, TypeVar

from gesta.errors import BadSettings
from gesta.ports.checkpoints import Checkpoints
from gesta.ports.eager_dispatch import EagerJobs
from gesta.ports.event_store import EventRemoval, EventStore, KeyClaims
from gesta.ports.fences import Fences
from gesta.ports.foreign_jobs import ForeignJobs
from gesta.ports.job_queue import (
    ExternalLeases,
    JobCounts,
    JobHolds,
    JobInspection,
    JobQueue,
    UniqueJobs,
)
from gesta.ports.job_store import JobRows, Jobs, JobStore
from gesta.ports.leases import Leases
from gesta.ports.outbox import Outbox
from gesta.ports.read_model import ReadModel, SweepIndex
from gesta.ports.token_buckets import TokenBuckets
from gesta.ports.transactions import Transactions
from gesta.ports.undispatched_jobs import UndispatchedJobs
from gesta.ports.vault import Vault
from gesta.ports.view_positions import ViewPositions
from gesta.runtime.clock import Signal

T = TypeVar("T")


async def unknown() -> None:
    """For a store that has no file or disk of its own."""


@dataclass(frozen=True)
class Health:
    """The condition of a store. Sizes are in bytes."""

    schema: int
    errors: tuple[str, ...]
    #: Whether all of it was checked. The check of a large file ends after a few seconds.
    is_whole: bool
    size: int
    log_size: int
    #: Free bytes on the disk; None: the disk belongs to a server.
    free: int | None
    #: Files that users other than their owner may read.
    open_to_others: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class QueuePorts:
    """The ports of an adapter that is only a queue, for use beside a store."""

    queue: JobQueue
    close: Callable[[], Awaitable[None]]
    #: The time of the store. Leases, due times and expiry use it, never a process's own clock.
    now_ms: Callable[[], int]
    name: str = ""
    #: Whether a lease survives every crash of the database. If not, it cannot serve as the journal:
    #: the worker appends AttemptStarted before calls that must not be repeated blindly.
    leases_are_durable: bool = True
    #: None: the queue delivers at least once. The engine journals every attempt, keeps held jobs in
    #: the store, and treats a job as lost by its age (stores/waiting_room.py).
    unique_jobs: UniqueJobs | None = None
    #: For a queue that can count its jobs and cannot list them.
    job_counts: JobCounts | None = None
    #: None: where the queue is in another database, the relay puts its jobs and workers take them.
    eager_jobs: EagerJobs | None = None
    #: None: no gauges, and the limit `backlog_max` does not count the queue.
    job_inspection: JobInspection | None = None
    #: None: the engine refuses a queue with UniqueJobs, because a pause cannot hold jobs.
    job_holds: JobHolds | None = None
    #: None: the engine refuses flows that external workers execute.
    external_leases: ExternalLeases | None = None
    #: None: the store cannot be copied.
    fences: Fences | None = None
    #: None: no other program puts jobs into this queue.
    foreign_jobs: ForeignJobs | None = None
    #: None: it cannot hold jobs that other services create and read.
    job_store: Jobs | None = None
    #: None: such jobs are not copied with the store.
    job_rows: JobRows | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        """The names of the ports that this adapter fills in."""
        return frozenset(
            one.name
            for one in fields(self)
            if one.name in PORTS and not isinstance(getattr(self, one.name), Missing | None)
        )


@dataclass(frozen=True, kw_only=True)
class ViewPorts:
    """What an adapter opens that only holds views, for use with the store of another database."""

    read_model: ReadModel
    sweep_index: SweepIndex
    positions: ViewPositions
    close: Callable[[], Awaitable[None]]
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class EventPorts:
    """What an adapter opens that only holds events, for use with the store of another database."""

    events: EventStore
    key_claims: KeyClaims
    event_removal: EventRemoval
    #: Fences of the kind `left`: they stop appends and claims.
    fences: Fences
    close: Callable[[], Awaitable[None]]
    name: str = ""

    @property
    def capabilities(self) -> frozenset[str]:
        """The names of the ports that this adapter fills in."""
        return frozenset({"events", "key_claims", "event_removal", "fences"})


@dataclass(frozen=True, kw_only=True)
class JobPorts:
    """What an adapter opens that only holds jobs of slow endpoints."""

    job_store: Jobs
    close: Callable[[], Awaitable[None]]
    now_ms: Callable[[], int]
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Stores(QueuePorts):
    """All ports of an engine, of one database or with the queue of another one."""

    events: EventStore
    key_claims: KeyClaims
    read_model: ReadModel
    sweep_index: SweepIndex
    checkpoints: Checkpoints
    leases: Leases
    vault: Vault
    transactions: Transactions
    token_buckets: TokenBuckets
    unique_jobs: UniqueJobs | None
    job_inspection: JobInspection
    job_holds: JobHolds
    external_leases: ExternalLeases
    fences: Fences
    #: Where held jobs are, for a queue without UniqueJobs.
    waiting_room: UniqueJobs | None = None
    #: None: the queue cannot be in another database.
    undispatched_jobs: UndispatchedJobs | None = None
    #: None: the store cannot share a transaction with its callers.
    outbox: Outbox | None = None
    #: The number of partitions into which projectors divide the log; 1 if one projector is enough.
    partitions: int = 1
    #: The maximum number of callers' writes in one commit. Lower for a server: it commits one part
    #: while the callers of the previous part continue.
    commit_size: int = 2_000
    #: How many recordings may be written at a time: more than one where a recording has several
    #: steps, in different databases.
    recordings_at_once: int = 1
    #: Whether its transactions also project what they append.
    projects_inline: bool = False
    #: Whether views are in another database than events: then they are saved in the background.
    has_separate_views: bool = False
    #: The folder for the key file; None: a key file cannot be stored beside the store.
    folder: str | None = None
    #: Set when the relay has undispatched jobs to put; None: the queue is in the same database.
    undispatched: Signal | None = None
    health: Callable[[], Awaitable[Health | None]] = unknown
    #: Free bytes on the disk of the store; None: unknown.
    disk_free: Callable[[], Awaitable[int | None]] = unknown

    def close_after(self, first: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Closes another database, and then this store, whatever happened."""

        async def close() -> None:
            try:
                await first()
            finally:
                await self.close()

        return close

    async def live_jobs(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are in the queue or on their way to it; of a queue without
        UniqueJobs, only what the store itself has.
        """
        # Undispatched jobs first: the relay puts a job before it removes it here, so at least one
        # of the two answers contains it.
        found: set[str] = set()
        if self.undispatched is not None and self.undispatched_jobs is not None:
            found = await self.undispatched_jobs.find_undispatched(job_ids)
        unique = self.unique_jobs or self.waiting_room
        return found if unique is None else found | await unique.find(job_ids)


#: The attributes of `Stores` that are ports, each with its protocol.
PORTS: dict[str, type] = {
    "events": EventStore,
    "key_claims": KeyClaims,
    "read_model": ReadModel,
    "sweep_index": SweepIndex,
    "checkpoints": Checkpoints,
    "leases": Leases,
    "queue": JobQueue,
    "unique_jobs": UniqueJobs,
    "job_counts": JobCounts,
    "eager_jobs": EagerJobs,
    "job_inspection": JobInspection,
    "job_holds": JobHolds,
    "external_leases": ExternalLeases,
    "foreign_jobs": ForeignJobs,
    "undispatched_jobs": UndispatchedJobs,
    "vault": Vault,
    "transactions": Transactions,
    "token_buckets": TokenBuckets,
    "fences": Fences,
    "outbox": Outbox,
    "job_store": JobStore,
    "job_rows": JobRows,
}


class Missing:
    """Replaces a port that an adapter lacks: every call raises BadSettings."""

    def __init__(self, protocol: type, store: str, purpose: str) -> None:
        methods = ", ".join(methods_of(protocol))
        self.sentence = f"{store} does not implement {protocol.__name__} ({methods}); {purpose}"

    def __getattr__(self, name: str) -> NoReturn:
        raise BadSettings(self.sentence)


def methods_of(protocol: type) -> list[str]:
    """The methods that an adapter has to implement."""
    return [name for name in vars(protocol) if not name.startswith("_")]


def required(port: T | None, missing: Missing) -> T:
    """The port. Raises BadSettings if the adapter lacks it."""
    if port is None:
        raise BadSettings(missing.sentence)
    refuse_missing(port)
    return port


def refuse_missing(port: object) -> None:
    """Raise BadSettings if this is a port that the adapter lacks."""
    if isinstance(port, Missing):
        raise BadSettings(port.sentence)
