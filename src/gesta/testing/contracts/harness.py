"""The harness of a store: it opens, closes and reopens the store on a clock that tests move.

A harness declares the capabilities of its store. Every contract that needs no others runs on it.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from gesta.ports.checkpoints import Checkpoints
from gesta.ports.eager_dispatch import EagerJobs
from gesta.ports.event_store import EventStore, KeyClaims
from gesta.ports.fences import Fences
from gesta.ports.job_queue import ExternalLeases, JobHolds, JobInspection, JobQueue, UniqueJobs
from gesta.ports.job_store import JobRows, Jobs
from gesta.ports.leases import Leases
from gesta.ports.read_model import ReadModel, SweepIndex
from gesta.ports.stores import EventPorts, QueuePorts
from gesta.ports.token_buckets import TokenBuckets
from gesta.ports.transactions import Transactions
from gesta.ports.undispatched_jobs import UndispatchedJobs
from gesta.ports.vault import Vault
from gesta.runtime.clock import ManualRuntime

#: The ports, by their names in `Stores`. `inline_projection`: transactions project what they
#: append. `eager_dispatch`: they lease jobs to a worker as they put them. `turns`: a queue orders
#: its jobs, fairly and by priority, and says when the next one is due. `large_events`: an event may
#: have more than 16 MiB. `log_removal`: removed events are no longer followed. `durable`: what was
#: acknowledged is there again after close and open.
Capability = Literal[
    "events",
    "key_claims",
    "read_model",
    "sweep_index",
    "checkpoints",
    "leases",
    "queue",
    "unique_jobs",
    "job_inspection",
    "job_holds",
    "external_leases",
    "undispatched_jobs",
    "vault",
    "transactions",
    "token_buckets",
    "fences",
    "job_store",
    "job_rows",
    "inline_projection",
    "eager_dispatch",
    "eager_jobs",
    "large_events",
    "log_removal",
    "turns",
    "durable",
]
#: Of a whole store: `eager_jobs` is of a queue in another database.
EVERYTHING: frozenset[Capability] = frozenset(
    Capability.__args__  # type: ignore[attr-defined]
) - {"eager_jobs"}


class Harness(ABC):
    """One store for one test. The store may contain data of other tests under other names.

    A harness has the attributes of those ports that are among its capabilities.
    """

    capabilities: ClassVar[frozenset[Capability]]
    #: The only clock of the store.
    runtime: ManualRuntime
    events: EventStore
    key_claims: KeyClaims
    read_model: ReadModel
    sweep_index: SweepIndex
    checkpoints: Checkpoints
    leases: Leases
    queue: JobQueue
    eager_jobs: EagerJobs
    unique_jobs: UniqueJobs
    job_inspection: JobInspection
    job_holds: JobHolds
    external_leases: ExternalLeases
    undispatched_jobs: UndispatchedJobs
    vault: Vault
    transactions: Transactions
    token_buckets: TokenBuckets
    fences: Fences
    job_store: Jobs
    job_rows: JobRows

    def __init__(self, folder: Path) -> None:
        """`folder` is empty and belongs to this test, for stores that keep files."""
        self.runtime, self.folder = ManualRuntime(), folder

    @abstractmethod
    async def open_ports(self) -> QueuePorts | EventPorts:
        """Open the store. After a close: the same store again, on the same clock."""

    async def open(self) -> None:
        """Set the attributes of the ports."""
        self._ports = await self.open_ports()
        for name in self._ports.capabilities & self.capabilities:
            setattr(self, name, getattr(self._ports, name))

    async def close(self) -> None:
        """Leave nothing running. What was acknowledged must be safe already."""
        await self._ports.close()


async def reopen(harness: Harness) -> None:
    """Close and open again, as a restart does."""
    await harness.close()
    await harness.open()
