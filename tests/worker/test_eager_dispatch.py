"""Jobs that are taken as they are put: the worker's free slots go along with them, and come back
whatever becomes of the answer.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta import Done, Engine, Retry
from gesta.engine.process_roles import Work
from gesta.errors import Fenced
from gesta.flows.deferrals import Postponed
from gesta.ports.eager_dispatch import chosen_of
from gesta.ports.job_queue import Job
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)


def watch_takes(ports) -> list[int]:
    """How many jobs each take brings from here on."""
    brought: list[int] = []

    async def take(original, *args, **kwargs):
        answer = await original(*args, **kwargs)
        brought.append(len(answer[0]))
        return answer

    ports.queue.replace("take", take)
    return brought


async def test_a_job_that_is_first_in_line_needs_no_take(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        brought = watch_takes(ports)
        requests = [await engine.submit(Note()) for _ in range(3)]
        await let_run(gesta)
        assert [await request.status() for request in requests] == ["completed"] * 3
        assert sum(brought) == 0


async def test_never_more_calls_at_once_than_the_flow_has_slots_and_the_rest_follows(gesta, ports):
    gates = [Gate(Done(str(n))) for n in range(5)]
    provider = Provider(*gates)
    async with engine_of(provider, concurrency=2) as engine:
        await let_run(gesta)
        requests = [await engine.submit(Note()) for _ in range(5)]
        await let_run(gesta)
        assert len(provider.calls) == 2
        for n, gate in enumerate(gates):
            gate.opened.set()
            await let_run(gesta)
            assert len(provider.calls) == min(5, n + 3)
        assert [await request.status() for request in requests] == ["completed"] * 5
        assert engine.pipeline.pool._free == {FLOW: 2}


async def test_the_job_that_waited_goes_first_when_a_slot_is_free_again(gesta, ports):
    gate = Gate()
    provider = Provider(gate)
    async with engine_of(provider, concurrency=1) as engine:
        await let_run(gesta)
        first = await engine.submit(Note("first"))
        await let_run(gesta)
        waiting = await engine.submit(Note("waiting"))
        await let_run(gesta)
        gate.opened.set()
        last = await engine.submit(Note("last"))
        await let_run(gesta)
        assert [await one.status() for one in (first, waiting, last)] == ["completed"] * 3
    assert [note.text for note in provider.payloads] == ["first", "waiting", "last"]


@pytest.mark.parametrize(
    ("policy", "ending", "calls"),
    [("resend", ["OutcomeUnknown", "Completed"], 1), ("manual", ["OutcomeUnknown"], 0)],
)
async def test_a_process_that_dies_right_after_the_commit_leaves_the_request_unknown(
    gesta, ports, policy, ending, calls
):
    provider = Provider()
    async with engine_of(provider, on_unknown=policy) as dying:
        await let_run(gesta)

        async def put_and_dead(original, *args):
            await original(*args)
            await asyncio.Event().wait()

        ports.transactions.replace("project", put_and_dead)
        request = await dying.submit(Note())
        await let_run(gesta)
        await die(dying)
    async with engine_of(provider, on_unknown=policy) as engine:
        await pass_time(gesta, 6)
        # K-5: no record shows that it was not called, so the flow's policy decides.
        assert await types_of(engine, request.id) == ["RequestCreated", *ending]
    assert len(provider.calls) == calls


async def test_a_job_whose_answer_was_lost_is_found_and_executed_once(gesta, ports):
    provider = Provider()
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)
        ports.transactions.fail("project", answer_lost=True)
        request = await engine.submit(Note())
        await pass_time(gesta, 3)
        # Ours, under a lease that is renewed: no other process would ever look for it.
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]
        assert engine.pipeline.pool._free == {FLOW: engine.pipeline.flows[FLOW].concurrency}
    assert len(provider.calls) == 1


async def test_slots_come_back_when_nothing_was_written(gesta, ports):
    provider = Provider()
    async with engine_of(provider, concurrency=1) as engine:
        await let_run(gesta)
        ports.transactions.fail("project", times=2)
        request = await engine.submit(Note())
        await pass_time(gesta, 4)
        assert await request.status() == "completed"
        assert engine.pipeline.pool._free == {FLOW: 1}
        assert engine.pipeline.pool.eager_dispatcher.on_their_way == 0


async def test_a_job_that_was_put_while_the_engine_stopped_is_released_clean(gesta, ports):
    provider = Provider()
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()
    await let_run(gesta)
    put, go_on = asyncio.Event(), asyncio.Event()

    async def slow(original, *args):
        answer = await original(*args)
        put.set()
        await go_on.wait()
        return answer

    ports.transactions.replace("project", slow)
    request = await engine.submit(Note())
    await let_run(gesta)
    await put.wait()
    stopping = asyncio.ensure_future(engine.stop())
    await let_run(gesta)
    assert not stopping.done()
    go_on.set()
    await stopping
    assert provider.calls == []
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]


async def test_a_job_that_comes_under_a_lease_that_is_over_is_not_called_under_it(gesta, ports):
    provider = Provider()
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)

        async def late(original, *args):
            answer = await original(*args)
            gesta.advance(10)
            return answer

        ports.transactions.replace("project", late)
        request = await engine.submit(Note())
        await let_run(gesta)
        assert provider.calls == []
        ports.transactions.heal()
        await pass_time(gesta, 10)
        # S0-5, K-12: another worker may have had it since; this one found it again, and unknown.
        assert await types_of(engine, request.id) == ["RequestCreated", "OutcomeUnknown"]
    assert provider.calls == []


async def put_slowly(ports) -> asyncio.Event:
    """The projector sees it only when the event is set; the store has done it by then."""
    go_on = asyncio.Event()

    async def slow(original, *args):
        answer = await original(*args)
        await go_on.wait()
        return answer

    ports.transactions.replace("project", slow)
    return go_on


async def test_a_slot_that_a_take_asked_for_is_not_offered_a_second_time(gesta, ports):
    gates = Gate(), Gate()
    provider = Provider(Retry("later", ""), *gates)
    async with engine_of(provider, concurrency=1) as engine:
        await let_run(gesta)
        await engine.submit(Note("first"))
        await let_run(gesta)
        go_on = asyncio.Event()

        async def slow(original, *args, **kwargs):
            answer = await original(*args, **kwargs)
            if answer[0]:
                await go_on.wait()
            return answer

        ports.queue.replace("take", slow)
        # The retry falls due: a take has it, and its answer is on its way.
        while not (await ports.queue.backlog())[FLOW].leased:
            await pass_time(gesta, 0.25)
        await engine.submit(Note("second"))
        await let_run(gesta)
        go_on.set()
        await let_run(gesta)
        assert len(provider.calls) == 2
        for gate in gates:
            gate.opened.set()
        await pass_time(gesta, 1)
        assert len(provider.calls) == 3
        assert engine.pipeline.pool._free == {FLOW: 1}


@pytest.mark.parametrize("is_unknown_first", [True, False])
async def test_a_look_for_lost_takes_beside_an_offer_makes_no_second_take_of_it(
    gesta, ports, is_unknown_first
):
    gate, a, b = Gate(), Gate(), Gate()

    async def postponed(payload, attempt):
        await gate(payload, attempt)
        raise Postponed(0.001)

    provider = Provider(postponed, a, b)
    flows, worker = (
        [note_flow(provider, on_unknown="manual", concurrency=1)],
        Work(frozenset({"worker"})),
    )
    async with (
        Engine(URL, flows=flows, work=worker),
        engine_of(provider, on_unknown="manual", concurrency=2) as engine,
    ):
        await let_run(gesta)
        go_on = await put_slowly(ports)
        requests = [] if is_unknown_first else [await engine.submit(Note())]
        await let_run(gesta)
        # For a while after this the queue is asked what is ours.
        ports.queue.fail("take")
        await pass_time(gesta, 1)
        [request] = requests or [await engine.submit(Note())]
        # Not so long that the answer says nothing any more.
        await pass_time(gesta, 1)
        go_on.set()
        await let_run(gesta)
        gate.opened.set()
        await pass_time(gesta, 1)
        # G3: the second call, of one of the two, and none beside it.
        assert len(provider.calls) == 2
        a.opened.set()
        await pass_time(gesta, 2)
        assert (await request.status(), len(provider.calls)) == ("completed", 2)


async def test_a_stop_does_not_wait_for_ever_for_an_answer(gesta, ports):
    provider = Provider()
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()
    await let_run(gesta)
    go_on = await put_slowly(ports)
    await engine.submit(Note())
    await let_run(gesta)
    stopping = asyncio.ensure_future(engine.stop())
    await pass_time(gesta, 30, 1)
    assert stopping.done()
    # And what comes after that begins nothing.
    go_on.set()
    await let_run(gesta)
    assert provider.calls == []


async def test_a_tenant_that_has_left_leaves_no_request_unknown(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        ports.transactions.fail("project", Fenced("here", "left", other="another store"))
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert await request.status() == "completed"
        # Refused as a whole: there is nothing to look for.
        assert ports.queue.calls["leased_by"] == 0


async def test_a_flow_that_this_worker_does_not_take_is_left_to_others(gesta, ports):
    mine, other = Provider(), Provider()
    flows = [note_flow(mine)]
    async with Engine(URL, flows=flows, work=Work(frozenset({"projector"}))) as projecting:
        await let_run(gesta)
        request = await projecting.submit(Note())
        await let_run(gesta)
        assert await request.status() == "queued"
        async with Engine(URL, flows=[note_flow(other)], work=Work(frozenset({"worker"}))):
            await let_run(gesta)
            assert await result(request) == Done("provider-1")
    assert (len(mine.calls), len(other.calls)) == (0, 1)


def job(number: int, tenant: str, priority: int = 5, flow: str = FLOW) -> Job:
    return Job(f"{number}", tenant, flow, f"{number}", 1, priority=priority)


def test_of_many_jobs_for_few_slots_each_tenant_and_the_urgent_have_theirs():
    flood = [job(n, "flood") for n in range(10)]
    jobs = [*flood, job(10, "quiet"), job(11, "flood", 1), job(12, "elsewhere", flow="test.other")]
    assert {one.id for one in chosen_of(jobs, {FLOW: 3}, 0)} == {"0", "10", "11"}
    assert chosen_of(jobs, {}, 0) == []
    assert chosen_of(jobs, {FLOW: 12}, 0) == jobs[:12]
