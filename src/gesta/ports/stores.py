"""The ports of one engine, as an adapter hands them over.

An adapter declares its capabilities by the ports it fills in. The engine works without the others
where it can, and else refuses with a sentence that names the port (`Missing`).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import NoReturn, Protocol, TypeVar

from gesta.errors import BadSettings
from gesta.ports.checkpoints import Checkpoints
from gesta.ports.event_store import EventStore, KeyClaims
from gesta.ports.fences import Fences
from gesta.ports.job_queue import ExternalLeases, JobHolds, JobInspection, JobQueue
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


class Closing(Protocol):
    async def __call__(self) -> None: ...


async def unlimited() -> None:
    """The store has no disk of its own."""


@dataclass(frozen=True)
class Health:
    """What a store knows of its own condition. Sizes in bytes."""

    schema: int
    faults: tuple[str, ...]
    #: Whether all of it was checked; a large file is checked for a few seconds only.
    is_whole: bool
    size: int
    log_size: int
    #: None where the disk is the server's.
    free: int | None
    #: Files that more than their owner may read.
    open_to_others: tuple[str, ...]


class Examining(Protocol):
    async def __call__(self) -> Health | None: ...


async def nothing_to_examine() -> None:
    """The health of a store that has no file."""


@dataclass(frozen=True, kw_only=True)
class QueuePorts:
    """What an adapter opens that is only a queue, for use with the store of another database."""

    queue: JobQueue
    close: Closing
    #: The time of the store. Leases, due times and expiry use it, never a process's own clock.
    now_ms: Callable[[], int]
    name: str = ""
    #: None: no gauges, and the limit `backlog_max` does not count the queue.
    job_inspection: JobInspection | None = None
    #: None: the engine refuses the queue, because a pause cannot hold jobs.
    job_holds: JobHolds | None = None
    #: None: the engine refuses flows that external workers execute.
    external_leases: ExternalLeases | None = None
    #: None: the store cannot be copied.
    fences: Fences | None = None

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
    close: Closing
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Stores(QueuePorts):
    """All ports of an engine: one database, or a queue of another one beside it."""

    events: EventStore
    key_claims: KeyClaims
    read_model: ReadModel
    sweep_index: SweepIndex
    checkpoints: Checkpoints
    leases: Leases
    vault: Vault
    transactions: Transactions
    token_buckets: TokenBuckets
    job_inspection: JobInspection
    job_holds: JobHolds
    external_leases: ExternalLeases
    fences: Fences
    #: None: its queue cannot be in another database.
    undispatched_jobs: UndispatchedJobs | None = None
    #: Requests that wait as part of a caller's own transaction; None where the store cannot share
    #: one.
    outbox: Outbox | None = None
    #: Into how many partitions projectors divide the log; 1 where one process is enough.
    partitions: int = 1
    #: How many callers' writes go into one commit at most. Fewer where the store is a server: it
    #: commits one part while callers of the last one go on.
    commit_size: int = 2_000
    #: Whether its transactions project what they append.
    projects_inline: bool = False
    #: The folder where a key file may be stored beside the store; None where there is none.
    folder: str | None = None
    #: Set when undispatched jobs were written that a relay has to put into the queue; None where
    #: the queue is in the same database.
    undispatched: Signal | None = None
    health: Examining = nothing_to_examine
    #: Bytes left where the store grows; None where the store cannot tell.
    disk_free: Callable[[], Awaitable[int | None]] = unlimited

    async def live_jobs(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are in the queue or on their way to it."""
        if self.undispatched is None or self.undispatched_jobs is None:
            return await self.queue.find(job_ids)
        # Undispatched jobs first: the relay puts a job before it removes it here, so one of the
        # two answers has it.
        found = await self.undispatched_jobs.find_undispatched(job_ids)
        return found | await self.queue.find(job_ids)


#: The attributes of `Stores` that are ports, each with its protocol.
PORTS: dict[str, type] = {
    "events": EventStore,
    "key_claims": KeyClaims,
    "read_model": ReadModel,
    "sweep_index": SweepIndex,
    "checkpoints": Checkpoints,
    "leases": Leases,
    "queue": JobQueue,
    "job_inspection": JobInspection,
    "job_holds": JobHolds,
    "external_leases": ExternalLeases,
    "undispatched_jobs": UndispatchedJobs,
    "vault": Vault,
    "transactions": Transactions,
    "token_buckets": TokenBuckets,
    "fences": Fences,
    "outbox": Outbox,
}


class Missing:
    """Stands in for a port that an adapter lacks: a call of it raises BadSettings."""

    def __init__(self, protocol: type, store: str, purpose: str) -> None:
        methods = ", ".join(methods_of(protocol))
        self.sentence = f"{store} does not implement {protocol.__name__} ({methods}); {purpose}"

    def __getattr__(self, name: str) -> NoReturn:
        raise BadSettings(self.sentence)


def methods_of(protocol: type) -> list[str]:
    """What an adapter has to implement."""
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
