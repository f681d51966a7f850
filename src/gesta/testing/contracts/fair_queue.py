"""What every job queue promises about who goes first: tenants are apart, and inside a tenant the
urgent go first.
"""

from gesta.ports.job_queue import Job, Release
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import LEASE_SECONDS, leased_jobs, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract

FLOOD = 10_000
BATCH = 2_000


class FairQueueContract(Contract):
    needs = frozenset({"queue", "turns"})

    async def test_the_jobs_of_two_tenants_alternate(self, harness: Harness) -> None:
        flow = fresh_name()
        await _put(harness, flow, "many", 6)
        await _put(harness, flow, "few", 3)
        leased = await _one_by_one(harness, flow, 6)
        assert [sorted(pair) for pair in zip(leased[::2], leased[1::2], strict=True)] == [
            ["few", "many"]
        ] * 3

    async def test_a_flood_queues_behind_itself(self, harness: Harness) -> None:
        flow = fresh_name()
        for _ in range(FLOOD // BATCH):
            await _put(harness, flow, "flood", BATCH)
        await take(harness, flow, free=100)
        await _put(harness, flow, "other", 1)
        assert "other" in await _one_by_one(harness, flow, 3)

    async def test_a_flood_of_urgent_jobs_does_not_pass_another_tenant(
        self, harness: Harness
    ) -> None:
        flow = fresh_name()
        await _put(harness, flow, "flood", 200, priority=1)
        await take(harness, flow, free=10)
        await _put(harness, flow, "other", 1, priority=10)
        assert "other" in await _one_by_one(harness, flow, 3)

    async def test_an_idle_tenant_saves_up_no_turns(self, harness: Harness) -> None:
        flow = fresh_name()
        await _put(harness, flow, "busy", 60)
        await take(harness, flow, free=40)
        await _put(harness, flow, "rested", 20)
        assert (await _one_by_one(harness, flow, 10)).count("busy") >= 4

    async def test_a_tenants_jobs_keep_their_order(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [*await _put(harness, flow, "one", 20), *await _put(harness, flow, "one", 20)]
        leased = [one.job.id for _ in jobs for one in await take(harness, flow, free=1)]
        assert leased == [job.id for job in jobs]

    async def test_an_urgent_job_passes_its_own_tenants_flood(self, harness: Harness) -> None:
        flow = fresh_name()
        await _put(harness, flow, "one", BATCH)
        await take(harness, flow, free=10)
        (urgent,) = await _put(harness, flow, "one", 1, priority=4)
        assert urgent.id in [one.job.id for one in await take(harness, flow, free=2)]

    async def test_a_less_urgent_job_passes_none_of_its_own_tenant(self, harness: Harness) -> None:
        flow = fresh_name()
        await _put(harness, flow, "one", 5)
        (patient,) = await _put(harness, flow, "one", 1, priority=6)
        leased = [one.job.id for _ in range(6) for one in await take(harness, flow, free=1)]
        assert leased.index(patient.id) == 5

    async def test_the_least_urgent_job_does_not_starve(self, harness: Harness) -> None:
        flow = fresh_name()
        (patient,) = await _put(harness, flow, "one", 1, priority=10)
        leased: list[str] = []
        while patient.id not in leased:
            await _put(harness, flow, "one", 2, priority=1)
            leased += [one.job.id for one in await take(harness, flow, free=1)]
            assert len(leased) < 20

    async def test_a_job_that_waits_for_its_time_takes_no_turn_before(
        self, harness: Harness
    ) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        await _put(harness, flow, "one", 50, due_ms=now + 60_000)
        await _put(harness, flow, "other", 10)
        await _put(harness, flow, "one", 1)
        assert "one" in await _one_by_one(harness, flow, 2)

    async def test_jobs_that_fall_due_together_queue_behind_themselves(
        self, harness: Harness
    ) -> None:
        flow, due_ms = fresh_name(), harness.runtime.now_ms() + 60_000
        await _put(harness, flow, "wave", 50, due_ms=due_ms)
        harness.runtime.advance_to(due_ms)
        await take(harness, flow, free=10)
        await _put(harness, flow, "other", 1)
        assert "other" in await _one_by_one(harness, flow, 3)

    async def test_released_jobs_queue_behind_themselves(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        jobs = await _put(harness, flow, "wave", 50)
        await take(harness, flow, token)
        await harness.queue.settle([Release(job.id, token, 0) for job in jobs])
        await take(harness, flow, free=10)
        await _put(harness, flow, "other", 1)
        assert "other" in await _one_by_one(harness, flow, 3)

    async def test_a_job_of_an_expired_lease_keeps_its_turn(self, harness: Harness) -> None:
        flow = fresh_name()
        (job,) = await _put(harness, flow, "one", 1)
        await take(harness, flow)
        await _put(harness, flow, "one", 20)
        harness.runtime.advance(LEASE_SECONDS)
        assert [one.job.id for one in await take(harness, flow, free=1)] == [job.id]


async def _put(
    harness: Harness, flow: str, tenant: str, count: int, *, priority: int = 5, due_ms: int = 0
) -> list[Job]:
    jobs = [fresh_job(flow, tenant, priority=priority, due_ms=due_ms) for _ in range(count)]
    await harness.queue.put(jobs)
    return jobs


async def _one_by_one(harness: Harness, flow: str, count: int) -> list[str]:
    """The tenants of the next jobs, each taken by itself."""
    return [one.job.tenant for _ in range(count) for one in await take(harness, flow, free=1)]


class OrderContract(Contract):
    """Jobs come in order, and a take says when the next one is due."""

    needs = frozenset({"queue", "turns"})

    async def test_a_take_returns_when_the_next_job_is_due(self, harness: Harness) -> None:
        flow, token, now = fresh_name(), fresh_name("token"), harness.runtime.now_ms()
        await harness.queue.put(
            [fresh_job(flow, due_ms=now + delay_ms) for delay_ms in (0, 60_000, 30_000)]
        )
        leased, next_due = await harness.queue.take(token, {flow: 10}, LEASE_SECONDS, durable=False)
        assert len(leased) == 1
        assert next_due == now + 30_000

    async def test_the_most_urgent_job_goes_first(self, harness: Harness) -> None:
        flow = fresh_name()
        await harness.queue.put(
            [fresh_job(flow, priority=priority) for priority in (5, 10, 1, 6, 4)]
        )
        leased = [one for _ in range(5) for one in await take(harness, flow, free=1)]
        assert [one.job.priority for one in leased] == [1, 4, 5, 6, 10]

    async def test_among_equals_the_oldest_job_goes_first(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = []
        for _ in range(3):
            jobs.append(fresh_job(flow))
            await harness.queue.put(jobs[-1:])
            harness.runtime.advance(0.001)
        leased = [one for _ in range(3) for one in await take(harness, flow, free=1)]
        assert [one.job.id for one in leased] == [job.id for job in jobs]

    async def test_a_released_job_keeps_its_priority(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        urgent = fresh_job(flow, priority=1)
        await harness.queue.put([urgent])
        await take(harness, flow, token)
        await harness.queue.put([fresh_job(flow)])
        await harness.queue.settle([Release(urgent.id, token, 0)])
        assert [one.job.id for one in await take(harness, flow, free=1)] == [urgent.id]

    async def test_a_take_returns_when_the_lease_of_another_worker_ends(
        self, harness: Harness
    ) -> None:
        flow, _, _ = await leased_jobs(harness)
        _, next_due = await harness.queue.take(
            fresh_name("token"), {flow: 10}, LEASE_SECONDS, durable=False
        )
        assert next_due is not None
        harness.runtime.advance_to(next_due)
        assert len(await take(harness, flow)) == 1
