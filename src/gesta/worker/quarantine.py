"""What becomes of jobs without an attempt: given back, held, or set aside on record.

However long the store is out of reach.

While the lease is renewed, nobody else would take a job that this process holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from gesta.ports.job_queue import Ack, JobQueue, Release, Settlement, Taken
from gesta.ports.read_model import Parked, Views
from gesta.requests.store_retry import Repeats
from gesta.runtime.clock import Runtime
from gesta.runtime.telemetry import Telemetry


class Aside:
    def __init__(
        self,
        queue: JobQueue,
        views: Views,
        repeats: Repeats,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._queue, self._views, self._repeats, self._runtime, self._telemetry = (
            queue,
            views,
            repeats,
            runtime,
            telemetry,
        )

    async def park(self, taken: Taken, error: Exception, reason: str = "") -> None:
        """Set a job aside that cannot be dealt with, on record, so that the rest goes on."""
        job = taken.job
        await self.note(Parked("job", job.tenant, job.id, job.dispatch_version, reason, 0), error)
        await self.settle([Ack(job.id, taken.token)])

    async def note(self, parked: Parked, error: Exception) -> None:
        self._telemetry.parked(parked.what, parked.stream, parked.version, error)
        told = replace(
            parked, error=parked.error or type(error).__name__, at_ms=self._runtime.now_ms()
        )
        await self.insist(lambda: self._views.save([], [told], None))

    async def release(self, taken: Sequence[Taken]) -> None:
        # A suspect one is left to the end of the lease: released, it would look innocent.
        releases = [Release(one.job.id, one.token, 0) for one in taken if not one.is_suspect]
        if releases:
            await self.settle(releases)

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        await self.insist(lambda: self._queue.settle(settlements), settlements)

    async def insist(
        self, act: Callable[[], Awaitable[object]], settlements: Sequence[Settlement] = ()
    ) -> None:
        await self._repeats.insist(
            act, settlements, partial(self._telemetry.store_failed, "worker")
        )
