"""What every job queue promises about jobs that are held because something is paused, and about how
much it holds.
"""

from gesta.ports.job_queue import Drop, HeldJob, Hold
from gesta.testing.contracts.concurrency import end_within, wait_for_all
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.job_queue import HOUR_SECONDS, LEASE_SECONDS, held_jobs, take
from gesta.testing.contracts.samples import fresh_job, fresh_name
from gesta.testing.contracts.suite import Contract


class JobHoldsContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "job_holds"})

    async def test_a_held_job_is_not_leased(self, harness: Harness) -> None:
        flow = fresh_name()
        await held_jobs(harness, flow, fresh_name("scope"))
        harness.runtime.advance(HOUR_SECONDS)
        assert await take(harness, flow) == []

    async def test_a_held_job_is_live(self, harness: Harness) -> None:
        (job,) = await held_jobs(harness, fresh_name(), fresh_name("scope"))
        assert await harness.unique_jobs.find([job.id]) == {job.id}
        assert await harness.queue.put([job]) == [False]

    async def test_an_unheld_job_comes_back_as_if_it_had_not_been_taken(
        self, harness: Harness
    ) -> None:
        flow, scope, put_ms = fresh_name(), fresh_name("scope"), harness.runtime.now_ms()
        (job,) = await held_jobs(harness, flow, scope)
        harness.runtime.advance(HOUR_SECONDS)
        assert await harness.job_holds.unhold(scope, 10) == 1
        leased = await take(harness, flow)
        assert [
            (one.job.id, one.takes, one.is_possibly_executed, one.available_ms) for one in leased
        ] == [(job.id, 1, False, put_ms)]

    async def test_a_held_job_can_be_dropped(self, harness: Harness) -> None:
        scope = fresh_name("scope")
        (job,) = await held_jobs(harness, fresh_name(), scope)
        assert await harness.queue.settle([Drop(job.id)]) == ["done"]
        assert await harness.job_holds.unhold(scope, 10) == 0

    async def test_a_possibly_executed_job_stays_so_while_it_is_held_and_after(
        self, harness: Harness
    ) -> None:
        flow, token, scope = fresh_name(), fresh_name("token"), fresh_name("scope")
        job = fresh_job(flow, possibly_executed=True)
        await harness.queue.put([job])
        await take(harness, flow, token)
        await harness.queue.settle([Hold(job.id, token, scope)])
        assert await harness.queue.settle([Drop(job.id)]) == ["active"]
        await harness.job_holds.unhold(scope, 10)
        assert [one.is_possibly_executed for one in await take(harness, flow)] == [True]

    async def test_a_take_without_an_end_is_remembered_through_a_hold(
        self, harness: Harness
    ) -> None:
        flow, token, scope = fresh_name(), fresh_name("token"), fresh_name("scope")
        job = fresh_job(flow)
        await harness.queue.put([job])
        await take(harness, flow)
        harness.runtime.advance(LEASE_SECONDS)
        await take(harness, flow, token)
        await harness.queue.settle([Hold(job.id, token, scope)])
        assert await harness.queue.settle([Drop(job.id)]) == ["active"]
        await harness.job_holds.unhold(scope, 10)
        assert [one.is_possibly_executed for one in await take(harness, flow)] == [True]

    async def test_only_the_holder_of_a_job_can_hold_it(self, harness: Harness) -> None:
        flow, token, scope = fresh_name(), fresh_name("token"), fresh_name("scope")
        free, leased, missing = fresh_job(flow), fresh_job(flow), fresh_job(flow)
        await harness.queue.put([leased])
        await take(harness, flow)
        await harness.queue.put([free])
        holds = [Hold(job.id, token, scope) for job in (free, leased, missing)]
        assert await harness.queue.settle(holds) == ["lost", "lost", "absent"]
        assert [one.job.id for one in await take(harness, flow)] == [free.id]

    async def test_only_jobs_of_the_scope_are_unheld_and_no_more_than_asked_for(
        self, harness: Harness
    ) -> None:
        flow, scope, other = fresh_name(), fresh_name("scope"), fresh_name("scope")
        jobs = await held_jobs(harness, flow, scope, count=3)
        await held_jobs(harness, flow, other)
        assert await harness.job_holds.unhold(scope, 2) == 2
        assert await harness.job_holds.unhold(scope, 2) == 1
        assert await harness.job_holds.unhold(scope, 2) == 0
        assert {one.job.id for one in await take(harness, flow)} == {job.id for job in jobs}

    async def test_what_is_held_is_counted_by_tenant_and_scope(self, harness: Harness) -> None:
        flow, scope, other = fresh_name(), fresh_name("scope"), fresh_name("scope")
        await held_jobs(harness, flow, scope, count=2)
        await held_jobs(harness, flow, scope, tenant="globex")
        await held_jobs(harness, flow, other)
        held = [one for one in await harness.job_holds.held() if one.scope in (scope, other)]
        expected = [
            HeldJob("acme", other, 1),
            HeldJob("acme", scope, 2),
            HeldJob("globex", scope, 1),
        ]
        assert sorted(held, key=_order) == sorted(expected, key=_order)

    async def test_an_unhold_wakes_waiters(self, harness: Harness) -> None:
        scope = fresh_name("scope")
        await held_jobs(harness, fresh_name(), scope)
        await end_within(harness.runtime, 5, await wait_for_all(harness.queue.ready(0)))
        waiting = await wait_for_all(harness.queue.ready(600))
        await harness.job_holds.unhold(scope, 10)
        assert await end_within(harness.runtime, 300, waiting)

    async def test_unheld_jobs_queue_behind_themselves(self, harness: Harness) -> None:
        flow, scope = fresh_name(), fresh_name("scope")
        await held_jobs(harness, flow, scope, count=30)
        await harness.job_holds.unhold(scope, 100)
        await take(harness, flow, free=5)
        await harness.queue.put([fresh_job(flow, "globex")])
        assert "globex" in [one.job.tenant for one in await take(harness, flow, free=3)]


def _order(held: HeldJob) -> tuple[str, str]:
    return held.tenant, held.scope


class JobHoldsAfterRestartContract(Contract):
    needs = frozenset({"queue", "unique_jobs", "job_holds", "durable"})

    async def test_a_held_job_stays_held(self, harness: Harness) -> None:
        flow, token, scope = fresh_name(), fresh_name("token"), fresh_name("scope")
        job = fresh_job(flow)
        await harness.queue.put([job])
        await take(harness, flow, token)
        await harness.queue.settle([Hold(job.id, token, scope)])
        await reopen(harness)
        assert await take(harness, flow) == []
        assert await harness.job_holds.unhold(scope, 10) == 1
        assert [one.job.id for one in await take(harness, flow)] == [job.id]
