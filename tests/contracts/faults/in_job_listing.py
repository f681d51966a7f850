"""Queues that show people something else than they hold."""

from gesta.adapters.memory.job_queue import MemoryJobQueue
from gesta.contracts.job_listing import JobListingContract as Listing
from tests.contracts.faults.planting import breaks


@breaks(Listing.test_the_backlog_counts_what_waits_is_ready_and_is_leased, Listing.test_live_jobs_are_listed_by_id_page_by_page)
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
        return {flow: type(one)(one.waiting, one.ready, one.leased, one.oldest_ready_ms or 0) for flow, one in found.items()}
