"""Job stores with one thing wrong."""

from collections import Counter

from msgspec.structs import replace

from gesta.domain.stored_job import JobStatus
from gesta.ports.job_store import Held, MethodResult
from gesta.stores import job_rows
from gesta.stores.job_results import JobResults
from gesta.stores.memory.stored_jobs import MemoryStoredJobs
from gesta.testing.contracts.job_store import JobRowsContract as Rows
from gesta.testing.contracts.job_store import JobStoreAfterRestartContract as AfterRestart
from gesta.testing.contracts.job_store import JobStoreContract as Jobs
from gesta.testing.harnesses.memory import Harness
from tests.contracts.faults.planting import breaks


@breaks(Jobs.test_a_job_is_read_as_it_was_created)
class SortsTheQuery(JobResults):
    async def create(self, jobs):
        return await super().create(
            [one and replace(one, query_params=sorted(one.query_params, key=str)) for one in jobs]
        )


@breaks(Jobs.test_nulls_and_empty_collections_are_read_back)
class ReadsNullAsText(JobResults):
    async def get(self, ids):
        found = await super().get(ids)
        return [MethodResult(one.value and replace(one.value, result="")) for one in found]


@breaks(
    Jobs.test_a_job_without_content_or_id_is_refused,
    Jobs.test_an_unknown_job_is_not_found,
    Jobs.test_update_refuses_null_and_an_empty_id,
    Jobs.test_a_payload_that_is_too_large_is_refused,
    Jobs.test_a_status_that_may_not_follow_is_refused,
    Jobs.test_a_claim_by_id_says_why_it_is_refused,
    Jobs.test_an_existing_job_is_not_overwritten,
)
class SaysYesToEverything(JobResults):
    async def create(self, jobs):
        await super().create(jobs)
        return [MethodResult() for _ in jobs]

    async def update(self, updates):
        await super().update(updates)
        return [MethodResult() for _ in updates]

    async def get(self, ids):
        return [MethodResult(one.value) for one in await super().get(ids)]

    async def claim_by_id(self, ids, claim):
        return [MethodResult(one.value) for one in await super().claim_by_id(ids, claim)]


@breaks(
    Jobs.test_of_creators_that_race_for_an_id_one_succeeds,
    Jobs.test_an_existing_job_is_not_overwritten,
)
class Overwrites(MemoryStoredJobs):
    async def create(self, rows):
        for row in rows:
            self.stored.pop(row["Id"], None)
        return await super().create(rows)


@breaks(
    Jobs.test_a_claim_gives_the_whole_job_to_one_worker,
    Jobs.test_workers_that_race_claim_each_job_once,
    Jobs.test_completed_jobs_have_their_result,
    Jobs.test_failed_jobs_have_their_error,
    Jobs.test_a_rescheduled_job_comes_back_until_its_retries_are_used,
    Jobs.test_counts_outlive_the_jobs,
    Jobs.test_a_success_stays_although_it_was_to_be_canceled,
    Jobs.test_a_heartbeat_keeps_the_claim,
    Jobs.test_a_result_that_is_too_large_leaves_the_job_claimed,
    Jobs.test_a_claim_that_expired_is_taken_back,
    Jobs.test_the_last_lost_worker_fails_the_job_with_a_readable_error,
)
class ClaimsWithoutATrace(MemoryStoredJobs):
    async def claim(self, claim, token):
        before = dict(self.stored)
        answer = await super().claim(claim, token)
        self.stored = before
        return answer


@breaks(Jobs.test_no_work_is_an_empty_success)
class FailsWithoutWork(JobResults):
    async def claim(self, claim):
        answer = await super().claim(claim)
        return answer if answer.value else MethodResult(None)


@breaks(
    Jobs.test_a_scheduled_job_is_claimed_when_it_is_due_and_not_before,
    Jobs.test_an_updated_job_is_queued_as_its_status_says,
    Jobs.test_a_claim_by_id_says_why_it_is_refused,
)
class DropsWhatIsNotDue(MemoryStoredJobs):
    """As the document does: a job that is scheduled for later is never queued."""

    async def create(self, rows):
        codes = await super().create(rows)
        self._drop()
        return codes

    async def change(self, changes):
        codes = await super().change(changes)
        self._drop()
        return codes

    def _drop(self):
        self.stored = {
            one: row._replace(due_ms=2**60, delay_us=None) if row.delay_us else row
            for one, row in self.stored.items()
        }


@breaks(Jobs.test_an_update_refreshes_the_time_and_takes_the_job_out_of_the_queue)
class KeepsTheTime(MemoryStoredJobs):
    async def change(self, changes):
        times = {one: row.updated_us for one, row in self.stored.items()}
        codes = await super().change(changes)
        for one, at in times.items():
            self.stored[one] = self.stored[one]._replace(updated_us=at)
        return codes


@breaks(
    Jobs.test_a_stale_copy_does_not_overwrite_a_claim,
    Jobs.test_of_two_updates_of_one_copy_the_second_is_refused,
)
class OverwritesWhateverIsThere(MemoryStoredJobs):
    async def update(self, rows):
        for row, _ in rows:
            self.stored[row["Id"]] = job_rows.row_of(row, self._runtime.now_ms())
        return ["OK"] * len(rows)


@breaks(Jobs.test_a_waiting_job_with_a_forgotten_worker_is_claimed)
class LetsTheWorkerIdDecide(MemoryStoredJobs):
    def due(self, claim):
        return {
            name: [one for one in ids if self.stored[one].worker_id is None]
            for name, ids in super().due(claim).items()
        }


@breaks(Jobs.test_many_jobs_are_claimed_at_once_the_oldest_first)
class ClaimsInTheOrderOfIds(MemoryStoredJobs):
    def due(self, claim):
        return {name: sorted(ids) for name, ids in super().due(claim).items()}


@breaks(Jobs.test_names_take_turns_of_three)
class KnowsNoTurns(MemoryStoredJobs):
    async def claim(self, claim, token):
        name = next((one for one, ids in self.due(claim).items() if ids), "")
        return await super().claim(replace(claim, names=(name,)), token)


@breaks(Jobs.test_jobs_of_urgent_names_come_first)
class KnowsNoUrgency(MemoryStoredJobs):
    async def claim(self, claim, token):
        return await super().claim(replace(claim, urgent=()), token)


@breaks(Jobs.test_a_lost_claim_of_an_adopted_job_costs_no_retry)
class CountsEveryLostClaim(MemoryStoredJobs):
    async def claim(self, claim, token):
        return await super().claim(claim, token.removeprefix("adopted-"))


@breaks(
    Rows.test_a_store_that_was_left_changes_no_job,
    Rows.test_a_store_that_is_being_filled_gives_no_job_to_a_worker,
)
class KnowsNoFence(MemoryStoredJobs):
    def __init__(self, runtime, _):
        super().__init__(runtime)


@breaks(Rows.test_jobs_are_copied_with_their_claims_and_counts)
class CopiesNoClaims(MemoryStoredJobs):
    async def fill(self, rows, names):
        await super().fill([row._replace(claim=None) for row in rows], names)


@breaks(Jobs.test_jobs_of_names_that_the_worker_does_not_know_stay)
class ClaimsEveryName(MemoryStoredJobs):
    async def claim(self, claim, token):
        names = tuple(Counter(row.name for row in self.stored.values()))
        return await super().claim(replace(claim, names=names), token)


@breaks(Jobs.test_a_transition_needs_the_newest_claim)
class AsksForNoToken(MemoryStoredJobs):
    async def complete(self, ends):
        return await super().complete([replace(one, held=self._newest(one.held)) for one in ends])

    def _newest(self, held):
        worker, _, token = (self.stored[held.id].claim or " ").partition(" ")
        return Held(held.id, worker, token)


@breaks(Jobs.test_a_released_job_is_claimed_next_and_loses_no_retry)
class CountsAReleaseAsARetry(MemoryStoredJobs):
    async def release(self, held):
        return await self.change([(one.id, job_rows.reap) for one in held]) and ["OK"] * len(held)


@breaks(
    Jobs.test_a_claim_that_expired_is_taken_back,
    Jobs.test_reapers_that_race_bring_a_job_back_once,
    Jobs.test_the_last_lost_worker_fails_the_job_with_a_readable_error,
)
class LeavesLostJobsInProgress(MemoryStoredJobs):
    async def change(self, changes):
        if not changes or changes[0][1] is not job_rows.reap:
            return await super().change(changes)
        return ["again"] * len(changes)

    async def reap(self, limit):
        return (await super().reap(limit)) * 2


@breaks(
    Jobs.test_a_waiting_job_is_canceled_at_once,
    Jobs.test_the_worker_of_a_canceled_job_hears_of_it,
)
class ForgetsCancels(MemoryStoredJobs):
    async def cancel(self, ids):
        status = {one: self.stored[one].status for one in ids if one in self.stored}
        is_busy = JobStatus.IN_PROGRESS in status.values()
        return ["requested" if is_busy else "canceled"] * len(ids)


@breaks(AfterRestart.test_jobs_and_claims_are_there_again)
class StartsEmpty(Harness):
    async def open_ports(self):
        self.database.stored_jobs = MemoryStoredJobs(self.runtime)
        self.database.job_store = JobResults(self.database.stored_jobs, self.runtime)
        return self.database.stores()
