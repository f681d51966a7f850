"""Processes that die, freeze or stop with a job in their hands: the crash points of the worker on
stores that share a database.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta import Done, Rejected, Retry, Unknown
from gesta.domain.outcome import Outcome
from tests.world import (
    FLOW,
    LEASE_CUT,
    WORKER_LOST,
    Deaf,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    let_run,
    pass_time,
    result,
    take_the_long_way,
    types_of,
)


async def test_a_worker_that_dies_with_a_job_is_followed_by_another_when_the_lease_ends(gesta):
    gate = Gate()
    provider = Provider(gate)
    async with engine_of(provider) as dying:
        request = await dying.submit(Note())
        await let_run(gesta)
        await gate.reached.wait()
        await die(dying)
    async with engine_of(provider) as engine:
        await let_run(gesta)
        # S0-5: held by no worker any more, but not before the lease has ended.
        assert len(provider.calls) == 1
        await pass_time(gesta, 5)
        # K-4: the lost attempt counts as one, and the next has the same key.
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "OutcomeUnknown",
            "Completed",
        ]
        assert (await engine.get(request.id)).state.attempts == 2  # K-4, X-3
    assert provider.keys == [f"default:{request.id}:send:1"] * 2


@pytest.mark.parametrize(
    ("policy", "ending", "calls"),
    [("resend", ["OutcomeUnknown", "Completed"], 2), ("manual", ["OutcomeUnknown"], 1)],
)
async def test_a_job_taken_by_a_process_that_died_before_the_call_is_possibly_executed(
    gesta, ports, policy, ending, calls
):
    provider = Provider(Done())
    async with engine_of(provider, on_unknown=policy) as dying:

        async def taken_and_dead(original, *args, **kwargs):
            answer = await original(*args, **kwargs)
            if answer[0]:
                await asyncio.Event().wait()
            return answer

        take_the_long_way(dying)
        ports.queue.replace("take", taken_and_dead)
        request = await dying.submit(Note())
        await let_run(gesta)
        await die(dying)
    async with engine_of(provider, on_unknown=policy) as engine:
        await pass_time(gesta, 6)
        # K-5: no record shows that it was not called, so the flow's policy decides.
        assert await types_of(engine, request.id) == ["RequestCreated", *ending]
    assert len(provider.calls) == calls - 1


async def test_an_outcome_recorded_before_the_crash_is_not_executed_again(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as dying:

        async def appended_not_settled(original, entries):
            # Where the queue is another store, a process can die between the two.
            await dying.pipeline.environment.stores.events.append(
                [entry.append for entry in entries]
            )
            await asyncio.Event().wait()

        ports.transactions.replace("record", appended_not_settled)
        request = await dying.submit(Note())
        await let_run(gesta)
        assert await request.status() == "completed"
        await die(dying)
    async with engine_of(provider) as engine:
        await pass_time(gesta, 6)
        # K-9, S0-9: the redelivered job finds the end on record, is acked and calls no provider.
        assert await engine.pipeline.environment.stores.live_jobs([f"{request.id}-1"]) == set()
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]
    assert len(provider.calls) == 1


async def test_a_recorded_wait_is_kept_by_the_next_worker(gesta, ports):
    provider = Provider(Retry("throttled", after_seconds=60))
    async with engine_of(provider) as dying:

        async def appended_not_settled(original, entries):
            await dying.pipeline.environment.stores.events.append(
                [entry.append for entry in entries]
            )
            await asyncio.Event().wait()

        ports.transactions.replace("record", appended_not_settled)
        request = await dying.submit(Note())
        await let_run(gesta)
        due_ms = gesta.runtime.now_ms() + 60_000
        await die(dying)
    async with engine_of(provider) as engine:
        await gesta.settle()
        assert await result(await engine.request(request.id)) == Done("provider-2")
    # K-17: not a moment earlier, although the job was ready when the lease ended.
    assert provider.calls[1].at_ms >= due_ms
    assert len(provider.calls) == 2


async def test_a_worker_that_was_frozen_before_the_call_does_not_make_it(gesta, ports):
    provider = Provider()
    frozen, thaw = asyncio.Event(), asyncio.Event()

    async def freeze(original, *args, **kwargs):
        found = await original(*args, **kwargs)
        frozen.set()
        await thaw.wait()
        return found

    async with engine_of(provider) as first:
        first_ports = ports.events
        await let_run(gesta)
        first_ports.replace("read", freeze)
        request = await first.submit(Note())
        await let_run(gesta)
        await frozen.wait()
        # Nothing of the frozen process runs: its renewals do not either.
        ports.queue.fail("extend", times=100)
        first_ports.heal()
        async with engine_of(provider) as second:
            await pass_time(gesta, 6)
            assert await (await second.request(request.id)).status() == "completed"
            assert len(provider.calls) == 1
            thaw.set()
            await let_run(gesta)
            # K-12: it wakes up, finds its lease gone and calls no provider.
            assert len(provider.calls) == 1
            assert await types_of(second, request.id) == [
                "RequestCreated",
                "OutcomeUnknown",
                "Completed",
            ]


@pytest.mark.parametrize(
    ("policy", "late", "ending", "ignored"),
    [
        ("manual", Done(id="late"), ["OutcomeUnknown", "Completed"], 0),
        ("manual", Rejected("late"), ["OutcomeUnknown"], 1),
        ("manual", Retry("late"), ["OutcomeUnknown"], 1),
        ("resend", Done(id="late"), ["OutcomeUnknown", "Completed"], 1),
        ("resend", Rejected("late"), ["OutcomeUnknown", "Completed"], 1),
        ("resend", Retry("late"), ["OutcomeUnknown", "Completed"], 1),
    ],
)
async def test_an_outcome_that_comes_after_the_lease_was_lost_is_merged(
    gesta, ports, policy, late: Outcome, ending, ignored
):
    frozen = Deaf(late)
    provider = Provider(frozen)
    async with engine_of(provider, on_unknown=policy) as first:
        request = await first.submit(Note())
        await let_run(gesta)
        ports.queue.fail("extend", times=1_000)
        ports.queue.fail("take", times=1_000)
        async with engine_of(provider, on_unknown=policy) as second:
            await pass_time(gesta, 12)
            frozen.opened.set()
            await pass_time(gesta, 1)
            # K-12: evidence of success counts whenever it comes; a late failure undoes nothing.
            assert await types_of(second, request.id) == ["RequestCreated", *ending]
            assert await second.admin.quarantined() == []
        # S1-7: noted, not thrown.
        assert (
            first.pipeline.telemetry.registry.get_sample_value(
                "gesta_late_outcomes_total", {"flow": FLOW}
            )
            == ignored
        )
        ports.queue.heal()


async def test_a_late_failure_of_an_intent_that_was_given_up_does_not_count_against_the_new_one(
    gesta,
):
    late, current = Gate(Rejected("late")), Gate(Done(id="new"))
    provider = Provider(TimeoutError(), late, current)
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert len(provider.calls) == 2
        # The queue was lost, the resend is still under way, and a person forces a new intent: both
        # are second attempts.
        engine.pipeline.environment.stores.queue._rows.clear()  # type: ignore[attr-defined]
        engine.pipeline.environment.stores.queue._leases.clear()  # type: ignore[attr-defined]
        await request.redrive(again=True)
        await let_run(gesta)
        assert [attempt.number for attempt in provider.calls] == [1, 2, 2]
        late.opened.set()
        await pass_time(gesta, 1)
        assert "Failed" not in await types_of(engine, request.id)
        current.opened.set()
        await pass_time(gesta, 1)
        assert await result(request) == Done("new")


async def test_a_call_is_cut_before_the_lease_ends_when_it_cannot_be_renewed(gesta, ports):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        began = gesta.runtime.now_ms()
        ports.queue.fail("extend", times=100)
        while await request.status() == "queued":
            gesta.advance(0.25)
            await let_run(gesta)
        # K-12: over when another worker may begin, not after.
        assert gesta.runtime.now_ms() - began <= 4_000
        assert await result(request) == Unknown("lease_lost", LEASE_CUT)


async def test_a_call_is_cut_before_the_lease_ends_when_the_renewal_hangs(gesta, ports):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        began = gesta.runtime.now_ms()

        async def hang(original, *args, **kwargs):
            await asyncio.Event().wait()

        ports.queue.replace("extend", hang)
        while await request.status() == "queued" and gesta.runtime.now_ms() - began < 10_000:
            gesta.advance(0.25)
            await let_run(gesta)
        assert gesta.runtime.now_ms() - began <= 4_000
        assert await result(request) == Unknown("lease_lost", LEASE_CUT)


async def test_a_process_that_slept_past_its_own_lease_does_not_call_beside_itself(gesta):
    gate = Gate()
    provider = Provider(gate)
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        # The machine was suspended: nothing ran meanwhile, and the queue's lease is over.
        gesta.advance(30)
        await let_run(gesta)
        gate.opened.set()
        await pass_time(gesta, 10)
        types = await types_of(engine, request.id)
        assert types[:2] == ["RequestCreated", "OutcomeUnknown"]
        assert types[-1] == "Completed"
        assert await engine.admin.quarantined() == []
    # The first call was cut; the second began after that.
    assert len(provider.calls) == 2


async def test_the_engine_works_on_under_a_new_lease_after_it_lost_one(gesta, ports):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual") as engine:
        lost = await engine.submit(Note())
        await let_run(gesta)
        ports.queue.fail("extend", times=6)
        await pass_time(gesta, 8)
        assert await lost.status() == "unknown"
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await request.status() == "completed"


async def test_a_running_attempt_ends_and_is_recorded_when_the_engine_stops(gesta):
    gate = Gate()
    provider = Provider(gate)
    engine = engine_of(provider)
    await engine.start()
    object.__setattr__(engine.pipeline.environment, "drain_seconds", 25.0)
    request = await engine.submit(Note())
    await let_run(gesta)
    stopping = asyncio.ensure_future(engine.stop())
    await let_run(gesta)
    assert not stopping.done()
    gate.opened.set()
    await stopping
    async with engine_of(provider) as engine:
        assert await (await engine.request(request.id)).status() == "completed"
    assert len(provider.calls) == 1


async def test_an_attempt_that_outlasts_the_drain_is_cut_and_recorded_as_unknown(gesta):
    provider = Provider(Gate())
    engine = engine_of(provider)
    await engine.start()
    object.__setattr__(engine.pipeline.environment, "drain_seconds", 25.0)
    request = await engine.submit(Note())
    await let_run(gesta)
    stopping = asyncio.ensure_future(engine.stop())
    await pass_time(gesta, 24.75)
    assert not stopping.done()
    await pass_time(gesta, 0.5)
    await stopping
    async with engine_of(provider) as engine:
        history = await engine.history(request.id)
        assert [type_name for type_name, _, _ in history][1:] == ["test.note.OutcomeUnknown.v1"]


async def test_a_job_whose_call_had_not_begun_when_the_drain_was_over_is_released(gesta, ports):
    provider = Provider()
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()
    loading, go_on = asyncio.Event(), asyncio.Event()

    async def slow_read(original, *args, **kwargs):
        loading.set()
        await go_on.wait()
        return await original(*args, **kwargs)

    await let_run(gesta)
    ports.events.replace("read", slow_read)
    request = await engine.submit(Note())
    await let_run(gesta)
    await loading.wait()
    stopping = asyncio.ensure_future(engine.stop())
    await let_run(gesta)
    go_on.set()
    await stopping
    assert provider.calls == []
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]


async def test_stopping_ends_although_an_executor_never_does(gesta):
    deaf = Deaf()
    provider = Provider(deaf)
    engine = engine_of(provider)
    await engine.start()
    request = await engine.submit(Note())
    await let_run(gesta)
    stopping = asyncio.ensure_future(engine.stop())
    await pass_time(gesta, 6)
    assert stopping.done()
    async with engine_of(provider) as engine:
        assert (await types_of(engine, request.id))[:2] == ["RequestCreated", "OutcomeUnknown"]
    deaf.opened.set()


async def test_stopping_ends_although_the_store_takes_nothing_any_more(gesta, ports):
    provider = Provider()
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()
    await let_run(gesta)
    ports.transactions.fail("record", times=1_000)
    request = await engine.submit(Note())
    await let_run(gesta)
    stopping = asyncio.ensure_future(engine.stop())
    await pass_time(gesta, 11)
    assert stopping.done()
    assert len(provider.calls) == 1
    # What could not be recorded is unknown at the next start: it is not lost, and not sent
    # again blindly.
    async with engine_of(provider, on_unknown="manual") as engine:
        await pass_time(gesta, 6)
        assert await result(await engine.request(request.id)) == Unknown("lease_lost", WORKER_LOST)
    assert len(provider.calls) == 1


async def test_a_possibly_executed_job_does_not_become_clean_by_a_stop(gesta, ports):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual") as dying:
        request = await dying.submit(Note())
        await let_run(gesta)
        await die(dying)
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()

    async def slow_take(original, *args, **kwargs):
        answer = await original(*args, **kwargs)
        if answer[0]:
            await asyncio.sleep(0.01)
        return answer

    ports.queue.replace("take", slow_take)
    await pass_time(gesta, 5)
    await engine.stop()
    async with engine_of(provider, on_unknown="manual") as engine:
        await pass_time(gesta, 10)
        assert await result(await engine.request(request.id)) == Unknown("lease_lost", WORKER_LOST)
    assert len(provider.calls) == 1
