"""Stores of views that do wrong by a relay."""

from msgspec.structs import replace

from gesta.stores.memory.read_model import MemoryReadModel, UndispatchedJobs
from gesta.testing.contracts.undispatched_jobs import UndispatchedJobsContract as Pending
from tests.contracts.faults.planting import breaks


@breaks(
    Pending.test_views_pending_jobs_and_checkpoint_are_written_together,
    Pending.test_a_job_stays_pending_until_it_is_relayed,
)
class WritesNoJobsDown(MemoryReadModel):
    async def save_with_jobs(self, views, jobs, quarantined, moves):
        return await super().save_with_jobs(views, [], quarantined, moves)


@breaks(Pending.test_a_projector_that_was_overtaken_makes_nothing_pending)
class WritesJobsDownBeforeItChecks(MemoryReadModel):
    async def save_with_jobs(self, views, jobs, quarantined, moves):
        self._undispatched.add(jobs)
        return await super().save_with_jobs(views, jobs, quarantined, moves)


@breaks(Pending.test_an_undispatched_job_is_read_as_it_was_written)
class ForgetsTheDoubt(MemoryReadModel):
    async def undispatched(self, limit, without=()):
        return [
            replace(job, possibly_executed=False)
            for job in await super().undispatched(limit, without)
        ]


@breaks(Pending.test_a_job_stays_pending_until_it_is_relayed)
class TellsOnlyOnce(MemoryReadModel):
    async def undispatched(self, limit, without=()):
        jobs = await super().undispatched(limit, without)
        self._undispatched.remove([job.id for job in jobs])
        return jobs

    async def find_undispatched(self, job_ids):
        return set(job_ids)


@breaks(Pending.test_a_job_that_is_pending_already_stays_as_it_is)
class WritesTheLatest(MemoryReadModel):
    async def save_with_jobs(self, views, jobs, quarantined, moves):
        self._undispatched.remove([job.id for job in jobs])
        return await super().save_with_jobs(views, jobs, quarantined, moves)


@breaks(Pending.test_jobs_of_flows_that_are_left_out_fill_no_page)
class LeavesNothingOut(MemoryReadModel):
    async def undispatched(self, limit, without=()):
        return await super().undispatched(limit)


@breaks(Pending.test_no_more_undispatched_jobs_are_returned_than_asked_for)
class TellsAllThatIsPending(MemoryReadModel):
    async def undispatched(self, limit, without=()):
        return await super().undispatched(100_000, without)


@breaks(Pending.test_a_large_batch_of_undispatched_jobs_is_kept)
class WritesFewJobsDown(MemoryReadModel):
    async def save_with_jobs(self, views, jobs, quarantined, moves):
        return await super().save_with_jobs(views, jobs[:512], quarantined, moves)


class _FirstComeFirstServed(UndispatchedJobs):
    def first(self, limit, without=()):
        return [job for _, job in self._jobs.values()][:limit]


class _NewcomersFirst(UndispatchedJobs):
    def add(self, jobs):
        for job in jobs:
            turn = self._last[job.tenant] = self._last.get(job.tenant, 0) + 1
            self._counts[job.tenant] += 1
            self._jobs[job.id] = turn, job
            self._in_turn.add((turn, job.tenant, job.id))


@breaks(Pending.test_undispatched_jobs_are_returned_fairly_by_tenant)
class LetsTheFloodGoFirst(MemoryReadModel):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._undispatched = _FirstComeFirstServed()


@breaks(Pending.test_undispatched_jobs_are_returned_fairly_by_tenant)
class LetsNewcomersGoFirst(MemoryReadModel):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._undispatched = _NewcomersFirst()


@breaks(Pending.test_a_rebuild_keeps_undispatched_jobs)
class ForgetsWhatIsPending(MemoryReadModel):
    def take_over(self, shadow, name, position, quarantined):
        self._undispatched = UndispatchedJobs()
        return super().take_over(shadow, name, position, quarantined)
