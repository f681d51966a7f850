"""Metrics of the whole store, independent of the processes that run."""

from collections.abc import Mapping

from gesta.domain.ids import flow_of_external_queue
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.intake.inbound.queue_age import QueueAge
from gesta.maintenance.queue_alarms import INBOUND, UNSERVED_MS, inbound_standings, standings
from gesta.maintenance.unknown_money import unknown_money
from gesta.ports.boundary_queue import BoundaryQueue
from gesta.ports.job_queue import Backlog, by_flow
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
        inbound: tuple[BoundaryQueue, QueueAge] | None,
        process: Process,
    ) -> None:
        """`inbound`: the boundary queue, where inbound events pass through one."""
        self._flows, self._stores, self._pausing, self._process = flows, stores, pausing, process
        self._inbound = inbound
        #: Flows that were logged, each once until a worker executes it.
        self._unserved: set[str] = set()

    async def step(self) -> None:
        now, telemetry = self._process.runtime.now_ms(), self._process.telemetry
        keep_seconds = max(
            (flow.dead_letter_seconds for flow in self._flows.values()),
            default=Flow.dead_letter_seconds,
        )
        queues = await self._stores.job_inspection.backlog()
        self._log_unserved(queues, now)
        backlog = by_flow(queues)
        # A declared flow shows 0 from the start: an alert needs a series.
        unsettled = dict.fromkeys(((flow, "failed") for flow in self._flows), 0)
        unsettled |= await self._stores.read_model.unsettled(now - round(keep_seconds * 1000))
        dead = {flow: count for (flow, status), count in unsettled.items() if status == "failed"}
        unknown = [one for one in self._flows.values() if unsettled.get((one.name, "unknown"))]
        telemetry.queues_seen(standings(self._flows, backlog, dead, now))
        processes = await self._stores.leases.processes()
        if self._inbound is not None:
            has_workers = any("worker" in one.roles for one in processes)
            try:
                events, letters = await _boundary(*self._inbound, has_workers=has_workers)
            except StoreError as error:
                # The broker is unavailable. The metrics of our own store are still shown.
                telemetry.store_failed(INBOUND, error)
            else:
                telemetry.queues_seen(inbound_standings(events, letters, now))
                backlog[INBOUND], unsettled[INBOUND, "failed"] = events, letters
        telemetry.store_seen(
            backlog=backlog,
            unsettled=unsettled,
            processes=processes,
            pauses=await self._pausing.paused(None),
            unknown_money=await unknown_money(unknown, self._stores.sweep_index, now),
            now_ms=now,
        )

    def _log_unserved(self, queues: Mapping[str, Backlog], now_ms: int) -> None:
        """Log a flow that this process does not declare and that no worker executes.

        External queues are left out: their workers say nothing while there is no work.
        """
        unserved = {
            flow: jobs
            for flow, jobs in queues.items()
            if flow not in self._flows
            and flow_of_external_queue(flow) == flow
            and not jobs.at_work
            and jobs.oldest_ready_ms is not None
            and now_ms - jobs.oldest_ready_ms > UNSERVED_MS
        }
        for flow in sorted(unserved.keys() - self._unserved):
            self._process.telemetry.not_executed(flow, unserved[flow].ready)
        self._unserved = set(unserved)


async def _boundary(
    queue: BoundaryQueue, age: QueueAge, *, has_workers: bool
) -> tuple[Backlog, int]:
    """The events of the boundary queue in the form of jobs, and its dead letters."""
    counts = await queue.counts()
    oldest_ms = await age.watch(counts, has_workers=has_workers)
    events = Backlog(ready=counts.waiting, leased=counts.in_flight, oldest_ready_ms=oldest_ms)
    return events, counts.dead
