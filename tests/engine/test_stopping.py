"""An engine stops before a supervisor would kill it, whatever executors, handlers and stores do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gesta import Done, Engine, Request
from gesta.cli.stop_signal import CLOSE_SECONDS, STOP_SECONDS
from gesta.engine.environment import Environment
from gesta.engine.pipeline import END_SECONDS, FINISH_SECONDS
from gesta.worker.pool import LAST_SECONDS, STOP_GRACE_SECONDS
from tests.world import (
    FLOW,
    URL,
    Deaf,
    Gate,
    Note,
    Provider,
    engine_of,
    let_run,
    note_flow,
    pass_time,
    take_the_long_way,
    types_of,
)

DRAIN_SECONDS = Environment.drain_seconds
#: What the issue promises.
PROMISED_SECONDS = 30.0


async def started(provider: Provider, **options: Any) -> Engine:
    engine = engine_of(provider, **options)
    await engine.start()
    object.__setattr__(engine.pipeline.environment, "drain_seconds", DRAIN_SECONDS)
    return engine


async def seconds_to_stop(gesta: Any, engine: Engine) -> float:
    stopping = asyncio.ensure_future(engine.stop())
    began = gesta.runtime.monotonic()
    while not stopping.done() and gesta.runtime.monotonic() < began + 2 * PROMISED_SECONDS:
        await pass_time(gesta, 0.25)
    await stopping
    return float(gesta.runtime.monotonic() - began)


def test_the_time_limits_of_a_stop_stay_below_the_promise():
    assert STOP_GRACE_SECONDS < LAST_SECONDS < END_SECONDS
    assert DRAIN_SECONDS + END_SECONDS + FINISH_SECONDS < STOP_SECONDS
    assert STOP_SECONDS + CLOSE_SECONDS <= PROMISED_SECONDS


async def test_nothing_to_wait_for_is_not_waited_for(gesta):
    engine = await started(Provider())
    await engine.submit(Note())
    await pass_time(gesta, 2)
    assert await seconds_to_stop(gesta, engine) <= 0.25


async def test_an_executor_that_swallows_its_cancellation_is_left_behind_and_recorded_as_unknown(
    gesta,
):
    deaf = Deaf()
    provider = Provider(deaf)
    engine = await started(provider, on_unknown="manual")
    request = await engine.submit(Note())
    await let_run(gesta)
    assert await seconds_to_stop(gesta, engine) < DRAIN_SECONDS + LAST_SECONDS
    async with engine_of(provider, on_unknown="manual") as engine:
        await gesta.settle()
        assert await types_of(engine, request.id) == ["RequestCreated", "OutcomeUnknown"]
    assert len(provider.calls) == 1
    deaf.opened.set()


async def test_one_that_was_cut_for_its_time_a_moment_before_does_not_prolong_the_stop(gesta):
    deaf = Deaf()
    provider = Provider(deaf)
    engine = await started(provider, on_unknown="manual", timeout_seconds=DRAIN_SECONDS - 0.5)
    request = await engine.submit(Note())
    await let_run(gesta)
    assert await seconds_to_stop(gesta, engine) < DRAIN_SECONDS + LAST_SECONDS
    async with engine_of(provider, on_unknown="manual") as engine:
        await gesta.settle()
        assert await types_of(engine, request.id) == ["RequestCreated", "OutcomeUnknown"]
    deaf.opened.set()


async def test_a_handler_that_swallows_its_cancellation_is_abandoned_and_called_again(gesta):
    deaf, reported = Deaf(), []
    engine = engine_of(Provider())
    engine.on(FLOW, "completed", name="ledger")(lambda_of(deaf))
    await engine.start()
    object.__setattr__(engine.pipeline.environment, "drain_seconds", DRAIN_SECONDS)
    request = await engine.submit(Note())
    await deaf.reached.wait()
    assert await seconds_to_stop(gesta, engine) < STOP_SECONDS
    again = engine_of(Provider())

    @again.on(FLOW, "completed", name="ledger")
    async def book(event: Any) -> None:
        reported.append(event.request_id)

    async with again:
        await gesta.settle()
    assert reported == [request.id]
    deaf.opened.set()


def lambda_of(gate: Gate) -> Any:
    async def handle(event: Any) -> None:
        await gate(event, None)  # type: ignore[arg-type]

    return handle


@pytest.mark.parametrize("on_unknown", ["resend", "manual"])
async def test_a_store_that_is_out_of_reach_prolongs_a_stop_only_so_far(gesta, ports, on_unknown):
    provider = Provider(Gate())
    engine = await started(provider, on_unknown=on_unknown)
    request = await engine.submit(Note())
    await let_run(gesta)
    ports.go_down()
    assert await seconds_to_stop(gesta, engine) < STOP_SECONDS
    await pass_time(gesta, 10)
    async with engine_of(provider, on_unknown=on_unknown) as engine:
        await gesta.settle()
        # Nothing could be recorded: the next process finds the job under a dead lease, so it is
        # unknown.
        assert (await types_of(engine, request.id))[1] == "OutcomeUnknown"
    assert len(provider.calls) == (2 if on_unknown == "resend" else 1)


async def test_a_log_that_others_go_on_appending_to_does_not_hold_a_stop(gesta):
    engine = await started(Provider())
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as other:
        await pass_time(gesta, 2)
        follow, steps = engine.pipeline.projector.step, 0

        async def step(*, again: bool = False) -> int:
            nonlocal steps
            steps += 1
            await other.submit(Note(str(steps)))
            gesta.runtime.advance(1.0)
            return await follow(again=again)

        engine.pipeline.projector.step = step  # type: ignore[method-assign]
        await engine.stop()
        assert 0 < steps < 2 * PROMISED_SECONDS


async def test_a_job_leased_while_the_engine_stops_is_released_clean(gesta, ports):
    provider = Provider()
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()
    leased, go_on = asyncio.Event(), asyncio.Event()

    async def slow_take(original, *args, **kwargs):
        answer = await original(*args, **kwargs)
        if answer[0]:
            leased.set()
            await go_on.wait()
        return answer

    take_the_long_way(engine)
    ports.queue.replace("take", slow_take)
    request = await engine.submit(Note())
    await let_run(gesta)
    await leased.wait()
    stopping = asyncio.ensure_future(engine.stop())
    await let_run(gesta)
    go_on.set()
    await stopping
    assert provider.calls == []
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]


#: Their attempts begin in so many parts that a stop comes in between.
LARGE = 3000


async def test_attempts_of_a_large_batch_that_had_not_begun_at_the_stop_are_released_clean(
    gesta,
):
    stopping: list[asyncio.Future[None]] = []

    async def stop(_payload: object, _attempt: object) -> Done:
        stopping.append(asyncio.ensure_future(engine.stop()))
        return Done("first")

    provider = Provider(stop)
    engine = engine_of(provider, on_unknown="manual", concurrency=LARGE + 1000)
    await engine.start()
    object.__setattr__(engine.pipeline.environment, "drain_seconds", 25.0)
    await let_run(gesta)
    requests = [
        one
        for one in await engine.submit_many([Note() for _ in range(LARGE)])
        if isinstance(one, Request)
    ]
    await let_run(gesta)
    await stopping[0]
    begun = len(provider.calls)
    assert 0 < begun < LARGE
    async with engine_of(provider, on_unknown="manual", concurrency=LARGE + 1000) as engine:
        await let_run(gesta)
        assert [await (await engine.request(one.id)).status() for one in requests] == [
            "completed"
        ] * LARGE
    assert len(provider.calls) == LARGE
