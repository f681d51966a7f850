"""Queues with one thing wrong about offers."""

from gesta.ports.job_queue import LeasedJob
from gesta.stores.memory.job_queue import MemoryJobQueue, _Lease
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.testing.contracts.eager_dispatch import EagerDispatchContract as EagerDispatch
from gesta.testing.contracts.eager_dispatch import InlineEagerDispatchContract as InlineProjection
from tests.contracts.faults.planting import breaks


@breaks(
    EagerDispatch.test_what_is_put_is_the_offering_worker_s,
    InlineProjection.test_what_is_appended_is_taken_in_the_same_commit,
)
class PutsWhatItGives(MemoryJobQueue):
    """The jobs are reported as leased, and another worker leases them, too."""

    def put_eager(self, jobs, free_slots):
        super().put_eager(jobs, None)
        if free_slots is not None:
            free_slots.leased = [
                LeasedJob(job, free_slots.token, 1, self._runtime.now_ms())
                for job in self._chosen(jobs, free_slots)
            ]


@breaks(EagerDispatch.test_no_more_are_taken_than_there_are_slots)
class CountsNoSlots(MemoryJobQueue):
    def _chosen(self, jobs, free_slots):
        return [job for job in jobs if job.flow in free_slots.free]


@breaks(EagerDispatch.test_jobs_beyond_the_free_slots_are_leased_fairly_by_tenant)
class FirstComeFirstServed(MemoryJobQueue):
    def _chosen(self, jobs, free_slots):
        return jobs[: sum(free_slots.free.values())]


@breaks(EagerDispatch.test_jobs_that_already_wait_are_leased_first)
class PassesWhoeverWaits(MemoryJobQueue):
    def _first(self, heap):
        row = super()._first(heap)
        return None if self._is_choosing else row

    _is_choosing = False

    def _chosen(self, jobs, free_slots):
        self._is_choosing = True
        chosen = super()._chosen(jobs, free_slots)
        self._is_choosing = False
        return chosen


@breaks(EagerDispatch.test_what_has_fallen_due_comes_first)
class LooksForReadyOnesOnly(MemoryJobQueue):
    def _make_ready(self, external_queue):
        if not self._is_choosing:
            super()._make_ready(external_queue)

    _is_choosing = False

    def _chosen(self, jobs, free_slots):
        self._is_choosing = True
        chosen = super()._chosen(jobs, free_slots)
        self._is_choosing = False
        return chosen


@breaks(EagerDispatch.test_what_a_dead_worker_held_comes_first)
class LeavesTheDeadWhereTheyAre(MemoryJobQueue):
    def _chosen(self, jobs, free_slots):
        leases, self._leases = self._leases, {}
        chosen = super()._chosen(jobs, free_slots)
        self._leases = leases
        return chosen


@breaks(
    EagerDispatch.test_a_job_that_is_not_due_waits_for_its_time,
    EagerDispatch.test_a_possibly_executed_job_is_not_dispatched_eagerly,
)
class TakesWhateverThereIs(MemoryJobQueue):
    def _chosen(self, jobs, free_slots):
        return list(jobs)


@breaks(EagerDispatch.test_a_live_job_stays_with_its_holder)
class TakesWhatAnotherHas(MemoryJobQueue):
    def _chosen(self, jobs, free_slots):
        rows, self._rows = self._rows, {}
        chosen = super()._chosen(jobs, free_slots)
        self._rows = rows
        return chosen


@breaks(EagerDispatch.test_jobs_of_an_expired_lease_are_possibly_executed)
class LendsForEver(MemoryJobQueue):
    def put_eager(self, jobs, free_slots):
        super().put_eager(jobs, free_slots)
        if free_slots is not None and free_slots.leased:
            self._leases[free_slots.token].end_ms = 2**62


@breaks(EagerDispatch.test_it_renews_the_lease_of_all_its_jobs)
class KeepsTheLeaseAsItWas(MemoryJobQueue):
    def put_eager(self, jobs, free_slots):
        before = (
            self._leases.get(free_slots.token, _Lease(0)).end_ms if free_slots is not None else 0
        )
        super().put_eager(jobs, free_slots)
        if before:
            self._leases[free_slots.token].end_ms = before


@breaks(EagerDispatch.test_a_projector_that_was_overtaken_takes_nothing)
class TakesAlthoughNothingWasMoved(MemoryTransactions):
    async def project(self, views, jobs, quarantined, moves, free_slots=None):
        moved = await super().project(views, jobs, quarantined, moves, free_slots)
        if not moved:
            self._queue.put_eager(jobs, free_slots)
        return moved


@breaks(InlineProjection.test_what_is_left_to_the_projector_is_not_taken)
class TakesWhatTheProjectorComesFor(MemoryTransactions):
    async def append(self, appends, projection):
        verdicts = await super().append(appends, projection)
        if projection.reached is None:
            self._queue.put_eager(projection.jobs, projection.free_slots)
        return verdicts
