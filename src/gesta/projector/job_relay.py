"""Station 4 of 7, only where the queue is in another database: pending jobs are put, then they are
pending no longer.

A crash between the two puts them once more, which changes nothing while they are live and leads
nowhere once they are done with: ids are
deterministic, and the worker's guard looks at the stream. The other order would lose them.
"""

from __future__ import annotations

from gesta.errors import StoreError
from gesta.ports.job_queue import JobQueue
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.read_model import ReadModel
from gesta.projector.partitions import Partitions
from gesta.runtime.clock import Runtime, Signal, sleep
from gesta.runtime.telemetry import Telemetry

BATCH = 1_000
#: Who projects in this process tells when jobs became pending; should it ever not, this is how long
#: they lie unnoticed.
POLL_SECONDS = 1.0
STORE_PAUSE_SECONDS = 1.0


class Relay:
    def __init__(
        self,
        views: ReadModel,
        queue: JobQueue,
        partitions: Partitions,
        news: Signal,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        """`partitions` are the projector's: where jobs are written down, the news of them is heard
        at once.
        """
        self._views, self._queue, self._partitions, self._news = views, queue, partitions, news
        self._runtime, self._telemetry = runtime, telemetry

    async def run(self) -> None:
        """Carry over for ever, while we project."""
        while True:
            try:
                if not await self._partitions.is_ours():
                    await sleep(self._runtime, RENEWAL_SECONDS)
                elif await self.step() == 0:
                    await self._news.wait(POLL_SECONDS)
            except StoreError as error:
                # The views go on; what is pending waits until the queue is back.
                self._telemetry.store_failed("relay", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)

    async def step(self) -> int:
        """Carry one batch over; how many jobs it had."""
        jobs = await self._views.undispatched(BATCH)
        if jobs:
            await self._queue.put(jobs)
            await self._views.relayed([job.id for job in jobs])
        return len(jobs)
