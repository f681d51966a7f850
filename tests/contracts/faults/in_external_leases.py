"""Queues with one thing wrong about external queues."""

from gesta.domain.ids import external_queue_of, flow_of_external_queue
from gesta.ports.job_queue import LeasedJob
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.testing.contracts.external_leases import (
    ExternalLeasesAfterRestartContract as AfterRestart,
)
from gesta.testing.contracts.external_leases import ExternalLeasesContract as ExternalLeases
from tests.contracts.faults.after_restart import ForgetsEverything
from tests.contracts.faults.planting import breaks


@breaks(
    ExternalLeases.test_an_external_queue_leases_only_jobs_of_its_tenant,
    ExternalLeases.test_a_tenants_job_is_found_behind_a_flood_of_another,
)
class OneLaneForAll(MemoryJobQueue):
    async def lease_external(self, token, external_queue, limit, lease_seconds):
        found: list[LeasedJob] = []
        for tenant in ("globex", "acme"):
            found += await super().lease_external(
                token,
                external_queue_of(flow_of_external_queue(external_queue), tenant),
                limit - len(found),
                lease_seconds,
            )
        return found


@breaks(ExternalLeases.test_no_worker_leases_from_an_external_queue)
class TakesFromExternalQueues(MemoryJobQueue):
    async def take(self, token, flows, lease_seconds, *, durable):
        return await super().take(
            token,
            flows | {external_queue_of(flow, "acme"): 10 for flow in flows},
            lease_seconds,
            durable=durable,
        )


@breaks(ExternalLeases.test_no_more_external_jobs_are_leased_than_asked_for)
class HandsOutEverything(MemoryJobQueue):
    async def lease_external(self, token, external_queue, limit, lease_seconds):
        leased = await super().lease_external(token, external_queue, 1_000, lease_seconds)
        return leased[:limit]


@breaks(
    ExternalLeases.test_concurrent_external_workers_get_different_jobs,
    ExternalLeases.test_a_leased_external_job_is_not_leased_again_before_it_is_taken_over,
)
class HandsOutTwice(MemoryJobQueue):
    async def lease_external(self, token, external_queue, limit, lease_seconds):
        leased = await super().lease_external(token, external_queue, limit, lease_seconds)
        for one in leased:
            self._enqueue(self._rows[one.job.id])
        return leased


@breaks(ExternalLeases.test_the_most_urgent_external_job_is_leased_first)
class KnowsNoUrgency(MemoryJobQueue):
    async def put(self, jobs):
        return [
            self.put_one(
                type(job)(job.id, job.tenant, job.flow, job.request_id, 1, due_ms=job.due_ms)
            )
            for job in jobs
        ]


@breaks(ExternalLeases.test_an_external_job_that_is_not_due_waits)
class HandsOutEarly(MemoryJobQueue):
    def _make_ready(self, external_queue):
        for _, _, job_id in external_queue.waiting:
            self._rows[job_id].available_ms = self._runtime.now_ms()
        super()._make_ready(external_queue)


@breaks(
    ExternalLeases.test_an_expired_external_lease_is_found,
    ExternalLeases.test_a_taken_over_lease_is_found_again_only_after_it_expired,
    ExternalLeases.test_only_expired_leases_of_the_flow_are_found_and_no_more_than_asked_for,
)
class FindsNothingLapsed(MemoryJobQueue):
    async def expired_leases(self, token, external_queues, limit, lease_seconds):
        return []


@breaks(ExternalLeases.test_a_taken_over_lease_is_found_again_only_after_it_expired)
class TakesOverForNoTime(MemoryJobQueue):
    async def expired_leases(self, token, external_queues, limit, lease_seconds):
        return await super().expired_leases(token, external_queues, limit, 0)


@breaks(ExternalLeases.test_only_expired_leases_of_the_flow_are_found_and_no_more_than_asked_for)
class LooksThroughEveryLane(MemoryJobQueue):
    async def expired_leases(self, token, external_queues, limit, lease_seconds):
        return await super().expired_leases(token, "@", limit, lease_seconds)


@breaks(ExternalLeases.test_the_lease_of_each_job_is_prolonged_by_itself)
class ProlongsAllOfATake(MemoryJobQueue):
    async def prolong(self, job_id, token, lease_seconds):
        for row in self._rows.values():
            if row.token == token:
                row.until_ms = self._lease_end(lease_seconds)
        return await super().prolong(job_id, token, lease_seconds)


@breaks(ExternalLeases.test_a_lease_never_ends_earlier_because_it_was_prolonged)
class Shortens(MemoryJobQueue):
    async def prolong(self, job_id, token, lease_seconds):
        if await super().prolong(job_id, token, lease_seconds) is None:
            return None
        self._rows[job_id].until_ms = self._lease_end(lease_seconds)
        return self._rows[job_id].until_ms


@breaks(
    ExternalLeases.test_only_its_holder_prolongs_a_lease_and_only_while_it_lasts,
    ExternalLeases.test_a_released_external_job_has_no_lease,
)
class ProlongsForAnybody(MemoryJobQueue):
    async def prolong(self, job_id, token, lease_seconds):
        if job_id in self._rows:
            self._rows[job_id].until_ms = self._lease_end(lease_seconds)
        return self._lease_end(lease_seconds)


@breaks(
    ExternalLeases.test_an_external_job_is_settled_like_any_other,
    ExternalLeases.test_a_worker_that_lost_an_external_job_cannot_settle_it,
)
class AsksForNoToken(MemoryJobQueue):
    def judge(self, settlement):
        return "done" if settlement.job_id in self._rows else "absent"


@breaks(ExternalLeases.test_external_queues_with_ready_jobs_are_listed)
class KnowsOnlyWhatIsReady(MemoryJobQueue):
    async def stocked(self, external_queues):
        return {
            name
            for name in external_queues
            if name in self._queues and self._first(self._queues[name].ready)
        }


@breaks(AfterRestart.test_a_lease_outlives_the_process_that_gave_it)
class ForgetsItsExternalQueues(ForgetsEverything): ...
