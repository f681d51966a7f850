"""What becomes of jobs without an attempt: given back, held, or set aside on record.

However long the store is out of reach.

While the lease is renewed, nobody else would take a job that this process holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from gesta.ports.job_queue import Ack, JobQueue, LeasedJob, Release, Settlement
from gesta.ports.read_model import Quarantined, ReadModel
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Runtime
from gesta.runtime.telemetry import Telemetry


class Quarantine:
    def __init__(
        self,
        queue: JobQueue,
        views: ReadModel,
        store_retry: StoreRetry,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._queue, self._views, self._store_retry, self._runtime, self._telemetry = (
            queue,
            views,
            store_retry,
            runtime,
            telemetry,
        )

    async def park(self, leased: LeasedJob, error: Exception, reason: str = "") -> None:
        """Set a job aside that cannot be dealt with, on record, so that the rest goes on."""
        job = leased.job
        await self.note(
            Quarantined("job", job.tenant, job.id, job.dispatch_version, reason, 0), error
        )
        await self.settle([Ack(job.id, leased.token)])

    async def note(self, quarantined: Quarantined, error: Exception) -> None:
        self._telemetry.quarantined(
            quarantined.what, quarantined.stream, quarantined.version, error
        )
        told = replace(
            quarantined,
            error=quarantined.error or type(error).__name__,
            at_ms=self._runtime.now_ms(),
        )
        await self.insist(lambda: self._views.save([], [told], None))

    async def release(self, leased: Sequence[LeasedJob]) -> None:
        # A suspect one is left to the end of the lease: released, it would look innocent.
        releases = [
            Release(one.job.id, one.token, 0) for one in leased if not one.is_possibly_executed
        ]
        if releases:
            await self.settle(releases)

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        await self.insist(lambda: self._queue.settle(settlements), settlements)

    async def insist(
        self, act: Callable[[], Awaitable[object]], settlements: Sequence[Settlement] = ()
    ) -> None:
        await self._store_retry.insist(
            act, settlements, partial(self._telemetry.store_failed, "worker")
        )
