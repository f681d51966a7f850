"""The promises of a job queue about external queues: jobs for external workers, one lease each."""

from gesta.domain.ids import external_queue_of, external_queues_of
from gesta.ports.job_queue import (
    Ack,
    Backlog,
    Drop,
    Hold,
    Job,
    LeasedJob,
    Release,
    Settlement,
)
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.job_inspection import lease_end
from gesta.testing.contracts.job_queue import HOUR_SECONDS, LEASE_SECONDS, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class ExternalLeasesContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "job_holds", "external_leases"})

    async def test_an_external_queue_leases_only_jobs_of_its_tenant(self, harness: Harness) -> None:
        flow = fresh_name()
        mine, _ = await _put(harness, flow, "acme"), await _put(harness, flow, "globex")
        assert [one.job.id for one in await _lease_external(harness, flow)] == [mine.id]

    async def test_a_tenants_job_is_found_behind_a_flood_of_another(self, harness: Harness) -> None:
        flow = fresh_name()
        await harness.queue.put(
            [fresh_job(external_queue_of(flow, "globex"), "globex") for _ in range(50)]
        )
        mine = await _put(harness, flow)
        assert [one.job.id for one in await _lease_external(harness, flow, limit=1)] == [mine.id]

    async def test_no_worker_leases_from_an_external_queue(self, harness: Harness) -> None:
        flow = fresh_name()
        await _put(harness, flow)
        assert await take(harness, flow) == []

    async def test_no_more_external_jobs_are_leased_than_asked_for(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [await _put(harness, flow) for _ in range(3)]
        handed = [
            one.job.id
            for limit in (2, 2)
            for one in await _lease_external(harness, flow, limit=limit)
        ]
        assert sorted(handed) == sorted(job.id for job in jobs)
        assert len(await _lease_external(harness, flow)) == 0

    async def test_concurrent_external_workers_get_different_jobs(self, harness: Harness) -> None:
        flow = fresh_name()
        jobs = [await _put(harness, flow) for _ in range(4)]
        answers = await race(*(_lease_external(harness, flow, limit=1) for _ in range(8)))
        assert sorted(one.job.id for leased in answers for one in leased) == sorted(
            job.id for job in jobs
        )  # K-13

    async def test_the_most_urgent_external_job_is_leased_first(self, harness: Harness) -> None:
        flow = fresh_name()
        await _put(harness, flow)
        urgent = await _put(harness, flow, priority=1)
        assert [one.job.id for one in await _lease_external(harness, flow, limit=1)] == [urgent.id]

    async def test_an_external_job_that_is_not_due_waits(self, harness: Harness) -> None:
        flow, due_ms = fresh_name(), harness.runtime.now_ms() + 60_000
        job = await _put(harness, flow, due_ms=due_ms)
        harness.runtime.advance_to(due_ms - 1)
        assert await _lease_external(harness, flow) == []
        harness.runtime.advance_to(due_ms)
        assert [(one.job.id, one.available_ms) for one in await _lease_external(harness, flow)] == [
            (job.id, due_ms)
        ]

    async def test_an_expired_external_lease_is_found(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        job = await _put(harness, flow)
        await _lease_external(harness, flow)
        harness.runtime.advance(LEASE_SECONDS - 0.001)
        assert await _expired_leases(harness, flow, token) == []
        harness.runtime.advance(0.001)
        found = await _expired_leases(harness, flow, token)
        assert [(one.job.id, one.token, one.takes, one.is_possibly_executed) for one in found] == [
            (job.id, token, 2, True)
        ]

    async def test_a_taken_over_lease_is_found_again_only_after_it_expired(
        self, harness: Harness
    ) -> None:
        flow, _, _ = await _leased(harness)
        harness.runtime.advance(LEASE_SECONDS)
        answers = await race(*(_expired_leases(harness, flow) for _ in range(4)))
        assert [one.takes for leased in answers for one in leased] == [2]  # K-13
        harness.runtime.advance(LEASE_SECONDS)
        assert [one.takes for one in await _expired_leases(harness, flow)] == [3]

    async def test_only_expired_leases_of_the_flow_are_found_and_no_more_than_asked_for(
        self, harness: Harness
    ) -> None:
        flow = fresh_name()
        for tenant in ("acme", "globex"):
            await _put(harness, flow, tenant)
            await _lease_external(harness, flow, tenant)
        other = f"{flow}x"
        await _put(harness, other)
        await _lease_external(harness, other)
        harness.runtime.advance(LEASE_SECONDS)
        assert len(await _expired_leases(harness, flow, limit=1)) == 1
        assert len(await _expired_leases(harness, flow)) == 1
        assert len(await _expired_leases(harness, other)) == 1

    async def test_a_leased_external_job_is_not_leased_again_before_it_is_taken_over(
        self, harness: Harness
    ) -> None:
        """Its holder may still work on it: the sweeper takes it over and decides first."""
        flow, _, _ = await _leased(harness)
        harness.runtime.advance(HOUR_SECONDS)
        await take(harness, fresh_name())
        assert await _lease_external(harness, flow) == []

    async def test_the_lease_of_each_job_is_prolonged_by_itself(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        kept, left = [await _put(harness, flow) for _ in range(2)]
        await _lease_external(harness, flow, token=token)
        harness.runtime.advance(LEASE_SECONDS - 1)
        until_ms = harness.runtime.now_ms() + round(LEASE_SECONDS * 1000)
        assert await harness.external_leases.prolong(kept.id, token, LEASE_SECONDS) == until_ms
        harness.runtime.advance(1)
        assert [one.job.id for one in await _expired_leases(harness, flow)] == [left.id]

    async def test_a_lease_never_ends_earlier_because_it_was_prolonged(
        self, harness: Harness
    ) -> None:
        flow, token, until_ms = (
            fresh_name(),
            fresh_name("token"),
            harness.runtime.now_ms() + round(LEASE_SECONDS * 1000),
        )
        job = await _put(harness, flow)
        await _lease_external(harness, flow, token=token)
        assert await harness.external_leases.prolong(job.id, token, 0) == until_ms

    async def test_only_its_holder_prolongs_a_lease_and_only_while_it_lasts(
        self, harness: Harness
    ) -> None:
        flow, token = fresh_name(), fresh_name("token")
        job, free = await _put(harness, flow), await _put(harness, flow, "globex")
        await _lease_external(harness, flow, token=token)
        assert (
            await harness.external_leases.prolong(job.id, fresh_name("token"), LEASE_SECONDS)
            is None
        )  # S0-6
        assert await harness.external_leases.prolong(free.id, token, LEASE_SECONDS) is None
        assert (
            await harness.external_leases.prolong(fresh_job(flow).id, token, LEASE_SECONDS) is None
        )
        harness.runtime.advance(LEASE_SECONDS)
        assert await harness.external_leases.prolong(job.id, token, LEASE_SECONDS) is None  # K-12

    async def test_a_released_external_job_has_no_lease(self, harness: Harness) -> None:
        flow, token, job = await _leased(harness)
        assert await harness.queue.settle([Release(job.id, token, 0)]) == ["done"]
        assert await harness.external_leases.prolong(job.id, token, LEASE_SECONDS) is None
        harness.runtime.advance(HOUR_SECONDS)
        assert await _expired_leases(harness, flow) == []
        assert [(one.job.id, one.takes) for one in await _lease_external(harness, flow)] == [
            (job.id, 1)
        ]

    async def test_an_external_job_is_settled_like_any_other(self, harness: Harness) -> None:
        flow, token, scope = fresh_name(), fresh_name("token"), fresh_name("scope")
        done, held = [await _put(harness, flow) for _ in range(2)]
        await _lease_external(harness, flow, token=token)
        settlements: list[Settlement] = [
            Drop(done.id),
            Ack(done.id, fresh_name("token")),
            Ack(done.id, token),
            Hold(held.id, token, scope),
        ]
        assert await harness.queue.settle(settlements) == ["active", "lost", "done", "done"]
        assert await harness.unique_jobs.find([done.id, held.id]) == {held.id}
        assert await harness.job_holds.unhold(scope, 10) == 1
        assert [one.job.id for one in await _lease_external(harness, flow)] == [held.id]

    async def test_a_worker_that_lost_an_external_job_cannot_settle_it(
        self, harness: Harness
    ) -> None:
        flow, token, other = fresh_name(), fresh_name("token"), fresh_name("token")
        job = await _put(harness, flow)
        await _lease_external(harness, flow, token=token)
        harness.runtime.advance(LEASE_SECONDS)
        await _expired_leases(harness, flow, other)
        assert await harness.queue.settle([Ack(job.id, token), Release(job.id, token, 0)]) == [
            "lost",
            "lost",
        ]  # K-12, S0-6
        assert await harness.queue.settle([Ack(job.id, other)]) == ["done"]

    async def test_external_queues_with_ready_jobs_are_listed(self, harness: Harness) -> None:
        ready, waiting, handed, empty = (fresh_name() for _ in range(4))
        due_ms = harness.runtime.now_ms() + 1_000
        await _put(harness, ready)
        await _put(harness, waiting, due_ms=due_ms)
        await _put(harness, handed)
        await _lease_external(harness, handed)
        external_queues = [
            external_queue_of(flow, "acme") for flow in (ready, waiting, handed, empty)
        ]
        assert await harness.external_leases.stocked(external_queues) == {external_queues[0]}
        harness.runtime.advance_to(due_ms)
        assert await harness.external_leases.stocked(external_queues) == {
            external_queues[0],
            external_queues[1],
        }
        assert await harness.external_leases.stocked(external_queues[2:]) == set()

    async def test_a_lease_of_an_external_worker_is_not_listed_by_token(
        self, harness: Harness
    ) -> None:
        token, external_queue = fresh_name("token"), external_queue_of(fresh_name(), "default")
        await harness.queue.put([fresh_job(external_queue)])
        assert (
            len(
                await harness.external_leases.lease_external(
                    token, external_queue, 1, LEASE_SECONDS
                )
            )
            == 1
        )
        assert await harness.queue.leased_by(token) == []


class ExternalLeasesAfterRestartContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "external_leases", "durable"})

    async def test_a_lease_outlives_the_process_that_gave_it(self, harness: Harness) -> None:
        flow, token, job = await _leased(harness)
        await reopen(harness)
        assert await _lease_external(harness, flow) == []
        assert await harness.external_leases.prolong(job.id, token, LEASE_SECONDS) is not None
        harness.runtime.advance(LEASE_SECONDS)
        assert [(one.job.id, one.takes) for one in await _expired_leases(harness, flow)] == [
            (job.id, 2)
        ]


async def _put(
    harness: Harness, flow: str, tenant: str = "acme", *, priority: int = 5, due_ms: int = 0
) -> Job:
    job = fresh_job(external_queue_of(flow, tenant), tenant, priority=priority, due_ms=due_ms)
    await harness.queue.put([job])
    return job


async def _leased(harness: Harness) -> tuple[str, str, Job]:
    """Flow, token, and a new job that an external worker with this token has leased."""
    flow, token = fresh_name(), fresh_name("token")
    job = await _put(harness, flow)
    await _lease_external(harness, flow, token=token)
    return flow, token, job


async def _lease_external(
    harness: Harness,
    flow: str,
    tenant: str = "acme",
    *,
    token: str | None = None,
    limit: int = 10,
) -> list[LeasedJob]:
    return await harness.external_leases.lease_external(
        token or fresh_name("token"), external_queue_of(flow, tenant), limit, LEASE_SECONDS
    )


async def _expired_leases(
    harness: Harness, flow: str, token: str | None = None, *, limit: int = 10
) -> list[LeasedJob]:
    return await harness.external_leases.expired_leases(
        token or fresh_name("token"), external_queues_of(flow), limit, LEASE_SECONDS
    )


class ListedExternalLeasesContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "job_inspection", "external_leases"})

    async def test_an_external_job_has_a_lease_of_its_own(self, harness: Harness) -> None:
        external_queue = external_queue_of(fresh_name(), "acme")
        job = fresh_job(external_queue, "acme")
        await harness.queue.put([job])
        await harness.external_leases.lease_external(
            fresh_name("token"), external_queue, 1, LEASE_SECONDS
        )
        end = harness.runtime.now_ms() + round(LEASE_SECONDS * 1000)
        assert await lease_end(harness, job.id) == (end, False)
        assert (await harness.job_inspection.backlog())[external_queue] == Backlog(leased=1)
        harness.runtime.advance(LEASE_SECONDS)
        assert await lease_end(harness, job.id) == (end, True)
        assert (await harness.job_inspection.backlog())[external_queue] == Backlog(
            leased=1, abandoned=1
        )
