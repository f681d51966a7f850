"""Work that was handed out and never reported: the lease ends, and the request is
`unknown(no_report)`.

Done by the sweep, whoever else lives.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from gesta.domain.ids import external_queues_of
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Ack, LeasedJob
from gesta.ports.stores import Stores
from gesta.requests.loader import Loader
from gesta.runtime.clock import Ids
from gesta.runtime.telemetry import Telemetry
from gesta.worker.preflight import Guard

NO_REPORT = "no_report"
#: Taken over in one go, and for how long: whoever dies here leaves them to the next sweep.
BATCH = 100
LEASE_SECONDS = 30.0


class LeaseExpiry:
    def __init__(
        self,
        flows: Mapping[str, Flow],
        stores: Stores,
        loader: Loader,
        guard: Guard,
        ids: Ids,
        telemetry: Telemetry,
    ) -> None:
        self._flows = {flow.name: flow for flow in flows.values() if flow.is_external}
        self._external_leases = stores.external_leases
        self._queue, self._loader, self._guard, self._ids, self._telemetry = (
            stores.queue,
            loader,
            guard,
            ids,
            telemetry,
        )

    async def step(self) -> None:
        """Put on record what nobody reported in time."""
        for flow in self._flows.values():
            while expired_leases := await self._external_leases.expired_leases(
                self._ids.new(), external_queues_of(flow.name), BATCH, LEASE_SECONDS
            ):
                for leased in expired_leases:
                    await self._expire(
                        replace(leased, job=replace(leased.job, flow=flow.name)), flow
                    )
                if len(expired_leases) < BATCH:
                    break

    async def _expire(self, leased: LeasedJob, flow: Flow) -> None:
        job = leased.job
        try:
            view = await self._loader.one((job.flow, job.tenant, job.request_id))
            if view is None:
                # Removed, or never there: nobody could report it either.
                await self._queue.settle([Ack(job.id, leased.token)])
                return
            await self._guard.expire(leased, view, flow.rules, NO_REPORT)
            self._telemetry.not_reported(flow.name, job)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one, the rest must go on; it lapses again
            self._telemetry.quarantined("lapse", job.id, job.dispatch_version, error)
