"""Queues with one thing wrong in holding jobs and counting them."""

from msgspec.structs import replace

from gesta.ports.job_queue import Drop, HeldJob, Hold, Release
from gesta.runtime.clock import Signal
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.testing.contracts.job_holds import JobHoldsContract as Holds
from gesta.testing.contracts.job_inspection import JobInspectionContract
from tests.contracts.faults.planting import breaks


@breaks(Holds.test_a_held_job_is_not_leased)
class HoldsForTheLengthOfALease(MemoryJobQueue):
    def settle_one(self, settlement):
        if isinstance(settlement, Hold):
            return super().settle_one(
                Release(settlement.job_id, settlement.token, self._runtime.now_ms() + 10_000)
            )
        return super().settle_one(settlement)


@breaks(Holds.test_a_held_job_is_live)
class ForgetsWhatItHolds(MemoryJobQueue):
    async def find(self, job_ids):
        return {job_id for job_id in await super().find(job_ids) if self._rows[job_id].hold is None}


@breaks(
    Holds.test_an_unheld_job_comes_back_as_if_it_had_not_been_taken,
    Holds.test_a_held_job_can_be_dropped,
)
class CallsWhatItHeldSuspect(MemoryJobQueue):
    def settle_one(self, settlement):
        settled = super().settle_one(settlement)
        if isinstance(settlement, Hold) and settled == "done":
            row = self._rows[settlement.job_id]
            row.job = replace(row.job, possibly_executed=True)
        return settled


@breaks(
    Holds.test_a_possibly_executed_job_stays_so_while_it_is_held_and_after,
    Holds.test_a_take_without_an_end_is_remembered_through_a_hold,
)
class CallsWhatItHeldInnocent(MemoryJobQueue):
    def settle_one(self, settlement):
        settled = super().settle_one(settlement)
        if isinstance(settlement, Hold) and settled == "done":
            row = self._rows[settlement.job_id]
            row.job = replace(row.job, possibly_executed=False)
        return settled


@breaks(Holds.test_only_the_holder_of_a_job_can_hold_it)
class LetsAnybodyHold(MemoryJobQueue):
    def judge(self, settlement):
        return super().judge(
            Drop(settlement.job_id) if isinstance(settlement, Hold) else settlement
        )


@breaks(Holds.test_only_jobs_of_the_scope_are_unheld_and_no_more_than_asked_for)
class UnholdsWhatItFinds(MemoryJobQueue):
    async def unhold(self, scope, limit):
        return sum(
            [
                await super(UnholdsWhatItFinds, self).unhold(one.scope, limit)
                for one in await self.held()
            ]
        )


@breaks(Holds.test_only_jobs_of_the_scope_are_unheld_and_no_more_than_asked_for)
class UnholdsAllAtOnce(MemoryJobQueue):
    async def unhold(self, scope, limit):
        return await super().unhold(scope, 1_000_000)


@breaks(Holds.test_what_is_held_is_counted_by_tenant_and_scope)
class CountsTenantsTogether(MemoryJobQueue):
    async def held(self):
        return [HeldJob("acme", one.scope, one.count) for one in await super().held()]


@breaks(Holds.test_an_unhold_wakes_waiters)
class UnholdsInSilence(MemoryJobQueue):
    async def unhold(self, scope, limit):
        signal, self._queued = self._queued, Signal(self._runtime)
        try:
            return await super().unhold(scope, limit)
        finally:
            self._queued = signal


@breaks(JobInspectionContract.test_every_live_job_is_counted_up_to_a_limit)
class CountsOnlyWhatNobodyHas(MemoryJobQueue):
    async def count(self, limit):
        return min(sum(row.token is None for row in self._rows.values()), limit)


@breaks(JobInspectionContract.test_every_live_job_is_counted_up_to_a_limit)
class CountsBeyondTheLimit(MemoryJobQueue):
    async def count(self, limit):
        return len(self._rows)
