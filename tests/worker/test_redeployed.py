"""A flow is declared anew while requests of it are open: no rule of yesterday may make a call
today.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gesta import Done, Engine, OutcomeTimeout, Payload, Retry, Unknown
from tests.world import URL, Note, Provider, engine_of, let_run, note_flow


async def test_a_question_never_becomes_a_call_when_the_flow_no_longer_asks(gesta):
    provider, asked = Provider(Unknown("no_answer")), Provider(Unknown("not_yet"))
    async with engine_of(provider, on_unknown="reconcile", reconcile=asked) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
    async with engine_of(provider, on_unknown="manual") as engine:
        await gesta.settle()
        state = (await engine.get(request.id)).state
    assert len(provider.calls) == 1
    assert (state.status, state.due_at, state.reason) == ("unknown", None, "cannot_ask")


async def test_a_flow_that_is_manual_now_asks_once_about_an_earlier_unknown_and_not_for_ever(gesta):
    provider, asked = Provider(Unknown("no_answer")), Provider(*[Unknown("not_yet")] * 50)
    async with engine_of(provider, on_unknown="reconcile", reconcile=asked) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
    async with engine_of(provider, on_unknown="manual", reconcile=asked) as engine:
        await gesta.settle()
        assert (await engine.get(request.id)).state.due_at is None
    assert (len(provider.calls), len(asked.calls)) == (1, 1)


async def test_a_resend_that_was_planned_is_not_made_when_the_flow_no_longer_relies_on_the_key(
    gesta,
):
    provider = Provider(Unknown("no_answer"))
    async with engine_of(provider, on_unknown="resend") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
    async with engine_of(provider, on_unknown="manual") as engine:
        await gesta.settle()
        state = (await engine.get(request.id)).state
    assert len(provider.calls) == 1
    assert (state.status, state.due_at) == ("unknown", None)


async def test_a_freed_slot_is_used_at_once_although_another_flow_is_idle(gesta):
    """The worker used to wait for a notification of the queue while the next job had been ready all
    the time.
    """
    provider, idle = Provider(), Provider()

    class Other(Note, frozen=True):
        pass

    busy = note_flow(provider, concurrency=1)
    other = type(busy)("test.other", Other, idle.execute)
    async with Engine(URL, flows=[busy, other]) as engine:
        requests = [await engine.submit(Note()) for _ in range(10)]
        await let_run(gesta)
        assert [await request.status() for request in requests] == ["completed"] * 10


async def test_waiting_for_an_outcome_moves_the_clock_of_a_test_and_ends(gesta):
    async with engine_of(Provider(Retry("busy", after_seconds=5))) as engine:
        request = await engine.submit(Note())
        with pytest.raises(OutcomeTimeout, match=r"last attempt ended with busy"):
            await request.outcome(timeout=2)
        assert isinstance(await request.outcome(timeout=60), Done)


async def test_a_clock_that_was_set_back_does_not_stop_the_work(tmp_path, gesta):
    """Leases that end later than any lease lasts were made by a clock that was wrong."""
    from gesta.runtime.clock import ManualRuntime
    from gesta.stores.sqlite import open_stores

    url, late, early = (
        f"sqlite:///{tmp_path / 'gesta.db'}",
        ManualRuntime(),
        ManualRuntime(ManualRuntime().now_ms() - 3_600_000),
    )
    stores = await open_stores(url, late)
    assert await stores.leases.claim("projector", "first", 4)
    await stores.close()
    stores = await open_stores(url, early)
    assert await stores.leases.claim("projector", "second", 4)
    await stores.close()


async def test_a_question_that_cannot_be_asked_leaves_the_outcome_unknown(gesta):
    """The payload no longer fits: that says nothing about the call that was made."""

    class Stricter(Payload, frozen=True):
        text: int

    provider, asked = Provider(Unknown("no_answer")), Provider(Unknown("not_yet"))
    async with engine_of(provider, on_unknown="reconcile", reconcile=asked) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
    declared = note_flow(provider, on_unknown="reconcile", reconcile=asked)
    async with Engine(URL, flows=[replace(declared, payload=Stricter)]) as engine:
        await gesta.settle()
        state = (await engine.get(request.id)).state
    assert (state.status, state.reason) == ("unknown", "bad_payload")
    assert (len(provider.calls), asked.calls) == (1, [])
