"""The relay moves undispatched jobs into a separate queue, which is in another database.

It puts jobs first and removes them from the undispatched ones afterwards. A crash between the two
puts them again, which is harmless: job ids are deterministic, and the worker checks the stream
before it executes. The other order would lose jobs.

Where the queue leases jobs as it takes them (EagerJobs), the projector passes new jobs on without
writing them down: `put_early`. They count as dispatched once its checkpoint moves, so a crash in
between puts them again, too. What the queue does not take is written down and moved later.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from gesta.errors import QueueRefused, StoreError
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Job
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.read_model import View
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
#: So many jobs are put early in one call: scripts of a server run one after the other.
EARLY_BATCH = 500


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
        self._eager_jobs = stores.eager_jobs
        #: Whether no job is undispatched: then new jobs overtake none.
        self._is_drained = False
        self._early_again_at = float("-inf")
        #: Gets the requests whose attempts are about to begin.
        self.expect: Callable[[Sequence[View]], None] = lambda _: None

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
        self._is_drained = not jobs and not refused
        if jobs:
            left = await self._put(jobs)
            # However many jobs a queue that cannot be used has, they fill no further page.
            self._refused |= dict.fromkeys(
                (job.flow for job in jobs if job.id in left), now + REFUSED_SECONDS
            )
            await self._jobs.remove_undispatched([job.id for job in jobs if job.id not in left])
        return len(jobs)

    async def put_early(
        self,
        jobs: Sequence[Job],
        views: Sequence[View],
        offer: Callable[[Sequence[Job]], AbstractContextManager[FreeSlots | None]],
    ) -> list[Job]:
        """Put jobs before they count as dispatched; those that the queue did not take, which have
        to be written down. `offer`: the free slots of the worker in this process.
        """
        left = list(jobs)
        queue, runtime = self._eager_jobs, self._process.runtime
        if queue is None or not self._is_drained or runtime.monotonic() < self._early_again_at:
            return left
        folded = {one.state.job_id: one for one in views}
        try:
            while left:
                batch = left[:EARLY_BATCH]
                with offer(batch) as free_slots:
                    if free_slots is None:
                        await self._queue.put(batch)
                    else:
                        await queue.put_leased(batch, free_slots)
                        # Their attempts begin now, and their views are not saved yet.
                        self.expect([folded[one.job.id] for one in free_slots.leased])
                del left[: len(batch)]
        except StoreError as error:
            # Some may have been put: putting them again changes nothing.
            self._process.telemetry.store_failed("relay", error)
            self._is_drained = False
            self._early_again_at = runtime.monotonic() + REFUSED_SECONDS
        return left

    async def _put(self, jobs: Sequence[Job]) -> frozenset[str]:
        """Put the jobs; those that a queue refused. The other queues get theirs."""
        try:
            await self._queue.put(jobs)
        except QueueRefused as error:
            self._process.telemetry.store_failed("relay", error)
            return frozenset(error.job_ids)
        return frozenset()
