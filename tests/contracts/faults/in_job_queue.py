"""Queues with one thing wrong in putting, taking and settling."""

from msgspec.structs import replace

from gesta.ports.job_queue import Ack, Drop, Release
from gesta.runtime.clock import Signal
from gesta.stores.memory.job_queue import MemoryJobQueue, _Row
from gesta.testing.contracts.fair_queue import OrderContract as Order
from gesta.testing.contracts.job_leases import JobLeasesContract as Leases
from gesta.testing.contracts.job_queue import PutContract as Put
from gesta.testing.contracts.job_queue import TakeContract as Take
from gesta.testing.contracts.job_settlements import SettleContract as Settle
from gesta.testing.contracts.transactions import ProjectContract as Project
from gesta.testing.contracts.transactions import RecordContract as Record
from gesta.testing.contracts.unique_jobs import UniqueJobsContract as Unique
from tests.contracts.faults.in_fair_queue import Reordering
from tests.contracts.faults.planting import breaks


@breaks(Put.test_a_job_comes_out_as_it_was_put)
class LosesTheKindOfAJob(MemoryJobQueue):
    def put_one(self, job):
        return super().put_one(replace(job, kind="execute"))


@breaks(
    Unique.test_a_job_of_a_live_id_is_not_put_again,
    Put.test_a_job_given_twice_in_a_batch_is_put_once,
    Unique.test_of_concurrent_puts_of_an_id_one_creates_the_job,
    Unique.test_a_leased_job_is_not_put_again,
)
class ReplacesLiveJobs(MemoryJobQueue):
    def put_one(self, job):
        self._enqueue(_Row(job, max(job.due_ms, self._runtime.now_ms())))
        return True


@breaks(Put.test_the_id_of_a_finished_job_may_be_put_again)
class RemembersFinishedIds(MemoryJobQueue):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._seen = set()

    def put_one(self, job):
        if job.id in self._seen:
            return False
        self._seen.add(job.id)
        return super().put_one(job)


@breaks(Put.test_a_batch_may_be_large)
class CutsLargeBatches(MemoryJobQueue):
    async def put(self, jobs):
        return await super().put(jobs[:128])


@breaks(Put.test_an_empty_call_is_answered_with_nothing)
class AnswersNobody(MemoryJobQueue):
    async def put(self, jobs):
        return await super().put(jobs) or [True]


@breaks(Put.test_every_worker_that_waits_is_woken_by_a_put)
class WakesTheFirstWorkerOnly(MemoryJobQueue):
    async def ready(self, timeout_seconds):
        signal = Signal(self._runtime) if self._queued._waiters else self._queued
        await signal.wait(timeout_seconds)


@breaks(
    Put.test_a_put_before_the_wait_ends_the_wait,
    Settle.test_a_release_wakes_waiters,
    Project.test_a_projected_job_wakes_waiters,
    Record.test_a_recorded_release_wakes_waiters,
)
class WakesNobody(MemoryJobQueue):
    async def ready(self, timeout_seconds):
        await Signal(self._runtime).wait(timeout_seconds)


@breaks(Put.test_a_wait_ends_when_its_time_is_up)
class WaitsForEver(MemoryJobQueue):
    async def ready(self, timeout_seconds):
        await super().ready(1_000_000)


@breaks(Take.test_a_worker_gets_only_jobs_of_its_flows_and_no_more_than_it_has_slots)
class IgnoresSlots(MemoryJobQueue):
    def _due_rows(self, flow, free):
        return super()._due_rows(flow, 1000)


@breaks(
    Take.test_a_leased_job_is_not_leased_again,
    Take.test_concurrent_workers_never_get_the_same_job,
    Leases.test_of_concurrent_workers_one_gets_the_job_of_an_expired_lease,
)
class LeavesTakenJobsReady(MemoryJobQueue):
    def _lease_out(self, row, token):
        leased = super()._lease_out(row, token)
        self._enqueue(row)
        return leased


@breaks(Take.test_a_delayed_job_is_leased_when_it_is_due_and_not_before)
class IgnoresTheDelay(MemoryJobQueue):
    def put_one(self, job):
        return super().put_one(replace(job, due_ms=0))


@breaks(Take.test_a_job_that_is_due_when_put_is_available_since_then)
class CountsTheLagFromBeforeThePut(MemoryJobQueue):
    def put_one(self, job):
        self._enqueue(_Row(job, job.due_ms))
        return True


@breaks(Order.test_a_take_returns_when_the_next_job_is_due)
class TellsNothingOfTheNextJob(MemoryJobQueue):
    def _next_due(self, token, flows):
        return None


@breaks(Take.test_a_take_returns_none_if_no_job_becomes_due)
class AlwaysTellsOfANextJob(MemoryJobQueue):
    def _next_due(self, token, flows):
        return self._runtime.now_ms()


@breaks(Order.test_the_most_urgent_job_goes_first)
class TurnsPriorityRound(MemoryJobQueue):
    def _enqueue(self, row):
        row.job = replace(row.job, priority=11 - row.job.priority)
        super()._enqueue(row)


@breaks(Order.test_among_equals_the_oldest_job_goes_first)
class GivesOutTheNewestFirst(Reordering):
    def reordered(self, rows):
        return rows[::-1]


@breaks(Settle.test_an_acked_job_is_gone)
class KeepsAckedJobs(MemoryJobQueue):
    def settle_one(self, settlement):
        return (
            self.judge(settlement)
            if isinstance(settlement, Ack)
            else super().settle_one(settlement)
        )


@breaks(Settle.test_a_job_without_a_lease_cannot_be_acked)
class LetsAnybodyAckAFreeJob(MemoryJobQueue):
    def judge(self, settlement):
        row = self._rows.get(settlement.job_id)
        return "done" if row and row.token is None else super().judge(settlement)


@breaks(Settle.test_a_released_job_comes_back_when_it_is_due_and_not_before)
class ReleasesAtOnce(MemoryJobQueue):
    def settle_one(self, settlement):
        return super().settle_one(
            replace(settlement, due_ms=0) if isinstance(settlement, Release) else settlement
        )


@breaks(Settle.test_a_released_job_forgets_earlier_leases)
class CountsTakesThatEnded(MemoryJobQueue):
    def settle_one(self, settlement):
        takes = self._rows[settlement.job_id].takes
        settled = super().settle_one(settlement)
        self._rows[settlement.job_id].takes = takes
        return settled


@breaks(Order.test_a_released_job_keeps_its_priority)
class ReleasesWithThePriorityOfAll(MemoryJobQueue):
    def settle_one(self, settlement):
        row = self._rows[settlement.job_id]
        row.job = replace(row.job, priority=5)
        return super().settle_one(settlement)


@breaks(Unique.test_a_job_without_a_lease_can_be_dropped)
class DropsNothing(MemoryJobQueue):
    def judge(self, settlement):
        return "active" if isinstance(settlement, Drop) else super().judge(settlement)


@breaks(
    Unique.test_a_leased_job_cannot_be_dropped,
    Unique.test_a_possibly_executed_job_cannot_be_dropped,
)
class DropsWhatSomebodyHolds(MemoryJobQueue):
    def judge(self, settlement):
        return (
            "done"
            if isinstance(settlement, Drop) and settlement.job_id in self._rows
            else super().judge(settlement)
        )


@breaks(Unique.test_settling_a_missing_job_answers_absent)
class CallsTheAbsentLost(MemoryJobQueue):
    def judge(self, settlement):
        return super().judge(settlement) if settlement.job_id in self._rows else "lost"


@breaks(Unique.test_each_settlement_has_its_own_answer)
class GivesAllTheSameAnswer(MemoryJobQueue):
    async def settle(self, settlements):
        return (await super().settle(settlements))[:1] * len(settlements)


@breaks(Unique.test_waiting_ready_and_held_jobs_are_found)
class FindsOnlyJobsThatNobodyHolds(MemoryJobQueue):
    async def find(self, job_ids):
        return {
            job_id for job_id in await super().find(job_ids) if self._rows[job_id].token is None
        }


@breaks(Unique.test_an_acked_job_is_found_no_more)
class FindsWhatWasAcked(MemoryJobQueue):
    async def find(self, job_ids):
        return set(job_ids)


@breaks(Unique.test_many_jobs_are_found_at_once)
class FindsOneBatch(MemoryJobQueue):
    async def find(self, job_ids):
        return await super().find(job_ids[:100])
