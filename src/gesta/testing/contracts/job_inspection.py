"""What every job queue promises people who look at it."""

from gesta.ports.job_queue import Backlog, Hold, QueueStanding
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import LEASE_SECONDS, held_jobs, leased_jobs, put_job, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class JobInspectionContract(Contract):
    needs = frozenset({"queue", "job_inspection"})

    async def test_the_backlog_counts_what_waits_is_ready_and_is_leased(
        self, harness: Harness
    ) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        jobs = [fresh_job(flow, due_ms=due_ms) for due_ms in (0, 0, now + 5_000, now + 60_000)]
        await harness.queue.put(jobs)
        await take(harness, flow, fresh_name("token"), free=1)
        assert (await harness.job_inspection.backlog())[flow] == Backlog(
            waiting=2, ready=1, leased=1, oldest_ready_ms=now
        )
        harness.runtime.advance(7)
        assert (await harness.job_inspection.backlog())[flow] == Backlog(
            waiting=1, ready=2, leased=1, oldest_ready_ms=now
        )

    async def test_a_held_job_is_neither_ready_nor_leased(self, harness: Harness) -> None:
        job, token = await put_job(harness), fresh_name("token")
        flow = job.flow
        (leased,) = await take(harness, flow, token)
        assert await harness.queue.settle([Hold(leased.job.id, token, "tenant:acme")]) == ["done"]
        assert (await harness.job_inspection.backlog())[flow] == Backlog(held=1)
        assert [one.state for one in await harness.job_inspection.jobs(job.id[:-1], 1)] == ["held"]

    async def test_a_flow_without_ready_jobs_has_no_oldest(self, harness: Harness) -> None:
        flow = fresh_name()
        await harness.queue.put([fresh_job(flow, due_ms=harness.runtime.now_ms() + 1)])
        assert (await harness.job_inspection.backlog())[flow] == Backlog(waiting=1)
        assert fresh_name() not in await harness.job_inspection.backlog()

    async def test_live_jobs_are_listed_by_id_page_by_page(self, harness: Harness) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        first, second, third = (
            fresh_job(flow, due_ms=due_ms, priority=2) for due_ms in (0, now + 5_000, 0)
        )
        await harness.queue.put([third, second, first])
        (leased,) = await take(harness, flow, fresh_name("token"), free=1)
        after_id = first.id[:-1]
        found: list[QueueStanding] = []
        while page := await harness.job_inspection.jobs(after_id, 1):
            found += page
            after_id = page[-1].job.id
        own = [one for one in found if one.job.flow == flow]
        assert [one.job.id for one in own] == [first.id, second.id, third.id]
        found_leased = [one for one in own if one.state == "leased"]
        assert [(one.job.id, one.takes) for one in found_leased] == [(leased.job.id, 1)]
        assert [(one.state, one.job) for one in own if one.job.id == second.id] == [
            ("waiting", second)
        ]
        harness.runtime.advance(6)
        assert {one.state for one in await harness.job_inspection.jobs(first.id, 2)} <= {
            "ready",
            "leased",
        }

    async def test_a_job_of_an_expired_lease_is_listed_as_abandoned(self, harness: Harness) -> None:
        """Also while no worker asks for jobs: the job of a dead worker stays leased until another
        worker takes it.
        """
        job, token = await put_job(harness), fresh_name("token")
        flow = job.flow
        assert await lease_end(harness, job.id) == (None, False)
        await take(harness, flow, token)
        end = harness.runtime.now_ms() + round(LEASE_SECONDS * 1000)
        assert await lease_end(harness, job.id) == (end, False)
        harness.runtime.advance(LEASE_SECONDS - 0.001)
        assert (await harness.job_inspection.backlog())[flow] == Backlog(leased=1)
        harness.runtime.advance(0.001)
        assert (await harness.job_inspection.backlog())[flow] == Backlog(leased=1, abandoned=1)
        assert await lease_end(harness, job.id) == (end, True)

    async def test_a_lease_that_was_renewed_is_not_over(self, harness: Harness) -> None:
        flow, token, (job,) = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS / 2)
        assert await harness.queue.extend(token, LEASE_SECONDS)
        harness.runtime.advance(LEASE_SECONDS / 2)
        assert (await harness.job_inspection.backlog())[flow] == Backlog(leased=1)
        assert await lease_end(harness, job.id) == (
            harness.runtime.now_ms() + round(LEASE_SECONDS * 500),
            False,
        )

    async def test_every_live_job_is_counted_up_to_a_limit(self, harness: Harness) -> None:
        flow, before = fresh_name(), await harness.job_inspection.count(1_000_000)
        await held_jobs(harness, flow, fresh_name("scope"))
        await harness.queue.put([fresh_job(flow)])
        await take(harness, flow)
        await harness.queue.put(
            [fresh_job(flow), fresh_job(flow, due_ms=harness.runtime.now_ms() + 60_000)]
        )
        assert await harness.job_inspection.count(1_000_000) == before + 4
        assert await harness.job_inspection.count(before + 3) == before + 3


async def lease_end(harness: Harness, job_id: str) -> tuple[int | None, bool]:
    """When the lease on a job ends, and whether it is over."""
    (standing,) = await harness.job_inspection.jobs(job_id[:-1], 1)
    return standing.until_ms, standing.is_abandoned(harness.runtime.now_ms())
