"""One database in memory, with all ports over the same state.

A synchronous method makes every change, which is a transaction in a single thread. The database
outlives the engines that use it: a second engine on it is a restart.
"""

from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime
from gesta.stores.job_results import JobResults
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.stores.memory.fences import MemoryFences
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.stores.memory.stored_jobs import MemoryStoredJobs
from gesta.stores.memory.token_buckets import MemoryTokenBuckets
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.stores.memory.vault import MemoryVault


class MemoryDatabase:
    def __init__(self, runtime: Runtime, partitions: int = 1) -> None:
        self._runtime, self._partitions = runtime, partitions
        self.fences = MemoryFences()
        self.events = MemoryEventStore(runtime, self.fences)
        self.queue = MemoryJobQueue(runtime, self.fences)
        self.read_model = MemoryReadModel(runtime, self.fences)
        self.vault = MemoryVault(self.fences)
        self.token_buckets = MemoryTokenBuckets(runtime)
        self.stored_jobs = MemoryStoredJobs(runtime, self.fences)
        self.job_store = JobResults(self.stored_jobs, runtime)
        self.transactions = MemoryTransactions(
            events=self.events, queue=self.queue, views=self.read_model, vault=self.vault
        )

    def stores(self) -> Stores:
        """The ports of an engine. Closing them closes nothing."""
        self.fences.put_one = self.queue.put_one
        return Stores(
            events=self.events,
            key_claims=self.events,
            read_model=self.read_model,
            sweep_index=self.read_model,
            checkpoints=self.read_model,
            leases=self.read_model,
            undispatched_jobs=self.read_model,
            queue=self.queue,
            unique_jobs=self.queue,
            eager_jobs=self.queue,
            job_inspection=self.queue,
            job_holds=self.queue,
            external_leases=self.queue,
            vault=self.vault,
            transactions=self.transactions,
            fences=self.fences,
            token_buckets=self.token_buckets,
            job_store=self.job_store,
            job_rows=self.stored_jobs,
            close=_close,
            now_ms=self._runtime.now_ms,
            partitions=self._partitions,
            name="memory",
        )


async def _close() -> None: ...
