"""The relay moves undispatched jobs into a separate queue, which is in another database.

It puts jobs first and removes them from the undispatched ones afterwards. A crash between the two
puts them again, which is harmless: job ids are deterministic, and the worker checks the stream
before it executes. The other order would lose jobs.
"""

from collections.abc import Sequence

from gesta.errors import QueueRefused
from gesta.ports.job_queue import Job
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.stores import Stores
from gesta.projector.partitions import Partitions
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat

BATCH = 1_000
#: The projector of this process signals undispatched jobs. If a signal is lost, they wait at most
#: this long.
POLL_SECONDS = 1.0
#: A queue that cannot be used is tried again after this.
REFUSED_SECONDS = 5.0


class Relay:
    def __init__(self, stores: Stores, partitions: Partitions, process: Process) -> None:
        """`partitions`: those of this process's projector, whose commits set the signal."""
        assert stores.undispatched is not None
        assert stores.undispatched_jobs is not None
        self._jobs, self._queue = stores.undispatched_jobs, stores.queue
        self._written = stores.undispatched
        self._partitions, self._process = partitions, process
        #: Flow → when to try again to use its queue (monotonic).
        self._refused: dict[str, float] = {}

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
        now = self._process.runtime.monotonic()
        refused = [flow for flow, again_at in self._refused.items() if now < again_at]
        jobs = await self._jobs.undispatched(BATCH, refused)
        if jobs:
            left = await self._put(jobs)
            # However many jobs a queue that cannot be used has, they fill no further page.
            self._refused |= dict.fromkeys(
                (job.flow for job in jobs if job.id in left), now + REFUSED_SECONDS
            )
            await self._jobs.remove_undispatched([job.id for job in jobs if job.id not in left])
        return len(jobs)

    async def _put(self, jobs: Sequence[Job]) -> frozenset[str]:
        """Put the jobs; those that a queue refused. The other queues get theirs."""
        try:
            await self._queue.put(jobs)
        except QueueRefused as error:
            self._process.telemetry.store_failed("relay", error)
            return frozenset(error.job_ids)
        return frozenset()
