"""The promises of a job queue about putting and leasing jobs.

fair_queue.py has the order of jobs; job_settlements.py, job_holds.py and job_leases.py have what
happens to leased jobs.
"""

from gesta.ports.job_queue import Ack, Hold, Job, LeasedJob
from gesta.testing.contracts.concurrency import end_within, race, wait_for_all
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract

LEASE_SECONDS = 10.0
HOUR_SECONDS = 3600


async def take(
    harness: Harness, flow: str, token: str | None = None, free: int = 100
) -> list[LeasedJob]:
    """The jobs that a worker with this token leases; by default with a new token."""
    leased, _ = await harness.queue.take(
        token or fresh_name("token"), {flow: free}, LEASE_SECONDS, durable=False
    )
    return leased


async def put_job(harness: Harness, flow: str | None = None) -> Job:
    """A new job, put; of a new flow unless named."""
    job = fresh_job(flow or fresh_name())
    await harness.queue.put([job])
    return job


async def leased_jobs(
    harness: Harness, flow: str | None = None, token: str | None = None, count: int = 1
) -> tuple[str, str, list[Job]]:
    """Flow, token, and new jobs that a worker with this token has leased."""
    flow, token = flow or fresh_name(), token or fresh_name("token")
    jobs = [fresh_job(flow) for _ in range(count)]
    await harness.queue.put(jobs)
    leased = await take(harness, flow, token)
    assert {one.job.id for one in leased} == {job.id for job in jobs}
    return flow, token, jobs


class PutContract(Contract):
    needs = frozenset({"queue"})

    async def test_a_job_comes_out_as_it_was_put(self, harness: Harness) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        jobs = [
            fresh_job(flow, due_ms=now),
            fresh_job(flow, kind="reconcile", due_ms=now, priority=7, possibly_executed=True),
        ]
        assert await harness.queue.put(jobs) == [True, True]
        leased = await take(harness, flow)
        assert sorted((one.job for one in leased), key=lambda job: job.id) == sorted(
            jobs, key=lambda job: job.id
        )

    async def test_a_job_given_twice_in_a_batch_is_put_once(self, harness: Harness) -> None:
        flow = fresh_name()
        job, other = fresh_job(flow), fresh_job(flow)
        assert await harness.queue.put([job, job, other]) == [True, False, True]
        assert len(await take(harness, flow)) == 2

    async def test_the_id_of_a_finished_job_may_be_put_again(self, harness: Harness) -> None:
        flow, token, (job,) = await leased_jobs(harness)
        await harness.queue.settle([Ack(job.id, token)])
        assert await harness.queue.put([job]) == [True]  # S0-25
        assert [one.takes for one in await take(harness, flow)] == [1]

    async def test_a_batch_may_be_large(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        jobs = [fresh_job(flow) for _ in range(300)]
        assert await harness.queue.put(jobs) == [True] * 300
        leased = await take(harness, flow, token, free=300)
        assert sorted(one.job.id for one in leased) == sorted(job.id for job in jobs)
        assert await harness.queue.settle([Ack(job.id, token) for job in jobs]) == ["done"] * 300

    async def test_an_empty_call_is_answered_with_nothing(self, harness: Harness) -> None:
        assert await harness.queue.put([]) == []
        assert await harness.queue.settle([]) == []

    async def test_every_worker_that_waits_is_woken_by_a_put(self, harness: Harness) -> None:
        waiting = await wait_for_all(harness.queue.ready(600), harness.queue.ready(600))
        await harness.queue.put([fresh_job(fresh_name())])
        assert await end_within(harness.runtime, 300, waiting)

    async def test_a_put_before_the_wait_ends_the_wait(self, harness: Harness) -> None:
        flow = fresh_name()
        await take(harness, flow)
        await harness.queue.put([fresh_job(flow)])
        assert await end_within(harness.runtime, 300, await wait_for_all(harness.queue.ready(600)))

    async def test_a_wait_ends_when_its_time_is_up(self, harness: Harness) -> None:
        assert await end_within(harness.runtime, 300, await wait_for_all(harness.queue.ready(10)))


class TakeContract(Contract):
    needs = frozenset({"queue"})

    async def test_a_worker_gets_only_jobs_of_its_flows_and_no_more_than_it_has_slots(
        self, harness: Harness
    ) -> None:
        narrow, wide, other = fresh_name(), fresh_name(), fresh_name()
        await harness.queue.put(
            [fresh_job(flow) for flow in (narrow, wide, other) for _ in range(3)]
        )
        leased, _ = await harness.queue.take(
            fresh_name("token"), {narrow: 1, wide: 5}, LEASE_SECONDS, durable=False
        )
        assert sorted(one.job.flow for one in leased) == sorted([narrow, wide, wide, wide])

    async def test_a_leased_job_is_not_leased_again(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        await harness.queue.put([fresh_job(flow)])
        assert [
            (one.token, one.takes, one.is_possibly_executed)
            for one in await take(harness, flow, token)
        ] == [(token, 1, False)]
        assert await take(harness, flow) == []  # R1-21
        assert await take(harness, flow, token) == []

    async def test_concurrent_workers_never_get_the_same_job(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [fresh_job(flow) for _ in range(20)]
        await harness.queue.put(jobs)
        answers = await race(*(take(harness, flow, free=4) for _ in range(8)))
        assert sorted(one.job.id for leased in answers for one in leased) == sorted(
            job.id for job in jobs
        )  # R1-21

    async def test_a_delayed_job_is_leased_when_it_is_due_and_not_before(
        self, harness: Harness
    ) -> None:
        flow, due_ms = fresh_name(), harness.runtime.now_ms() + 60_000
        await harness.queue.put([fresh_job(flow, due_ms=due_ms)])
        harness.runtime.advance_to(due_ms - 1)
        assert await take(harness, flow) == []
        harness.runtime.advance_to(due_ms)
        assert [one.available_ms for one in await take(harness, flow)] == [due_ms]

    async def test_a_job_that_is_due_when_put_is_available_since_then(
        self, harness: Harness
    ) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        await harness.queue.put([fresh_job(flow, due_ms=now - 60_000)])
        harness.runtime.advance(5)
        assert [one.available_ms for one in await take(harness, flow)] == [now]

    async def test_a_take_returns_none_if_no_job_becomes_due(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        await harness.queue.put([fresh_job(flow)])
        _, next_due = await harness.queue.take(token, {flow: 10}, LEASE_SECONDS, durable=False)
        assert next_due is None


class JobQueueAfterRestartContract(Contract):
    needs = frozenset({"queue", "durable"})

    async def test_jobs_are_there_again(self, harness: Harness) -> None:
        flow, now = fresh_name(), harness.runtime.now_ms()
        ready = fresh_job(flow, due_ms=now, priority=3, possibly_executed=True)
        delayed = fresh_job(flow, due_ms=now + 60_000)
        await harness.queue.put([ready, delayed])
        await reopen(harness)
        assert [one.job for one in await take(harness, flow)] == [ready]
        harness.runtime.advance_to(now + 60_000)
        assert delayed.id in {one.job.id for one in await take(harness, flow)}

    async def test_a_durable_take_is_remembered(self, harness: Harness) -> None:
        """It is the journal: after a crash the next worker must learn that the job may have been
        executed.
        """
        job, token = await put_job(harness), fresh_name("token")
        flow = job.flow
        await harness.queue.take(token, {flow: 1}, LEASE_SECONDS, durable=True)
        await reopen(harness)
        assert await take(harness, flow) == []
        harness.runtime.advance(LEASE_SECONDS)
        assert [(one.job.id, one.takes) for one in await take(harness, flow)] == [(job.id, 2)]

    async def test_a_settled_job_stays_settled(self, harness: Harness) -> None:
        flow, token, (job,) = await leased_jobs(harness)
        await harness.queue.settle([Ack(job.id, token)])
        await reopen(harness)
        harness.runtime.advance(HOUR_SECONDS)
        assert await take(harness, flow) == []


async def held_jobs(
    harness: Harness, flow: str, scope: str, *, count: int = 1, tenant: str = "acme"
) -> list[Job]:
    """New jobs, held under this scope."""
    token = fresh_name("token")
    jobs = [fresh_job(flow, tenant) for _ in range(count)]
    await harness.queue.put(jobs)
    await take(harness, flow, token)
    assert (
        await harness.queue.settle([Hold(job.id, token, scope) for job in jobs]) == ["done"] * count
    )
    return jobs
