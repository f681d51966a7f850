"""Queues that show people something else than they hold."""

from msgspec.structs import replace

from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.testing.contracts.external_leases import ListedExternalLeasesContract
from gesta.testing.contracts.job_inspection import JobInspectionContract as Listing
from tests.contracts.faults.planting import breaks


@breaks(
    Listing.test_the_backlog_counts_what_waits_is_ready_and_is_leased,
    Listing.test_live_jobs_are_listed_by_id_page_by_page,
)
class TakesWhatWaitsForReady(MemoryJobQueue):
    def _state(self, row):
        return "ready"


@breaks(Listing.test_a_held_job_is_neither_ready_nor_leased)
class TakesWhatIsHeldForReady(MemoryJobQueue):
    def _state(self, row):
        return "ready" if row.hold is not None else super()._state(row)


@breaks(Listing.test_a_flow_without_ready_jobs_has_no_oldest)
class HasAlwaysAnOldest(MemoryJobQueue):
    async def backlog(self):
        found = await super().backlog()
        return {
            flow: type(one)(one.waiting, one.ready, one.leased, one.oldest_ready_ms or 0)
            for flow, one in found.items()
        }


@breaks(
    Listing.test_a_job_of_an_expired_lease_is_listed_as_abandoned,
    ListedExternalLeasesContract.test_an_external_job_has_a_lease_of_its_own,
)
class CountsTheDeadAsAtWork(MemoryJobQueue):
    async def backlog(self):
        return {flow: replace(one, abandoned=0) for flow, one in (await super().backlog()).items()}


@breaks(Listing.test_a_job_of_an_expired_lease_is_listed_as_abandoned)
class TellsNoEndOfALease(MemoryJobQueue):
    def _standing(self, row):
        return replace(super()._standing(row), until_ms=None)


@breaks(Listing.test_a_lease_that_was_renewed_is_not_over)
class TellsTheFirstEndOfALease(MemoryJobQueue):
    def _standing(self, row):
        found = super()._standing(row)
        if row.token is None:
            return found
        firsts = self.__dict__.setdefault("firsts", {})
        return replace(found, until_ms=firsts.setdefault(row.token, found.until_ms))

    async def take(self, token, flows, lease_seconds, *, durable):
        answer = await super().take(token, flows, lease_seconds, durable=durable)
        await self.jobs("", 1_000)
        return answer
