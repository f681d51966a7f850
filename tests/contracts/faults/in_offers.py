"""Queues with one thing wrong about offers."""

from gesta.ports.job_queue import Taken
from gesta.stores.memory.job_queue import MemoryJobQueue, _Lease
from gesta.stores.memory.transactions import MemoryCommits
from gesta.testing.contracts.eager_dispatch import OffersAtOnceContract as AtOnce
from gesta.testing.contracts.eager_dispatch import OffersContract as Offers
from tests.contracts.faults.planting import breaks


@breaks(
    Offers.test_what_is_put_is_the_offering_worker_s,
    AtOnce.test_what_is_appended_is_taken_in_the_same_commit,
)
class PutsWhatItGives(MemoryJobQueue):
    """The jobs are told as taken, and another takes them too."""

    def put_offered(self, jobs, offer):
        super().put_offered(jobs, None)
        if offer is not None:
            offer.taken = [
                Taken(job, offer.token, 1, self._runtime.now_ms())
                for job in self._chosen(jobs, offer)
            ]


@breaks(Offers.test_no_more_are_taken_than_there_are_slots)
class CountsNoSlots(MemoryJobQueue):
    def _chosen(self, jobs, offer):
        return [job for job in jobs if job.flow in offer.free]


@breaks(Offers.test_of_more_than_there_are_slots_every_tenant_has_its_turn)
class FirstComeFirstServed(MemoryJobQueue):
    def _chosen(self, jobs, offer):
        return jobs[: sum(offer.free.values())]


@breaks(Offers.test_whoever_waits_comes_first)
class PassesWhoeverWaits(MemoryJobQueue):
    def _first(self, heap):
        row = super()._first(heap)
        return None if self._is_choosing else row

    _is_choosing = False

    def _chosen(self, jobs, offer):
        self._is_choosing = True
        chosen = super()._chosen(jobs, offer)
        self._is_choosing = False
        return chosen


@breaks(Offers.test_what_has_fallen_due_comes_first)
class LooksForReadyOnesOnly(MemoryJobQueue):
    def _make_ready(self, lane):
        if not self._is_choosing:
            super()._make_ready(lane)

    _is_choosing = False

    def _chosen(self, jobs, offer):
        self._is_choosing = True
        chosen = super()._chosen(jobs, offer)
        self._is_choosing = False
        return chosen


@breaks(Offers.test_what_a_dead_worker_held_comes_first)
class LeavesTheDeadWhereTheyAre(MemoryJobQueue):
    def _chosen(self, jobs, offer):
        leases, self._leases = self._leases, {}
        chosen = super()._chosen(jobs, offer)
        self._leases = leases
        return chosen


@breaks(
    Offers.test_a_job_that_is_not_due_waits_for_its_time,
    Offers.test_a_suspect_job_goes_the_long_way,
)
class TakesWhateverThereIs(MemoryJobQueue):
    def _chosen(self, jobs, offer):
        return list(jobs)


@breaks(Offers.test_a_job_that_is_live_stays_with_whoever_has_it)
class TakesWhatAnotherHas(MemoryJobQueue):
    def _chosen(self, jobs, offer):
        rows, self._rows = self._rows, {}
        chosen = super()._chosen(jobs, offer)
        self._rows = rows
        return chosen


@breaks(Offers.test_a_lease_that_runs_out_leaves_them_in_doubt)
class LendsForEver(MemoryJobQueue):
    def put_offered(self, jobs, offer):
        super().put_offered(jobs, offer)
        if offer is not None and offer.taken:
            self._leases[offer.token].end_ms = 2**62


@breaks(Offers.test_it_renews_the_lease_of_all_its_jobs)
class KeepsTheLeaseAsItWas(MemoryJobQueue):
    def put_offered(self, jobs, offer):
        before = self._leases.get(offer.token, _Lease(0)).end_ms if offer is not None else 0
        super().put_offered(jobs, offer)
        if before:
            self._leases[offer.token].end_ms = before


@breaks(Offers.test_a_projector_that_was_overtaken_takes_nothing)
class TakesAlthoughNothingWasMoved(MemoryCommits):
    async def project(self, views, jobs, parked, moves, offer=None):
        moved = await super().project(views, jobs, parked, moves, offer)
        if not moved:
            self._queue.put_offered(jobs, offer)
        return moved


@breaks(AtOnce.test_what_is_left_to_the_projector_is_not_taken)
class TakesWhatTheProjectorComesFor(MemoryCommits):
    async def append(self, appends, projection):
        verdicts = await super().append(appends, projection)
        if projection.reached is None:
            self._queue.put_offered(projection.jobs, projection.offer)
        return verdicts
