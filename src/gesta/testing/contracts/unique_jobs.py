"""The promises of a queue that knows its jobs by id: one of each, dropped or found by its id."""

from gesta.ports.job_queue import Ack, Drop, Job, Release, Settlement
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import (
    HOUR_SECONDS,
    LEASE_SECONDS,
    leased_jobs,
    put_job,
    take,
)
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class UniqueJobsContract(Contract):
    needs = frozenset({"queue", "unique_jobs"})

    async def test_a_job_of_a_live_id_is_not_put_again(self, harness: Harness) -> None:
        job = await put_job(harness)
        flow = job.flow
        again = Job(
            job.id, "other", flow, job.request_id, 9, due_ms=harness.runtime.now_ms() + 60_000
        )
        assert await harness.queue.put([again]) == [False]  # R1-20, S0-25
        assert [(one.job.id, one.job.tenant) for one in await take(harness, flow)] == [
            (job.id, job.tenant)
        ]

    async def test_of_concurrent_puts_of_an_id_one_creates_the_job(self, harness: Harness) -> None:
        flow = fresh_name()
        job = fresh_job(flow)
        answers = await race(*(harness.queue.put([job]) for _ in range(8)))
        assert sorted(created for (created,) in answers) == [False] * 7 + [True]  # R1-20
        assert len(await take(harness, flow)) == 1

    async def test_a_leased_job_is_not_put_again(self, harness: Harness) -> None:
        job = await put_job(harness)
        flow = job.flow
        await take(harness, flow)
        assert await harness.queue.put([job]) == [False]
        assert await take(harness, flow) == []

    async def test_a_job_without_a_lease_can_be_dropped(self, harness: Harness) -> None:
        flow = fresh_name()
        ready, delayed = fresh_job(flow), fresh_job(flow, due_ms=harness.runtime.now_ms() + 60_000)
        await harness.queue.put([ready, delayed])
        assert await harness.queue.settle([Drop(ready.id), Drop(delayed.id)]) == ["done", "done"]
        harness.runtime.advance(HOUR_SECONDS)
        assert await take(harness, flow) == []

    async def test_a_leased_job_cannot_be_dropped(self, harness: Harness) -> None:
        _flow, token, (job,) = await leased_jobs(harness)
        assert await harness.queue.settle([Drop(job.id)]) == ["active"]
        assert await harness.queue.settle([Ack(job.id, token)]) == ["done"]

    async def test_a_possibly_executed_job_cannot_be_dropped(self, harness: Harness) -> None:
        """An earlier job of its id may have been executed: the next worker has to examine it."""
        job = fresh_job(fresh_name(), possibly_executed=True)
        await harness.queue.put([job])
        assert await harness.queue.settle([Drop(job.id)]) == ["active"]

    async def test_settling_a_missing_job_answers_absent(self, harness: Harness) -> None:
        missing, token = fresh_job(fresh_name()).id, fresh_name("token")
        assert (
            await harness.queue.settle(
                [Ack(missing, token), Release(missing, token, 0), Drop(missing)]
            )
            == ["absent"] * 3
        )

    async def test_each_settlement_has_its_own_answer(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        held, free = fresh_job(flow), fresh_job(flow)
        await harness.queue.put([held])
        await take(harness, flow, token)
        await harness.queue.put([free])
        settlements: list[Settlement] = [
            Drop(held.id),
            Drop(free.id),
            Drop(free.id),
            Ack(held.id, token),
            Ack(held.id, token),
        ]
        assert await harness.queue.settle(settlements) == [
            "active",
            "done",
            "absent",
            "done",
            "absent",
        ]

    async def test_waiting_ready_and_held_jobs_are_found(self, harness: Harness) -> None:
        flow = fresh_name()
        held, ready = fresh_job(flow), fresh_job(flow)
        waiting = fresh_job(flow, due_ms=harness.runtime.now_ms() + 60_000)
        await harness.queue.put([held, waiting])
        await take(harness, flow)
        await harness.queue.put([ready])
        found = await harness.unique_jobs.find([held.id, ready.id, waiting.id, fresh_job(flow).id])
        assert found == {held.id, ready.id, waiting.id}

    async def test_a_job_of_an_expired_lease_cannot_be_dropped(self, harness: Harness) -> None:
        """Its attempt may have had its effect, so the next worker has to examine it."""
        flow, _, (job,) = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        assert await harness.queue.settle([Drop(job.id)]) == ["active"]
        assert [one.takes for one in await take(harness, flow)] == [2]

    async def test_a_job_of_a_cleared_expired_lease_cannot_be_dropped(
        self, harness: Harness
    ) -> None:
        """Also after a worker of another flow has removed the expired lease."""
        flow, _, (job,) = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        await take(harness, fresh_name())
        assert await harness.queue.settle([Drop(job.id)]) == ["active"]
        assert [one.takes for one in await take(harness, flow)] == [2]

    async def test_an_acked_job_is_found_no_more(self, harness: Harness) -> None:
        _, token, (job,) = await leased_jobs(harness)
        await harness.queue.settle([Ack(job.id, token)])
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_many_jobs_are_found_at_once(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [fresh_job(flow) for _ in range(300)]
        await harness.queue.put(jobs)
        assert await harness.unique_jobs.find([job.id for job in jobs]) == {job.id for job in jobs}
        assert await harness.unique_jobs.find([]) == set()
