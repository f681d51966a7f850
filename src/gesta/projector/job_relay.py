"""Station 4 of 7, only where the queue is in another database: pending jobs are put, then they are
pending no longer.

A crash between the two puts them once more, which changes nothing while they are live and leads
nowhere once they are done with: ids are
deterministic, and the worker's guard looks at the stream. The other order would lose them.
"""

from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.stores import Stores
from gesta.projector.partitions import Partitions
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat

BATCH = 1_000
#: Who projects in this process tells when jobs became pending; should it ever not, this is how long
#: they lie unnoticed.
POLL_SECONDS = 1.0


class Relay:
    def __init__(self, stores: Stores, partitions: Partitions, process: Process) -> None:
        """`partitions` are those of this process's projector, whose commits set the signal."""
        assert stores.undispatched is not None
        assert stores.undispatched_jobs is not None
        self._jobs, self._queue = stores.undispatched_jobs, stores.queue
        self._written = stores.undispatched
        self._partitions, self._process = partitions, process

    async def run(self) -> None:
        """Carry over for ever, while this process projects.

        While the queue is out of reach, the views go on and the jobs wait.
        """
        await repeat(self._turn, "relay", self._process)

    async def _turn(self) -> None:
        if not await self._partitions.is_ours():
            await sleep(self._process.runtime, RENEWAL_SECONDS)
        elif await self.step() == 0:
            await self._written.wait(POLL_SECONDS)

    async def step(self) -> int:
        """Carry one batch over; how many jobs it had."""
        jobs = await self._jobs.undispatched(BATCH)
        if jobs:
            await self._queue.put(jobs)
            await self._jobs.remove_undispatched([job.id for job in jobs])
        return len(jobs)
