"""The relay moves undispatched jobs into a separate queue, which is in another database.

It puts jobs first and removes them from the undispatched ones afterwards. A crash between the two
puts them again, which is harmless: job ids are deterministic, and the worker checks the stream
before it executes. The other order would lose jobs.
"""

from gesta.errors import QueueRefused
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.stores import Stores
from gesta.projector.partitions import Partitions
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat

BATCH = 1_000
#: The projector of this process signals undispatched jobs. If a signal is lost, they wait at most
#: this long.
POLL_SECONDS = 1.0


class Relay:
    def __init__(self, stores: Stores, partitions: Partitions, process: Process) -> None:
        """`partitions`: those of this process's projector, whose commits set the signal."""
        assert stores.undispatched is not None
        assert stores.undispatched_jobs is not None
        self._jobs, self._queue = stores.undispatched_jobs, stores.queue
        self._written = stores.undispatched
        self._partitions, self._process = partitions, process

    async def run(self) -> None:
        """Move jobs for ever, while this process projects.

        During an outage of the queue, views are still projected and jobs wait.
        """
        await repeat(self._turn, "relay", self._process)

    async def _turn(self) -> None:
        if not await self._partitions.is_ours():
            await sleep(self._process.runtime, RENEWAL_SECONDS)
        elif await self.step() == 0:
            await self._written.wait(POLL_SECONDS)

    async def step(self) -> int:
        """Move one batch; returns how many jobs it had."""
        jobs = await self._jobs.undispatched(BATCH)
        if jobs:
            try:
                await self._queue.put(jobs)
            except QueueRefused as error:
                # The other queues got their jobs.
                put = [job.id for job in jobs if job.id not in error.job_ids]
                await self._jobs.remove_undispatched(put)
                raise
            await self._jobs.remove_undispatched([job.id for job in jobs])
        return len(jobs)
