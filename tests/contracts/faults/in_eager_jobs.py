"""Queues with one thing wrong in the call that puts jobs and leases them."""

from dataclasses import replace as with_fields

from msgspec.structs import replace

from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.testing.contracts.eager_jobs import EagerJobsContract as EagerJobs
from tests.contracts.faults.planting import breaks


class OfferingOtherSlots(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        offered = with_fields(free_slots, free=self.offered(jobs, free_slots.free))
        created = await super().put_leased(jobs, offered)
        free_slots.leased = offered.leased
        return created

    def offered(self, jobs, free):
        return free


class SeeingOtherJobs(MemoryJobQueue):
    """Chooses the jobs to lease as if they had other fields."""

    def _chosen(self, jobs, free_slots):
        chosen = super()._chosen([self.seen(job) for job in jobs], free_slots)
        ids = {job.id for job in chosen}
        return [job for job in jobs if job.id in ids]

    def seen(self, job):
        return job


class Overlooking(MemoryJobQueue):
    """Chooses the jobs to lease as if some waiting jobs did not exist."""

    def _chosen(self, jobs, free_slots):
        rows = self._rows
        overlooked = [row for row in rows.values() if row.token is None and self.overlooks(row)]
        self._rows = {key: row for key, row in rows.items() if row not in overlooked}
        chosen = super()._chosen(jobs, free_slots)
        self._rows = rows
        for row in overlooked:
            self._enqueue(row)
        return chosen

    def overlooks(self, row):
        return False


@breaks(EagerJobs.test_jobs_that_are_put_are_leased_to_the_offering_worker)
class ReportsAnotherToken(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        created = await super().put_leased(jobs, free_slots)
        free_slots.leased = [replace(one, token="another") for one in free_slots.leased]
        return created


@breaks(
    EagerJobs.test_jobs_that_are_put_are_leased_to_the_offering_worker,
    EagerJobs.test_a_live_job_stays_with_its_holder,
    EagerJobs.test_jobs_of_an_expired_lease_are_possibly_executed,
)
class LeavesLeasedJobsReady(MemoryJobQueue):
    """The jobs are leased, and another worker leases them, too."""

    async def put_leased(self, jobs, free_slots):
        created = await super().put_leased(jobs, free_slots)
        for one in free_slots.leased:
            self._enqueue(self._rows[one.job.id])
        return created


@breaks(EagerJobs.test_no_more_jobs_are_leased_than_there_are_slots)
class LeasesBeyondTheSlots(OfferingOtherSlots):
    def offered(self, jobs, free):
        return dict.fromkeys(free, 1000)


@breaks(EagerJobs.test_no_more_jobs_are_leased_than_there_are_slots)
class GivesAllSlotsToTheFirstTenant(MemoryJobQueue):
    def _chosen(self, jobs, free_slots):
        return super()._chosen([job for job in jobs if job.tenant == jobs[0].tenant], free_slots)


@breaks(EagerJobs.test_each_flow_has_its_own_slots)
class LeasesJobsOfFlowsWithoutSlots(OfferingOtherSlots):
    def offered(self, jobs, free):
        return {job.flow: 1 for job in jobs} | free


@breaks(EagerJobs.test_jobs_that_already_wait_are_leased_first)
class OvertakesJobsThatWereDueWhenPut(Overlooking):
    def overlooks(self, row):
        return row.job.due_ms < row.available_ms


@breaks(EagerJobs.test_a_job_that_has_fallen_due_comes_first)
class OvertakesJobsThatHaveFallenDue(Overlooking):
    def overlooks(self, row):
        return row.job.due_ms == row.available_ms


@breaks(EagerJobs.test_a_job_that_a_dead_worker_held_comes_first)
class OvertakesJobsOfDeadWorkers(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        now = self._runtime.now_ms()
        expired = {token: one for token, one in self._leases.items() if one.end_ms <= now}
        for token in expired:
            del self._leases[token]
        created = await super().put_leased(jobs, free_slots)
        self._leases |= expired
        return created


@breaks(EagerJobs.test_a_job_that_is_not_due_or_possibly_executed_is_not_leased)
class LeasesJobsBeforeTheyAreDue(SeeingOtherJobs):
    def seen(self, job):
        return replace(job, due_ms=0)


@breaks(EagerJobs.test_a_job_that_is_not_due_or_possibly_executed_is_not_leased)
class LeasesPossiblyExecutedJobs(SeeingOtherJobs):
    def seen(self, job):
        return replace(job, possibly_executed=False)


@breaks(EagerJobs.test_a_live_job_stays_with_its_holder)
class TakesLiveJobsFromTheirHolder(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        live = [self._rows[job.id] for job in jobs if job.id in self._rows]
        created = await super().put_leased(jobs, free_slots)
        for row in live:
            self._let_go(row)
            free_slots.leased.append(self._lease_out(row, free_slots.token))
        return created


@breaks(EagerJobs.test_a_live_job_stays_with_its_holder)
class LeasesAJobGivenTwiceTwice(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        created = [job.id not in self._rows for job in jobs]
        fresh = [job for job, is_new in zip(jobs, created, strict=True) if is_new]
        self.put_eager(fresh, free_slots)
        return created


@breaks(EagerJobs.test_a_job_can_be_put_again_after_its_end)
class RemembersEndedJobs(MemoryJobQueue):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._seen = set()

    async def put_leased(self, jobs, free_slots):
        ended = self._seen - set(self._rows)
        self._seen |= {job.id for job in jobs}
        fresh = [job for job in jobs if job.id not in ended]
        created = iter(await super().put_leased(fresh, free_slots))
        return [job.id not in ended and next(created) for job in jobs]


@breaks(
    EagerJobs.test_jobs_of_an_expired_lease_are_possibly_executed,
    EagerJobs.test_a_job_that_a_dead_worker_held_comes_first,
)
class DoesNotCountTheLease(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        created = await super().put_leased(jobs, free_slots)
        for one in free_slots.leased:
            self._rows[one.job.id].takes = 0
        return created


@breaks(EagerJobs.test_jobs_of_an_expired_lease_are_possibly_executed)
class LetsTheLeaseEndEarly(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        created = await super().put_leased(jobs, free_slots)
        if free_slots.leased:
            self._leases[free_slots.token].end_ms -= 1
        return created


@breaks(EagerJobs.test_putting_renews_the_lease_of_all_jobs_of_the_worker)
class DoesNotRenewTheLease(MemoryJobQueue):
    async def put_leased(self, jobs, free_slots):
        before = {token: lease.end_ms for token, lease in self._leases.items()}
        created = await super().put_leased(jobs, free_slots)
        for token, end_ms in before.items():
            self._leases[token].end_ms = end_ms
        return created
