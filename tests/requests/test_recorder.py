from __future__ import annotations

import asyncio

import pytest

from gesta import Actor, Done, Engine, Refused, Rejected, Retry, RetryPolicy
from gesta.errors import Busy
from gesta.ports.event_store import Stale
from gesta.ports.transactions import Recording
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    append_raw,
    engine_of,
    events_of,
    fields,
    let_run,
    note_flow,
    outcome_fields,
    pass_time,
    result,
    types_of,
)


@pytest.mark.parametrize(
    ("flow", "event", "provider_id"),
    [
        ("notification.note", "Sent", "providerMessageId"),  # R1-4
        ("test.note", "Completed", "providerTxnId"),  # R1-5, R1-11
    ],
)
async def test_a_success_is_recorded_with_the_providers_names_and_the_attempts(
    gesta, flow, event, provider_id
):
    provider = Provider(TimeoutError(), Done(id="ts-1", target="C012", detail="posted"))
    async with engine_of(provider, name=flow) as engine:
        request = await engine.submit(Note(), correlation_id="c-1")
        await gesta.settle()
        sent = (await events_of(engine, request.id, flow=flow))[-1]
    # R1-4
    assert sent.type == f"{flow}.{event}.v1"
    assert outcome_fields(sent.data) == {
        "attempts": 2,
        provider_id: "ts-1",
        "targetId": "C012",
        "detail": "posted",
    }
    meta = fields(sent.meta)
    assert (meta["requestId"], meta["tenant"]) == (request.id, "default")  # R1-4
    assert (meta["correlationId"], meta["causationId"], meta["actor"]) == (
        "c-1",
        f"{request.id}-1",
        None,
    )  # R1-4


async def test_a_final_failure_is_recorded_with_its_reason_and_whether_a_redrive_makes_sense(gesta):
    provider = Provider(Rejected("bad_address", "answered 404"), *[ConnectionError("refused")] * 3)
    async with engine_of(provider, retry=RetryPolicy(attempts=1)) as engine:
        refused = await engine.submit(Note(), correlation_id="c-1")
        await gesta.settle()
        failed = (await events_of(engine, refused.id))[-1]
    # R1-6
    assert failed.type == "test.note.Failed.v1"
    assert outcome_fields(failed.data) == {
        "reason": "bad_address",
        "attempts": 1,
        "lastError": "answered 404",
    }
    meta = fields(failed.meta)
    assert (meta["requestId"], meta["tenant"], meta["correlationId"]) == (
        refused.id,
        "default",
        "c-1",
    )  # R1-6


async def test_attempts_that_are_used_up_are_a_failure_that_may_be_redriven(gesta):
    async with engine_of(Provider(*[Retry("busy")] * 2), retry=RetryPolicy(attempts=2)) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        failed = (await events_of(engine, request.id))[-1]
    # R1-6, S1-9: `retryable` is shown to people; nothing queues it again by itself.
    assert outcome_fields(failed.data) == {
        "reason": "max_attempts_exceeded",
        "attempts": 2,
        "retryable": True,
        "lastError": "busy",
    }


async def test_the_event_names_the_actor(gesta):
    async with engine_of(Provider(TimeoutError()), on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        await request.resolve(
            "executed",
            by="ann",
            evidence="seen in the log",
            provider_id="p-9",
            actor=Actor("u-7", ("ops", "night")),
        )
        resolved = (await events_of(engine, request.id))[-1]
        assert await result(request) == Done("p-9", detail="seen in the log")
    assert fields(resolved.meta)["actor"] == {"userId": "u-7", "roles": ["ops", "night"]}  # R1-7
    assert fields(resolved.data) == {
        "result": "executed",
        "by": "ann",
        "evidence": "seen in the log",
        "providerMessageId": "p-9",
    }


async def test_an_actor_without_roles_is_recorded_without_them(gesta):
    async with engine_of(Provider(Rejected("no"))) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        await request.redrive(actor=Actor("u-7"))
        redriven = (await events_of(engine, request.id))[2]
    assert fields(redriven.meta)["actor"] == {"userId": "u-7"}  # R1-7


async def test_events_are_appended_at_the_version_that_was_read(gesta, ports):
    expected: list[int] = []

    async def look(original, entries):
        expected.extend(entry.append.expected for entry in entries if entry.append is not None)
        return await original(entries)

    async with engine_of(Provider(TimeoutError(), Rejected("no"))) as engine:
        ports.transactions.replace("record", look)
        request = await engine.submit(Note())
        await gesta.settle()
        await request.redrive()
        await gesta.settle()
    assert expected == [1, 2, 3, 4]  # R1-35


async def test_a_command_is_decided_again_when_the_stream_has_changed(gesta, ports):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)

        async def another_is_faster(original, entries):
            ports.transactions.heal()
            await append_raw(
                engine,
                request.id,
                2,
                "RequestUpdated.v1",
                b'{"change":"redrive","status":"queued","intent":2}',
            )
            return await original(entries)

        ports.transactions.replace("record", another_is_faster)
        # S1-16, R1-35: nothing is written on top of what was not seen; the second look finds the
        # request queued already.
        with pytest.raises(Refused) as refused:
            await _while_time_passes(gesta, request.redrive())
        assert refused.value.code == "not_final"
        assert (await types_of(engine, request.id))[:3] == [
            "RequestCreated",
            "Failed",
            "RequestUpdated",
        ]


async def test_a_command_is_refused_as_busy_after_five_changes_of_the_stream(gesta, ports):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)

        async def always_moved(original, entries):
            return [Recording(Stale(9), None) for _ in entries]

        before = ports.transactions.calls["record"]
        ports.transactions.replace("record", always_moved)
        with pytest.raises(Busy, match="changed 5 times"):
            await _while_time_passes(gesta, request.redrive())
        assert ports.transactions.calls["record"] - before == 5  # S1-16
        assert await types_of(engine, request.id) == ["RequestCreated", "Failed"]


async def test_two_decisions_at_once_become_one(gesta):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        answers = await _while_time_passes(
            gesta, asyncio.gather(request.redrive(), request.redrive(), return_exceptions=True)
        )
        # R1-49: the conflict is resolved, not written twice.
        assert sorted(type(answer).__name__ for answer in answers) == ["Refused", "str"]
        await gesta.settle()
        assert (await types_of(engine, request.id)).count("RequestUpdated") == 1
    assert len(provider.calls) == 2


async def test_an_append_whose_answer_was_lost_is_recognised_and_not_written_twice(gesta, ports):
    provider = Provider(Done(id="p-1"))
    async with engine_of(provider) as engine:
        await let_run(gesta)
        ports.transactions.fail("record", answer_lost=True)
        request = await engine.submit(Note())
        await pass_time(gesta, 3)
        stored = await events_of(engine, request.id)
        # S1-16: the same event ids at the same place.
        assert [event.type for event in stored] == [
            "test.note.RequestCreated.v1",
            "test.note.Completed.v1",
        ]
        assert await engine.pipeline.environment.stores.live_jobs([f"{request.id}-1"]) == set()


async def test_event_ids_of_one_decision_differ_in_their_last_byte_only(gesta):
    async with engine_of(Provider(Retry("busy")), retry=RetryPolicy(attempts=1)) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        _, failed_attempt, failed = await events_of(engine, request.id)
    assert failed_attempt.id[:15] == failed.id[:15]  # S1-16
    assert (failed_attempt.id[15], failed.id[15]) == (0, 1)


async def test_a_request_cancelled_while_an_attempt_runs_is_decided_by_its_end(gesta):
    gates = Gate(), Gate(Retry("busy"))
    provider = Provider(*gates)
    async with engine_of(provider) as engine:
        requests = [await engine.submit(Note()) for _ in gates]
        await let_run(gesta)
        for request, gate in zip(requests, gates, strict=True):
            assert await request.cancel() == "queued"
            assert await types_of(engine, request.id) == ["RequestCreated", "RequestUpdated"]
            gate.opened.set()
        await pass_time(gesta, 1)
        assert [await request.status() for request in requests] == ["completed", "cancelled"]
    assert len(provider.calls) == 2


async def test_a_decision_is_refused_in_words_and_with_a_stable_code(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        request = await engine.submit(Note())
        with pytest.raises(
            Refused,
            match=(
                r"only a failed, expired or cancelled request can be redriven \(use retry for a"
                r" waiting request\)"
            ),
        ) as refused:
            await request.redrive()
        assert (refused.value.code, refused.value.request_id) == ("not_final", request.id)
        with pytest.raises(Refused, match="only an unknown outcome can be resolved"):
            await request.resolve("executed", by="ann", evidence="none")
        with pytest.raises(Refused, match="only a dead letter can be purged"):
            await request.purge()
        assert [event.type for event in await events_of(engine, request.id)] == [
            f"{FLOW}.RequestCreated.v1"
        ]


async def _while_time_passes(gesta, awaitable):
    """The jitter between two tries is slept on the test's clock."""
    deciding = asyncio.ensure_future(awaitable)
    while not deciding.done():
        await let_run(gesta)
        gesta.advance(0.02)
    return await deciding
