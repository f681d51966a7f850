"""A job that comes back to the process that gave it back, before that one has heard of it."""

from __future__ import annotations

import asyncio

from gesta import Done, Retry
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows.deferrals import Postponed
from gesta.ports.job_queue import Release
from tests.world import FLOW, Gate, Note, Provider, engine_of, let_run, pass_time, result

SOON = RetryPolicy(attempts=5, base_seconds=0.1, cap_seconds=0.1)


async def test_a_release_whose_answer_was_lost_does_not_end_the_next_take(gesta, ports):
    """It is on disk and will be repeated a second later, when the job is ours again, under the same
    token.
    """
    second = Gate()
    provider = Provider(Retry("busy"), second)
    async with engine_of(provider, retry=SOON) as engine:
        ports.transactions.fail("record", answer_lost=True)
        request = await engine.submit(Note())
        await pass_time(gesta, 3, 0.05)
        assert len(provider.calls) == 2, "the first attempt, and one more"
        second.opened.set()
        await let_run(gesta)
        assert await result(request) == Done(id="through the gate")
        assert (await request.view()).state.attempts == 2


async def test_a_take_is_not_begun_that_a_repetition_ended_while_its_answer_was_on_the_way(
    gesta, ports
):
    """SEED=7000041: another worker took the job then, and both called."""
    answered, second = asyncio.Event(), Gate()
    provider = Provider(Retry("busy"), second)

    async def late(take, *args, **options):
        answer = await take(*args, **options)
        if answer[0]:
            await answered.wait()
        return answer

    async with engine_of(provider, retry=SOON) as engine:
        ports.transactions.fail("record", answer_lost=True)
        request = await engine.submit(Note())
        await let_run(gesta)
        ports.queue.replace("take", late)
        await pass_time(gesta, 1.5, 0.05)
        answered.set()
        leased, _ = await ports.queue._port.take("another", {FLOW: 1}, 4.0, durable=False)
        await pass_time(gesta, 2, 0.05)
        assert len(provider.calls) + len(leased) == 2, "one first call, and one more"
        await ports.queue._port.settle([Release(one.job.id, one.token, 0) for one in leased])
        second.opened.set()
        await pass_time(gesta, 2, 0.05)
        assert len(provider.calls) == 2
        assert await result(request) == Done(id="through the gate")
        assert engine.pipeline.pool.lease.held == 0


async def test_a_job_that_is_ready_again_at_once_costs_no_lease(gesta, caplog):
    gate = Gate()
    provider = Provider(gate, Postponed(0), Postponed(0))
    async with engine_of(provider) as engine:
        other = await engine.submit(Note("other"))
        await gate.reached.wait()
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert await result(request) == Done(id="provider-4")
        gate.opened.set()
        await let_run(gesta)
        assert await result(other) == Done(id="through the gate")
        assert "lease" not in caplog.text
        assert engine.pipeline.pool.lease.held == 0
