"""Stores of views that do wrong by a relay."""

from msgspec.structs import replace

from gesta.stores.memory.read_model import MemoryViews
from gesta.stores.memory.undispatched import PendingJobs
from gesta.testing.contracts.undispatched import PendingContract as Pending
from tests.contracts.faults.planting import breaks


@breaks(
    Pending.test_views_pending_jobs_and_checkpoint_are_written_together,
    Pending.test_a_job_stays_pending_until_it_is_relayed,
)
class WritesNoJobsDown(MemoryViews):
    async def save_with_jobs(self, views, jobs, parked, moves):
        return await super().save_with_jobs(views, [], parked, moves)


@breaks(Pending.test_a_projector_that_was_overtaken_makes_nothing_pending)
class WritesJobsDownBeforeItChecks(MemoryViews):
    async def save_with_jobs(self, views, jobs, parked, moves):
        self._pending.add(jobs)
        return await super().save_with_jobs(views, jobs, parked, moves)


@breaks(Pending.test_a_pending_job_is_told_as_it_was_written)
class ForgetsTheDoubt(MemoryViews):
    async def pending(self, limit):
        return [replace(job, suspect=False) for job in await super().pending(limit)]


@breaks(Pending.test_a_job_stays_pending_until_it_is_relayed)
class TellsOnlyOnce(MemoryViews):
    async def pending(self, limit):
        jobs = await super().pending(limit)
        self._pending.remove([job.id for job in jobs])
        return jobs

    async def are_pending(self, job_ids):
        return set(job_ids)


@breaks(Pending.test_a_job_that_is_pending_already_stays_as_it_is)
class WritesTheLatest(MemoryViews):
    async def save_with_jobs(self, views, jobs, parked, moves):
        self._pending.remove([job.id for job in jobs])
        return await super().save_with_jobs(views, jobs, parked, moves)


@breaks(Pending.test_no_more_jobs_are_told_than_asked_for)
class TellsAllThatIsPending(MemoryViews):
    async def pending(self, limit):
        return await super().pending(100_000)


@breaks(Pending.test_many_jobs_are_pending_at_once)
class WritesFewJobsDown(MemoryViews):
    async def save_with_jobs(self, views, jobs, parked, moves):
        return await super().save_with_jobs(views, jobs[:512], parked, moves)


class _FirstComeFirstServed(PendingJobs):
    def first(self, limit):
        return [job for _, job in self._jobs.values()][:limit]


class _NewcomersFirst(PendingJobs):
    def add(self, jobs):
        for job in jobs:
            turn = self._last[job.tenant] = self._last.get(job.tenant, 0) + 1
            self._counts[job.tenant] += 1
            self._jobs[job.id] = turn, job
            self._in_turn.add((turn, job.tenant, job.id))


@breaks(Pending.test_tenants_come_in_turn)
class LetsTheFloodGoFirst(MemoryViews):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._pending = _FirstComeFirstServed()


@breaks(Pending.test_tenants_come_in_turn)
class LetsNewcomersGoFirst(MemoryViews):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._pending = _NewcomersFirst()


@breaks(Pending.test_a_rebuild_keeps_what_is_pending)
class ForgetsWhatIsPending(MemoryViews):
    def take_over(self, shadow, name, position, parked):
        self._pending = PendingJobs()
        return super().take_over(shadow, name, position, parked)
