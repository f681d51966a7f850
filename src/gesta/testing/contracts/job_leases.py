"""The promises of a job queue about leases: they belong to a token, expire, and fence late
workers.
"""

from gesta.ports.job_queue import Ack, Release
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import LEASE_SECONDS, leased_jobs, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class JobLeasesContract(Contract):
    needs = frozenset({"queue"})

    async def test_a_job_of_an_expired_lease_is_leased_to_another_worker(
        self, harness: Harness
    ) -> None:
        flow, _, (job,) = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS - 0.001)
        assert await take(harness, flow) == []  # R1-21
        harness.runtime.advance(0.001)
        assert [
            (one.job.id, one.takes, one.is_possibly_executed) for one in await take(harness, flow)
        ] == [(job.id, 2, True)]  # S0-5

    async def test_takes_are_counted_until_one_of_them_ends(self, harness: Harness) -> None:
        flow, _, _ = await leased_jobs(harness)
        counted = []
        for _ in range(2):
            harness.runtime.advance(LEASE_SECONDS)
            counted += [one.takes for one in await take(harness, flow)]
        assert counted == [2, 3]

    async def test_a_job_of_an_expired_lease_keeps_the_time_since_when_it_was_available(
        self, harness: Harness
    ) -> None:
        flow, put_ms = fresh_name(), harness.runtime.now_ms()
        await leased_jobs(harness, flow)
        harness.runtime.advance(LEASE_SECONDS)
        assert [one.available_ms for one in await take(harness, flow)] == [put_ms]

    async def test_of_concurrent_workers_one_gets_the_job_of_an_expired_lease(
        self, harness: Harness
    ) -> None:
        flow, _, _ = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        answers = await race(*(take(harness, flow) for _ in range(8)))
        assert [one.takes for leased in answers for one in leased] == [2]  # K-13

    async def test_an_extended_lease_keeps_all_jobs_of_its_token(self, harness: Harness) -> None:
        flow, token, _ = await leased_jobs(harness, count=3)
        harness.runtime.advance(LEASE_SECONDS - 1)
        assert await harness.queue.extend(token, LEASE_SECONDS) is True
        harness.runtime.advance(LEASE_SECONDS - 0.001)
        assert await take(harness, flow) == []
        harness.runtime.advance(0.001)
        assert len(await take(harness, flow)) == 3

    async def test_the_jobs_of_a_token_are_listed_as_they_were_leased(
        self, harness: Harness
    ) -> None:
        flow, token = fresh_name(), fresh_name("token")
        await harness.queue.put([fresh_job(flow) for _ in range(3)])
        first, second, third = await take(harness, flow, token)
        await leased_jobs(harness, flow)
        later = harness.runtime.now_ms() + 60_000
        await harness.queue.settle([Ack(first.job.id, token), Release(second.job.id, token, later)])
        assert await harness.queue.leased_by(token) == [third]
        assert await harness.queue.leased_by(fresh_name("token")) == []

    async def test_a_take_renews_the_earlier_leases_of_its_token(self, harness: Harness) -> None:
        flow, token, _ = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS - 1)
        await leased_jobs(harness, flow, token)
        harness.runtime.advance(LEASE_SECONDS - 1)
        assert await take(harness, flow) == []

    async def test_extending_one_token_does_not_extend_another(self, harness: Harness) -> None:
        flow, token, _ = await leased_jobs(harness)
        _, _, (dead,) = await leased_jobs(harness, flow)
        harness.runtime.advance(LEASE_SECONDS - 1)
        await harness.queue.extend(token, LEASE_SECONDS)
        harness.runtime.advance(1)
        assert [one.job.id for one in await take(harness, flow)] == [dead.id]

    async def test_an_expired_lease_cannot_be_extended(self, harness: Harness) -> None:
        flow, token, _ = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        assert await harness.queue.extend(token, LEASE_SECONDS) is False  # K-12, S0-6
        assert len(await take(harness, flow)) == 1

    async def test_a_lease_that_another_worker_took_over_cannot_be_extended(
        self, harness: Harness
    ) -> None:
        flow, token, _ = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        await take(harness, flow)
        assert await harness.queue.extend(token, LEASE_SECONDS) is False  # K-12

    async def test_a_frozen_worker_gets_its_job_only_by_a_new_lease(self, harness: Harness) -> None:
        """A new lease must not revive the jobs of the expired one: their attempts may have been
        taken over.
        """
        flow, token, (job,) = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        assert [(one.job.id, one.takes) for one in await take(harness, flow, token)] == [
            (job.id, 2)
        ]

    async def test_a_worker_that_lost_its_lease_can_neither_ack_nor_release(
        self, harness: Harness
    ) -> None:
        flow, late, holder = fresh_name(), fresh_name("token"), fresh_name("token")
        _, _, (job,) = await leased_jobs(harness, flow, late)
        harness.runtime.advance(LEASE_SECONDS)
        await take(harness, flow, holder)
        assert await harness.queue.settle([Ack(job.id, late), Release(job.id, late, 0)]) == [
            "lost",
            "lost",
        ]  # K-12, S0-6
        assert await take(harness, flow) == []
        assert await harness.queue.settle([Ack(job.id, holder)]) == ["done"]

    async def test_an_ack_after_the_lease_counts_while_no_worker_has_leased_the_job(
        self, harness: Harness
    ) -> None:
        """The fence is the token on the job, not the clock: no other worker has acted."""
        flow, token, (job,) = await leased_jobs(harness)
        harness.runtime.advance(LEASE_SECONDS)
        assert await harness.queue.settle([Ack(job.id, token)]) == ["done"]
        assert await take(harness, flow) == []
