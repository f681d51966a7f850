"""What metrics show of the whole store, whichever processes run."""

from collections.abc import Mapping

from gesta.flows.flow import Flow
from gesta.maintenance.queue_alarms import standings
from gesta.maintenance.unknown_money import unknown_money
from gesta.ports.job_queue import by_flow
from gesta.ports.stores import Stores
from gesta.runtime.component import Process
from gesta.tenants.pause_control import PauseControl


class StoreMetrics:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        pausing: PauseControl,
        process: Process,
    ) -> None:
        self._flows, self._stores, self._pausing, self._process = flows, stores, pausing, process

    async def step(self) -> None:
        now, telemetry = self._process.runtime.now_ms(), self._process.telemetry
        keep_seconds = max(
            (flow.dead_letter_seconds for flow in self._flows.values()),
            default=Flow.dead_letter_seconds,
        )
        backlog = by_flow(await self._stores.job_inspection.backlog())
        unsettled = await self._stores.read_model.unsettled(now - round(keep_seconds * 1000))
        dead = {flow: count for (flow, status), count in unsettled.items() if status == "failed"}
        unknown = [one for one in self._flows.values() if unsettled.get((one.name, "unknown"))]
        telemetry.queues_seen(standings(self._flows, backlog, dead, now))
        telemetry.store_seen(
            backlog=backlog,
            unsettled=unsettled,
            processes=await self._stores.leases.processes(),
            pauses=await self._pausing.paused(None),
            unknown_money=await unknown_money(unknown, self._stores.read_model, now),
            now_ms=now,
        )
