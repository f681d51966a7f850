"""How a fault is planted: a memory port with one thing wrong, and the promises that this must
break.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gesta.stores.job_results import JobResults
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.stores.memory.fences import MemoryFences
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.stores.memory.stored_jobs import MemoryStoredJobs
from gesta.stores.memory.token_buckets import MemoryTokenBuckets
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.stores.memory.vault import MemoryVault
from gesta.testing.harnesses.memory import Harness

Promise = Callable[..., Awaitable[None]]
KindT = TypeVar("KindT", bound=type)


@dataclass(frozen=True)
class Fault:
    """A class with one thing wrong: a port, the commits over the ports, or the whole store."""

    kind: type[Any]
    promises: tuple[Promise, ...]

    def harness(self) -> Harness:
        folder = Path()
        if issubclass(self.kind, Harness):
            return self.kind(folder)
        harness = Harness(folder)
        database, runtime = harness.database, harness.runtime
        if issubclass(self.kind, MemoryEventStore):
            database.events = self.kind(runtime)
        elif issubclass(self.kind, MemoryJobQueue):
            database.queue = self.kind(runtime)
        elif issubclass(self.kind, MemoryReadModel):
            database.read_model = self.kind(runtime)
        elif issubclass(self.kind, MemoryFences):
            fences = database.fences = self.kind()
            database.events, database.queue = (
                MemoryEventStore(runtime, fences),
                MemoryJobQueue(runtime, fences),
            )
            database.read_model, database.vault = (
                MemoryReadModel(runtime, fences),
                MemoryVault(fences),
            )
        elif issubclass(self.kind, MemoryTokenBuckets):
            database.token_buckets = self.kind(runtime)
        elif issubclass(self.kind, MemoryStoredJobs):
            database.stored_jobs = self.kind(runtime, database.fences)
            database.job_store = JobResults(database.stored_jobs, runtime)
        elif issubclass(self.kind, JobResults):
            database.job_store = self.kind(database.stored_jobs, runtime)
        elif issubclass(self.kind, MemoryVault):
            database.vault = self.kind()
        commits = self.kind if issubclass(self.kind, MemoryTransactions) else MemoryTransactions
        database.transactions = commits(
            events=database.events,
            queue=database.queue,
            views=database.read_model,
            vault=database.vault,
        )
        return harness


FAULTS: list[Fault] = []


def breaks(*promises: Promise) -> Callable[[KindT], KindT]:
    """Register a faulty class together with the promises it cannot keep."""

    def plant(kind: KindT) -> KindT:
        FAULTS.append(Fault(kind, promises))
        return kind

    return plant
