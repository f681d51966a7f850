"""The promises of a job queue about settlements: ack, release and drop."""

from gesta.ports.job_queue import Ack, Release
from gesta.testing.contracts.concurrency import end_within, wait_for_all
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import HOUR_SECONDS, leased_jobs, put_job, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class SettleContract(Contract):
    needs = frozenset({"queue"})

    async def test_an_acked_job_is_gone(self, harness: Harness) -> None:
        flow, token, (job,) = await leased_jobs(harness)
        assert await harness.queue.settle([Ack(job.id, token)]) == ["done"]
        harness.runtime.advance(HOUR_SECONDS)
        assert await take(harness, flow) == []

    async def test_only_the_holder_can_ack_or_release(self, harness: Harness) -> None:
        flow, holder, stranger = fresh_name(), fresh_name("token"), fresh_name("token")
        job = fresh_job(flow)
        await harness.queue.put([job])
        await take(harness, flow, holder)
        assert await harness.queue.settle(
            [Ack(job.id, stranger), Release(job.id, stranger, 0)]
        ) == ["lost", "lost"]  # S0-6
        assert await take(harness, flow) == []
        assert await harness.queue.settle([Ack(job.id, holder)]) == ["done"]

    async def test_a_job_without_a_lease_cannot_be_acked(self, harness: Harness) -> None:
        job, token = await put_job(harness), fresh_name("token")
        flow = job.flow
        assert await harness.queue.settle([Ack(job.id, token), Release(job.id, token, 0)]) == [
            "lost",
            "lost",
        ]
        assert len(await take(harness, flow)) == 1

    async def test_a_released_job_comes_back_when_it_is_due_and_not_before(
        self, harness: Harness
    ) -> None:
        flow, token, due_ms = fresh_name(), fresh_name("token"), harness.runtime.now_ms() + 60_000
        job = fresh_job(flow)
        await harness.queue.put([job])
        await take(harness, flow, token)
        assert await harness.queue.settle([Release(job.id, token, due_ms)]) == ["done"]
        harness.runtime.advance_to(due_ms - 1)
        assert await take(harness, flow) == []
        harness.runtime.advance_to(due_ms)
        assert [(one.job.id, one.available_ms) for one in await take(harness, flow)] == [
            (job.id, due_ms)
        ]

    async def test_a_released_job_forgets_earlier_leases(self, harness: Harness) -> None:
        """The outcome was recorded, so the next attempt need not examine it."""
        flow, token = fresh_name(), fresh_name("token")
        job = fresh_job(flow, possibly_executed=True)
        await harness.queue.put([job])
        assert [one.is_possibly_executed for one in await take(harness, flow, token)] == [True]
        await harness.queue.settle([Release(job.id, token, 0)])
        assert [(one.takes, one.is_possibly_executed) for one in await take(harness, flow)] == [
            (1, False)
        ]

    async def test_a_release_wakes_waiters(self, harness: Harness) -> None:
        _flow, token, (job,) = await leased_jobs(harness)
        await end_within(harness.runtime, 5, await wait_for_all(harness.queue.ready(0)))
        waiting = await wait_for_all(harness.queue.ready(600))
        await harness.queue.settle([Release(job.id, token, 0)])
        assert await end_within(harness.runtime, 300, waiting)
