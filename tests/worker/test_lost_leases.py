"""Takes whose answer is lost, late or overtaken, attempts that end after they were given up, and
jobs that come back meanwhile.
"""

from __future__ import annotations

import asyncio

from gesta import Retry
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import StoreError
from tests.world import (
    FLOW,
    Deaf,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    let_run,
    pass_time,
    types_of,
)

SOON = RetryPolicy(attempts=5, base_seconds=0.1, cap_seconds=0.1)


async def nothing(_take, *_, **__):
    return [], None


def losing(ports):
    """A take that brings something, once, and whose answer is lost."""

    async def lose(take, *args, **options):
        answer = await take(*args, **options)
        if answer[0]:
            ports.queue.heal()
            raise StoreError("answer lost")
        return answer

    return lose


async def test_a_job_whose_lease_answer_was_lost_is_done_beside_a_long_call(gesta, ports):
    gate = Gate()
    async with engine_of(Provider(gate), timeout_seconds=10_000.0) as engine:
        await engine.submit(Note("long"))
        await gate.reached.wait()
        await let_run(gesta)
        ports.queue.replace("take", losing(ports))
        request = await engine.submit(Note("lost"))
        await pass_time(gesta, 5)
        assert await request.status() == "completed"


async def test_a_job_whose_lease_answer_was_lost_is_done_beside_short_jobs(gesta, ports):
    async with engine_of(Provider(), on_unknown="manual") as engine:
        await let_run(gesta)
        ports.queue.replace("take", losing(ports))
        request = await engine.submit(Note("lost"))
        for _ in range(5):
            await pass_time(gesta, 1)
            await engine.submit(Note())
        assert await request.status() == "completed", "and it is not unknown: nothing was called"


async def test_the_late_failure_of_an_attempt_that_was_given_up_ends_no_other_lease(gesta, ports):
    deaf, second = Deaf(Retry("late")), Gate()
    provider = Provider(deaf, second)
    async with engine_of(provider, retry=SOON, timeout_seconds=1.0) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 7.0, 0.05)
        assert len(provider.calls) == 2
        ports.queue.replace("take", nothing)
        deaf.opened.set()
        await pass_time(gesta, 0.1, 0.01)
        leased, _ = await ports.queue._port.take("another", {FLOW: 1}, 4.0, durable=False)
        assert leased == [], "our second attempt is calling"


async def test_a_process_stops_while_the_store_is_down_and_an_outcome_waits(gesta, ports):
    engine = engine_of(Provider(Retry("busy")), retry=SOON)
    await engine.start()
    await let_run(gesta)
    ports.transactions.fail("record", answer_lost=True)
    await engine.submit(Note())
    await pass_time(gesta, 0.5, 0.05)
    assert engine.pipeline.pool._again
    ports.go_down()
    stopping = asyncio.ensure_future(engine.stop())
    await pass_time(gesta, 60)
    assert stopping.done()
    await stopping


async def test_an_outcome_is_recorded_although_a_take_hangs(gesta, ports):
    gate, go_on = Gate(), asyncio.Event()

    async def hanging(_take, *_, **__):
        await go_on.wait()
        raise StoreError("no answer")

    async with engine_of(Provider(gate), on_unknown="manual", timeout_seconds=1000) as engine:
        request = await engine.submit(Note())
        await gate.reached.wait()
        ports.queue.replace("take", hanging)
        await pass_time(gesta, 2)
        ports.transactions.fail("record")
        gate.opened.set()
        await pass_time(gesta, 3)
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]
        go_on.set()


async def test_a_known_failure_does_not_become_unknown_because_a_take_and_a_renewal_hang(
    gesta, ports
):
    gate, silent = Gate(Retry("busy", after_seconds=30)), asyncio.Event()
    provider = Provider(gate)

    async def hang(_original, *_, **__):
        await silent.wait()
        raise StoreError("no answer")

    async with engine_of(provider, on_unknown="manual", timeout_seconds=1000) as engine:
        request = await engine.submit(Note())
        await gate.reached.wait()
        mine, commits = ports.queue, ports.transactions
        async with engine_of(provider, on_unknown="manual", timeout_seconds=1000):
            mine.replace("take", hang)
            mine.replace("extend", hang)
            await pass_time(gesta, 1.5)
            commits.fail("record")
            gate.opened.set()
            await pass_time(gesta, 10)
            assert await types_of(engine, request.id) == ["RequestCreated", "AttemptFailed"]
            silent.set()
            await pass_time(gesta, 2)


async def test_a_repetition_that_hangs_blocks_no_take(gesta, ports):
    provider, go_on, tries = Provider(), asyncio.Event(), 0

    async def hang(record, *args):
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreError("cut")
        await go_on.wait()
        return await record(*args)

    async with engine_of(provider) as engine:
        await let_run(gesta)
        ports.transactions.replace("record", hang)
        await engine.submit(Note())
        await pass_time(gesta, 2)
        await engine.submit(Note())
        await pass_time(gesta, 5)
        assert len(provider.calls) == 2
        go_on.set()
        await pass_time(gesta, 5)


async def test_a_possibly_executed_job_that_is_resumed_while_its_hold_is_unanswered_costs_no_lease(
    gesta, ports, caplog
):
    provider = Provider(Gate())
    async with engine_of(provider) as dying:
        await dying.submit(Note(), tenant="acme")
        await let_run(gesta)
        await die(dying)
    other = Gate()
    provider.script.append(other)
    async with engine_of(provider, timeout_seconds=1000) as engine:
        await engine.admin.pause(tenant="acme")
        running = await engine.submit(Note("other"))
        ports.queue.fail("settle", answer_lost=True)
        while not await engine.admin.held():
            await pass_time(gesta, 0.25)
        assert other.reached.is_set()
        await engine.admin.resume(tenant="acme")
        await pass_time(gesta, 5, 0.05)
        assert "lease lost" not in caplog.text
        assert not (await running.view()).state.in_doubt


async def test_an_outcome_waiting_under_a_lost_lease_occupies_no_slot(gesta, ports):
    answered, second = asyncio.Event(), Gate()

    async def late(record, entries, *rest):
        answer = await record(entries, *rest)
        await answered.wait()
        return answer

    async with engine_of(
        Provider(Retry("busy"), second), retry=SOON, timeout_seconds=1000
    ) as engine:
        await let_run(gesta)
        ports.transactions.replace("record", late)
        await engine.submit(Note())
        await pass_time(gesta, 0.5, 0.05)
        pool = engine.pipeline.pool
        assert pool._again
        ports.queue.fail("extend", times=5)
        ports.transactions.heal()
        await pass_time(gesta, 6, 0.05)
        answered.set()
        await pass_time(gesta, 60)
        assert second.reached.is_set()
        assert (pool.lease.held, len(pool._again), pool._free[FLOW]) == (1, 0, 99)
