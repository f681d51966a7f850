"""The promises of a store that leases jobs to a worker as it puts them (eager dispatch).

Such a lease is like any other, and no waiting job is overtaken.
"""

from collections.abc import Sequence

from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Ack, Job
from gesta.ports.transactions import Projection
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import LEASE_SECONDS, take
from gesta.testing.contracts.samples import fresh_append, fresh_job, fresh_name, fresh_view
from gesta.testing.contracts.suite import Contract


class EagerDispatchContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "transactions", "eager_dispatch"})

    async def test_what_is_put_is_the_offering_worker_s(self, harness: Harness) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        jobs = [fresh_job(flow, due_ms=now, priority=n) for n in (1, 7)]
        free_slots = await _put(harness, jobs, {flow: 10})
        assert sorted(one.job.id for one in free_slots.leased) == sorted(job.id for job in jobs)
        assert {
            (one.token, one.takes, one.is_possibly_executed, one.available_ms)
            for one in free_slots.leased
        } == {(free_slots.token, 1, False, now)}
        assert await take(harness, flow) == []
        assert {one.job.id for one in await harness.queue.leased_by(free_slots.token)} == {
            job.id for job in jobs
        }
        assert await harness.queue.settle([Ack(jobs[0].id, free_slots.token)]) == ["done"]

    async def test_no_more_are_taken_than_there_are_slots(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [fresh_job(flow) for _ in range(5)]
        free_slots = await _put(harness, jobs, {flow: 2, fresh_name(): 10})
        assert len(free_slots.leased) <= 2
        rest = await take(harness, flow)
        assert sorted([one.job.id for one in [*free_slots.leased, *rest]]) == sorted(
            job.id for job in jobs
        )

    async def test_jobs_beyond_the_free_slots_are_leased_fairly_by_tenant(
        self, harness: Harness
    ) -> None:
        flow = fresh_name()
        jobs = [*(fresh_job(flow, "flooding") for _ in range(5)), fresh_job(flow, "quiet")]
        free_slots = await _put(harness, jobs, {flow: 2})
        first = free_slots.leased or await take(harness, flow, free=2)
        assert sorted(one.job.tenant for one in first) == ["flooding", "quiet"]

    async def test_jobs_that_already_wait_are_leased_first(self, harness: Harness) -> None:
        flow = fresh_name()
        waiting, new = fresh_job(flow), fresh_job(flow)
        await harness.queue.put([waiting])
        assert (await _put(harness, [new], {flow: 10})).leased == []
        assert [one.job.id for one in await take(harness, flow)] == [waiting.id, new.id]

    async def test_what_has_fallen_due_comes_first(self, harness: Harness) -> None:
        """Also where no take has woken it yet."""
        flow = fresh_name()
        waiting, new = fresh_job(flow, due_ms=harness.runtime.now_ms() + 1000), fresh_job(flow)
        await _put(harness, [waiting], {flow: 10})
        harness.runtime.advance(1)
        free_slots = FreeSlots(fresh_name("token"), {flow: 10}, LEASE_SECONDS, durable=False)
        assert (
            await harness.transactions.project(
                [], [new], [], [Move(fresh_name(), 0, 7)], free_slots
            )
            is True
        )
        assert free_slots.leased == []
        assert {one.job.id for one in await take(harness, flow)} == {waiting.id, new.id}

    async def test_what_a_dead_worker_held_comes_first(self, harness: Harness) -> None:
        flow = fresh_name()
        (held,) = (await _put(harness, [fresh_job(flow)], {flow: 10})).leased
        harness.runtime.advance(LEASE_SECONDS)
        name, new = fresh_name(), fresh_job(flow)
        free_slots = FreeSlots(fresh_name("token"), {flow: 1}, LEASE_SECONDS, durable=False)
        assert (
            await harness.transactions.project([], [new], [], [Move(name, 0, 7)], free_slots)
            is True
        )
        assert free_slots.leased == []
        assert {one.job.id: one.is_possibly_executed for one in await take(harness, flow)} == {
            held.job.id: True,
            new.id: False,
        }

    async def test_a_job_that_is_not_due_waits_for_its_time(self, harness: Harness) -> None:
        flow, due_ms = fresh_name(), harness.runtime.now_ms() + 1000
        assert (await _put(harness, [fresh_job(flow, due_ms=due_ms)], {flow: 10})).leased == []
        assert await take(harness, flow) == []
        harness.runtime.advance(1)
        assert len(await take(harness, flow)) == 1

    async def test_a_possibly_executed_job_is_not_dispatched_eagerly(
        self, harness: Harness
    ) -> None:
        flow = fresh_name()
        assert (
            await _put(harness, [fresh_job(flow, possibly_executed=True)], {flow: 10})
        ).leased == []
        assert [one.is_possibly_executed for one in await take(harness, flow)] == [True]

    async def test_a_live_job_stays_with_its_holder(self, harness: Harness) -> None:
        flow = fresh_name()
        live, new = fresh_job(flow), fresh_job(flow)
        held = await _put(harness, [live], {flow: 10})
        again = await _put(harness, [live, new], {flow: 10})
        assert [one.job.id for one in again.leased] in ([], [new.id])
        assert [one.job.id for one in await harness.queue.leased_by(held.token)] == [live.id]
        assert len([*again.leased, *await take(harness, flow)]) == 1

    async def test_jobs_of_an_expired_lease_are_possibly_executed(self, harness: Harness) -> None:
        flow = fresh_name()
        free_slots = await _put(harness, [fresh_job(flow)], {flow: 10})
        harness.runtime.advance(LEASE_SECONDS - 0.001)
        assert await take(harness, flow) == []
        harness.runtime.advance(0.001)
        assert [(one.takes, one.is_possibly_executed) for one in await take(harness, flow)] == [
            (2, True)
        ]
        assert await harness.queue.settle([Ack(free_slots.leased[0].job.id, free_slots.token)]) == [
            "lost"
        ]

    async def test_it_renews_the_lease_of_all_its_jobs(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        await _put(harness, [fresh_job(flow)], {flow: 10}, token)
        harness.runtime.advance(LEASE_SECONDS - 1)
        await _put(harness, [fresh_job(flow)], {flow: 10}, token)
        harness.runtime.advance(LEASE_SECONDS - 1)
        assert await take(harness, flow) == []

    async def test_a_projector_that_was_overtaken_takes_nothing(self, harness: Harness) -> None:
        name, flow = fresh_name(), fresh_name()
        job, free_slots = (
            fresh_job(flow),
            FreeSlots(fresh_name("token"), {flow: 10}, LEASE_SECONDS, durable=False),
        )
        await harness.transactions.project([], [], [], [Move(name, 0, 7)])
        assert (
            await harness.transactions.project(
                [fresh_view()], [job], [], [Move(name, 0, 5)], free_slots
            )
            is False
        )
        assert free_slots.leased == []
        assert await harness.unique_jobs.find([job.id]) == set()


class InlineEagerDispatchContract(Contract):
    needs = frozenset(
        {
            "events",
            "checkpoints",
            "queue",
            "unique_jobs",
            "transactions",
            "inline_projection",
            "eager_dispatch",
        }
    )

    async def test_what_is_appended_is_taken_in_the_same_commit(self, harness: Harness) -> None:
        name, flow, place = fresh_name(), fresh_name(), await harness.events.end()
        await harness.checkpoints.move([Move(name, 0, place)] if place else [])
        await take(harness, flow)
        job, free_slots = (
            fresh_job(flow),
            FreeSlots(fresh_name("token"), {flow: 10}, LEASE_SECONDS, durable=True),
        )
        projection = Projection([fresh_view()], [job], {name: 0}, free_slots=free_slots)
        await harness.transactions.append([fresh_append()], projection)
        assert projection.reached == place + 1
        assert [one.job.id for one in free_slots.leased] == [job.id]
        assert await take(harness, flow) == []

    async def test_what_is_left_to_the_projector_is_not_taken(self, harness: Harness) -> None:
        name, flow = fresh_name(), fresh_name()
        await harness.events.append([fresh_append()])
        free_slots = FreeSlots(fresh_name("token"), {flow: 10}, LEASE_SECONDS, durable=True)
        projection = Projection([fresh_view()], [fresh_job(flow)], {name: 0}, free_slots=free_slots)
        await harness.transactions.append([fresh_append()], projection)
        assert (projection.reached, free_slots.leased) == (None, [])


async def _put(
    harness: Harness,
    jobs: Sequence[Job],
    free: dict[str, int],
    token: str | None = None,
) -> FreeSlots:
    """What came of an offer when these jobs were put."""
    # A store may be shared: whatever dead lease there is, this take ends it.
    await take(harness, fresh_name())
    free_slots = FreeSlots(token or fresh_name("token"), free, LEASE_SECONDS, durable=False)
    assert (
        await harness.transactions.project([], jobs, [], [Move(fresh_name(), 0, 7)], free_slots)
        is True
    )
    return free_slots
