"""The promises of a queue that leases jobs to a worker in the call that puts them.

Such a lease is like any other, and no waiting job is overtaken.
"""

from collections.abc import Sequence

from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Ack, Job
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import LEASE_SECONDS, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class EagerJobsContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "eager_jobs"})

    async def test_jobs_that_are_put_are_leased_to_the_offering_worker(
        self, harness: Harness
    ) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        jobs = [fresh_job(flow, due_ms=now, priority=n) for n in (1, 7)]
        created, free_slots = await _put(harness, jobs, {flow: 10})
        assert created == [True, True]
        assert [one.job for one in free_slots.leased] == jobs
        assert {
            (one.token, one.takes, one.is_possibly_executed, one.available_ms)
            for one in free_slots.leased
        } == {(free_slots.token, 1, False, now)}
        assert await take(harness, flow) == []
        held = await harness.queue.leased_by(free_slots.token)
        assert sorted(held, key=lambda one: one.job.id) == sorted(
            free_slots.leased, key=lambda one: one.job.id
        )
        assert await harness.queue.settle([Ack(jobs[0].id, free_slots.token)]) == ["done"]
        assert await harness.unique_jobs.find([job.id for job in jobs]) == {jobs[1].id}

    async def test_no_more_jobs_are_leased_than_there_are_slots(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [*(fresh_job(flow, "flooding") for _ in range(5)), fresh_job(flow, "quiet")]
        _, free_slots = await _put(harness, jobs, {flow: 2, fresh_name(): 10})
        assert len(free_slots.leased) <= 2
        first = free_slots.leased or await take(harness, flow, free=2)
        assert sorted(one.job.tenant for one in first) == ["flooding", "quiet"]
        rest = await take(harness, flow)
        assert {one.job.id for one in [*first, *rest]} == {job.id for job in jobs}

    async def test_each_flow_has_its_own_slots(self, harness: Harness) -> None:
        one, other = fresh_job(fresh_name()), fresh_job(fresh_name())
        _, free_slots = await _put(harness, [one, other], {other.flow: 1})
        assert [leased.job for leased in free_slots.leased] == [other]
        assert [leased.job for leased in await take(harness, one.flow)] == [one]

    async def test_jobs_that_already_wait_are_leased_first(self, harness: Harness) -> None:
        flow = fresh_name()
        waiting, new = fresh_job(flow), fresh_job(flow)
        await harness.queue.put([waiting])
        _, free_slots = await _put(harness, [new], {flow: 10})
        assert free_slots.leased == []
        assert [one.job.id for one in await take(harness, flow)] == [waiting.id, new.id]

    async def test_a_job_that_has_fallen_due_comes_first(self, harness: Harness) -> None:
        flow = fresh_name()
        waiting, new = fresh_job(flow, due_ms=harness.runtime.now_ms() + 1000), fresh_job(flow)
        await harness.queue.put([waiting])
        harness.runtime.advance(1)
        _, free_slots = await _put(harness, [new], {flow: 10})
        assert free_slots.leased == []
        assert {one.job.id for one in await take(harness, flow)} == {waiting.id, new.id}

    async def test_a_job_that_a_dead_worker_held_comes_first(self, harness: Harness) -> None:
        flow = fresh_name()
        _, held = await _put(harness, [fresh_job(flow)], {flow: 10})
        harness.runtime.advance(LEASE_SECONDS)
        new, free_slots = fresh_job(flow), _slots({flow: 1})
        await harness.eager_jobs.put_leased([new], free_slots)
        assert free_slots.leased == []
        assert {one.job.id: one.is_possibly_executed for one in await take(harness, flow)} == {
            held.leased[0].job.id: True,
            new.id: False,
        }

    async def test_a_job_that_is_not_due_or_possibly_executed_is_not_leased(
        self, harness: Harness
    ) -> None:
        flow, due_ms = fresh_name(), harness.runtime.now_ms() + 1000
        later, possibly = fresh_job(flow, due_ms=due_ms), fresh_job(flow, possibly_executed=True)
        created, free_slots = await _put(harness, [later, possibly], {flow: 10})
        assert (created, free_slots.leased) == ([True, True], [])
        assert [one.is_possibly_executed for one in await take(harness, flow)] == [True]
        harness.runtime.advance(1)
        assert [one.job.id for one in await take(harness, flow)] == [later.id]

    async def test_a_live_job_stays_with_its_holder(self, harness: Harness) -> None:
        flow = fresh_name()
        live, new = fresh_job(flow), fresh_job(flow)
        _, held = await _put(harness, [live], {flow: 10})
        created, again = await _put(harness, [live, new, new], {flow: 10})
        assert created == [False, True, False]
        assert [one.job.id for one in again.leased] in ([], [new.id])
        assert [one.job.id for one in await harness.queue.leased_by(held.token)] == [live.id]
        assert len([*again.leased, *await take(harness, flow)]) == 1
        assert await harness.queue.settle([Ack(live.id, held.token)]) == ["done"]

    async def test_a_job_can_be_put_again_after_its_end(self, harness: Harness) -> None:
        flow = fresh_name()
        job = fresh_job(flow)
        _, first = await _put(harness, [job], {flow: 10})
        await harness.queue.settle([Ack(job.id, first.token)])
        created, again = await _put(harness, [job], {flow: 10})
        assert created == [True]
        assert [one.is_possibly_executed for one in again.leased] == [False]

    async def test_jobs_of_an_expired_lease_are_possibly_executed(self, harness: Harness) -> None:
        flow = fresh_name()
        _, free_slots = await _put(harness, [fresh_job(flow)], {flow: 10})
        harness.runtime.advance(LEASE_SECONDS - 0.001)
        assert await take(harness, flow) == []
        harness.runtime.advance(0.001)
        assert [(one.takes, one.is_possibly_executed) for one in await take(harness, flow)] == [
            (2, True)
        ]
        job_id = free_slots.leased[0].job.id
        assert await harness.queue.settle([Ack(job_id, free_slots.token)]) == ["lost"]

    async def test_putting_renews_the_lease_of_all_jobs_of_the_worker(
        self, harness: Harness
    ) -> None:
        flow, token = fresh_name(), fresh_name("token")
        await _put(harness, [fresh_job(flow)], {flow: 10}, token)
        harness.runtime.advance(LEASE_SECONDS - 1)
        await _put(harness, [fresh_job(flow)], {flow: 10}, token)
        harness.runtime.advance(LEASE_SECONDS - 1)
        assert await take(harness, flow) == []


def _slots(free: dict[str, int], token: str | None = None) -> FreeSlots:
    return FreeSlots(token or fresh_name("token"), free, LEASE_SECONDS, durable=False)


async def _put(
    harness: Harness, jobs: Sequence[Job], free: dict[str, int], token: str | None = None
) -> tuple[list[bool], FreeSlots]:
    # A store may be shared: whatever dead lease there is, this take ends it.
    await take(harness, fresh_name())
    free_slots = _slots(free, token)
    return await harness.eager_jobs.put_leased(jobs, free_slots), free_slots
