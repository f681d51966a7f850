"""Attempts that are put off before they called anybody: none is spent, and nothing is written."""

from __future__ import annotations

from datetime import timedelta

from gesta import Done, Unknown
from gesta.domain.state import QUEUE_HORIZON_MS
from gesta.flows.deferrals import Postponed
from tests.world import Gate, Note, Provider, die, engine_of, let_run, pass_time, result, types_of


async def test_the_job_waits_until_then_and_no_attempt_is_spent(gesta):
    provider = Provider(Postponed(30))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 29)
        assert (len(provider.calls), (await request.view()).state.attempts) == (1, 0)
        await pass_time(gesta, 2)
        assert await result(request) == Done(id="provider-2")
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]
        assert (await request.view()).state.attempts == 1


async def test_a_postponed_request_keeps_no_slot(gesta):
    provider = Provider(Postponed(30))
    async with engine_of(provider, concurrency=1) as engine:
        await engine.submit(Note("first"))
        await let_run(gesta)
        second = await engine.submit(Note("second"))
        await let_run(gesta)
        assert await result(second) == Done(id="provider-2")


async def test_a_request_that_would_be_due_after_its_time_to_live_expires(gesta):
    provider = Provider(Postponed(3_600))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note(), ttl=timedelta(minutes=1))
        await pass_time(gesta, 62)
        assert (await request.view()).state.status == "expired"
        await pass_time(gesta, 5)
        assert len(provider.calls) == 1


async def test_no_job_waits_in_the_queue_for_longer_than_a_queue_may_hold_it(gesta):
    provider = Provider(Postponed(86_400), Postponed(float("1e9")))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        await pass_time(gesta, QUEUE_HORIZON_MS / 1000 + 1, 30)
        assert len(provider.calls) == 2
        await pass_time(gesta, QUEUE_HORIZON_MS / 1000 + 30, 30)
        assert await result(request) == Done(id="provider-3")


async def test_a_lost_attempt_is_on_record_before_anything_is_postponed(gesta):
    engine = engine_of(Provider(Gate()))
    await engine.start()
    request = await engine.submit(Note())
    await let_run(gesta)
    await die(engine)
    provider = Provider(Postponed(5))
    async with engine_of(provider) as again:
        await pass_time(gesta, 40)
        assert await types_of(again, request.id) == [
            "RequestCreated",
            "OutcomeUnknown",
            "Completed",
        ]
        assert (await (await again.request(request.id)).view()).state.attempts == 2
        assert len(provider.calls) == 2


async def test_a_question_to_the_provider_can_be_postponed(gesta):
    asked = Provider(Postponed(60))
    async with engine_of(
        Provider(Unknown("timeout")), on_unknown="reconcile", reconcile=asked
    ) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 60)
        assert (len(asked.calls), (await request.view()).state.asked) == (1, 0)
        await pass_time(gesta, 10)
        assert (await request.view()).state.status == "completed"


async def test_a_journalled_attempt_is_taken_back(gesta):
    provider = Provider(Postponed(5))
    async with engine_of(provider, journal=True, on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 6)
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "AttemptStarted",
            "RequestUpdated",
            "AttemptStarted",
            "Completed",
        ]
        assert (await request.view()).state.attempts == 1


async def test_it_is_counted(gesta):
    async with engine_of(Provider(Postponed(1), Postponed(1))) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 5)
        assert 'gesta_attempts_postponed_total{flow="test.note"} 2.0' in engine.metrics().decode()


async def test_a_postponed_request_can_be_cancelled(gesta):
    async with engine_of(Provider(Postponed(30))) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await request.cancel() == "cancelled"
