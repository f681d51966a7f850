"""Executors that lie, raise or do not end, poison on the way, a store that fails at any call:
nothing is lost, nothing is called twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gesta import Done, Engine, Flow, Rejected, Retry, Unknown
from gesta.domain.codec import encode
from gesta.domain.events import Meta
from gesta.domain.ids import event_id
from gesta.errors import StoreFull
from gesta.flows.flow import ConfigBody
from gesta.ports.event_store import Append, NewEvent, Stale
from gesta.ports.job_queue import Job
from gesta.ports.transactions import Recording
from gesta.runtime.clock import sleep
from gesta.tenants.config import PUT
from tests.world import (
    FLOW,
    URL,
    WORKER_LOST,
    Deaf,
    Gate,
    Note,
    Provider,
    append_raw,
    engine_of,
    events_of,
    fields,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)


def answering(answer: Any) -> Any:
    async def execute(payload: Note, attempt: object) -> Any:
        return answer

    return execute


@pytest.mark.parametrize("answer", [None, "ok", True, {"id": 1}, Done, [Done()], object()])
async def test_an_answer_that_is_no_outcome_is_unknown_never_done(gesta, answer):
    async with engine_of(Provider(answering(answer)), on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        outcome = await result(request)
        assert isinstance(outcome, Unknown)
        assert outcome.reason == "unexpected_error"
        assert outcome.detail == f"the executor returned {type(answer).__name__}, not an Outcome"


@pytest.mark.parametrize(
    ("answer", "stored"),
    [
        (Done(id=731), Done("731")),  # type: ignore[arg-type]
        (Done(id=None, target=5), Done("", "5")),  # type: ignore[arg-type]
        (Done(id="p-1", detail=None), Done("p-1")),  # type: ignore[arg-type]
        (Done(id="a\ud800b"), Done("a?b")),
        (Done(id="x" * 5_000), Done("x" * 500)),
        (
            Rejected(404, {"error": "gone"}),  # type: ignore[arg-type]
            Rejected("404", "{'error': 'gone'}"),
        ),
        (
            Rejected("no", "sent to ann@example.com with xoxb-1234567890-abc"),
            Rejected("no", "sent to [email] with [token]"),
        ),
        (Unknown(None, None, "later"), Unknown("")),  # type: ignore[arg-type]
    ],
)
async def test_an_outcome_with_wrong_types_is_stored_so_that_it_can_be_read(gesta, answer, stored):
    async with engine_of(Provider(answer), on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await result(request) == stored
        assert await engine.admin.quarantined() == []
        assert len(await engine.history(request.id)) == 2


@pytest.mark.parametrize("after", ["soon", None, float("nan"), float("inf"), -5, True])
async def test_a_retry_with_an_invalid_delay_is_still_a_retry(gesta, after):
    provider = Provider(Retry("busy", after_seconds=after))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle(days=400)
        assert await request.status() == "completed"
    assert len(provider.calls) == 2


class Strange(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("token=abcdefgh"),
        Strange("x"),
        SystemExit(1),
        asyncio.CancelledError(),
        ExceptionGroup("g", [ValueError()]),
    ],
)
async def test_whatever_an_executor_raises_is_unknown_and_frees_its_slot(gesta, error):
    provider = Provider(error)
    async with engine_of(provider, on_unknown="manual", concurrency=1) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        outcome = await result(request)
        assert isinstance(outcome, Unknown)
        assert outcome.reason == "unexpected_error"
        assert "abcdefgh" not in outcome.detail
        following = await engine.submit(Note())
        await let_run(gesta)
        assert await following.status() == "completed"
        assert engine.pipeline.pool.lease.held == 0


async def test_an_executor_that_does_not_end_keeps_neither_its_slot_nor_its_request(gesta):
    deaf = Deaf(Done(id="after all"))
    provider = Provider(deaf)
    async with engine_of(
        provider, on_unknown="manual", timeout_seconds=10, concurrency=1
    ) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 16)
        assert await result(request) == Unknown(
            "timeout", "the executor was cancelled and does not end"
        )
        following = await engine.submit(Note())
        await let_run(gesta)
        assert await following.status() == "completed"
        # Should it end one day, what it learned still counts.
        deaf.opened.set()
        await pass_time(gesta, 1)
        assert await result(request) == Done("after all")
        assert engine.pipeline.pool.lease.held == 0


async def test_a_poison_stream_does_not_take_the_others_of_its_batch_with_it(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        requests = [await asking.submit(Note()) for _ in range(6)]
    async with engine_of(provider) as engine:
        # The event comes after the view was made and the job was put, and before the job is taken.
        await engine.pipeline.projector.step()
        await append_raw(engine, requests[2].id, 1, "AttemptFailed.v1", b'{"attempt":"first"}')
        await pass_time(gesta, 2)
        healthy = [request for request in requests if request is not requests[2]]
        assert {(await engine.get(request.id)).state.status for request in healthy} == {"completed"}
        quarantined = await engine.admin.quarantined()
        assert {(one.what, one.stream) for one in quarantined} >= {("job", f"{requests[2].id}-1")}
        assert engine.pipeline.pool.lease.held == 0
    assert len(provider.calls) == 5


class Old(ConfigBody, frozen=True):
    colour: str


class New(ConfigBody, frozen=True):
    colour: int


async def test_stored_config_that_no_longer_fits_stops_no_job_that_does_not_need_it(gesta):
    provider = Provider()
    async with Engine(
        URL, flows=[Flow(FLOW, Note, provider.execute, config={"test.paint": Old})], work=False
    ) as old:
        await old.admin.put_config("test.paint", "wall", {"colour": "green"})
    async with Engine(
        URL, flows=[Flow(FLOW, Note, provider.execute, config={"test.paint": New})]
    ) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 1)
        assert await request.status() == "completed"


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"kind":1,"code":"x","body":{}}'])
async def test_a_poison_config_event_stops_no_job(gesta, data):
    provider = Provider()
    async with engine_of(provider) as engine:
        meta = encode(Meta("default", "config", "config-default", 1, "c", "c"))
        event = NewEvent(event_id(engine.pipeline.process.ids.new_bytes(), 0), PUT, data, meta)
        await engine.pipeline.environment.stores.events.append(
            [Append("config-default", 0, (event,))]
        )
        request = await engine.submit(Note())
        await pass_time(gesta, 1)
        assert await request.status() == "completed"
        assert [
            (one.what, one.stream, one.version) for one in await engine.admin.quarantined()
        ] == [("event", "config-default", 1)]


@pytest.mark.parametrize(
    ("port", "verb", "answer_lost"),
    [
        ("queue", "take", False),
        ("read_model", "get", False),
        ("events", "read", False),
        ("transactions", "record", False),
        ("transactions", "record", True),
        ("transactions", "project", False),
        ("transactions", "project", True),
    ],
)
async def test_a_store_that_fails_at_one_call_delays_and_repeats_nothing(
    gesta, ports, port, verb, answer_lost
):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        getattr(ports, port).fail(verb, times=3, answer_lost=answer_lost)
        await engine.submit(Note())
        await pass_time(gesta, 6)
        (view,) = await engine.find()
        # S1-6: the append is tried again under the same event ids; it never becomes a failure.
        assert await types_of(engine, view.state.id) == ["RequestCreated", "Completed"]
        assert engine.pipeline.pool.lease.held == 0
    assert len(provider.calls) == 1


async def test_an_outcome_learned_while_the_disk_is_full_is_recorded_when_there_is_room(
    gesta, ports
):
    provider = Provider(Done(id="known only to us"))
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)
        ports.transactions.fail(
            "record", StoreFull("gesta.db", "database or disk is full"), times=30
        )
        request = await engine.submit(Note())
        await pass_time(gesta, 20)
        assert await types_of(engine, request.id) == ["RequestCreated"]
        await pass_time(gesta, 15)
        # S1-6: neither forgotten nor executed again, although many leases have passed.
        assert await result(request) == Done("known only to us")
    assert len(provider.calls) == 1


async def test_an_outcome_is_recorded_however_often_the_stream_moves_meanwhile(gesta, ports):
    provider = Provider(Done(id="p-1"))
    moves = iter(range(9))

    async def moving(original, entries):
        if (move := next(moves, None)) is not None:
            if move == 3:
                # And what stands there cannot be read for a while.
                ports.events.fail("read", times=2)
            return [Recording(Stale(7), None) for _ in entries]
        return await original(entries)

    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)
        ports.transactions.replace("record", moving)
        request = await engine.submit(Note())
        await pass_time(gesta, 5, 0.01)
        assert await result(request) == Done("p-1")
        assert await engine.admin.quarantined() == []
    assert len(provider.calls) == 1


async def test_a_poison_job_is_quarantined_even_when_the_store_fails_meanwhile(gesta, ports):
    provider = Provider()
    async with engine_of(provider, concurrency=1) as engine:
        request = await engine.submit(Note())
        await engine.pipeline.projector.step()
        await append_raw(engine, request.id, 1, "AttemptFailed.v1", b'{"attempt":"first"}')
        ports.read_model.fail("save", times=2)
        ports.queue.fail("settle", times=2)
        await pass_time(gesta, 8)
        assert [one.stream for one in await engine.admin.quarantined() if one.what == "job"] == [
            f"{request.id}-1"
        ]
        assert await engine.pipeline.environment.stores.live_jobs([f"{request.id}-1"]) == set()
        assert engine.pipeline.pool.lease.held == 0


CREATED = b'{"id":"%s","flow":"test.note","payload":{"text":"late"}}'


async def test_a_pointer_that_is_ahead_of_its_request_waits_for_it(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        request_id = engine.pipeline.process.ids.new()
        await engine.pipeline.environment.stores.queue.put(
            [Job(f"{request_id}-1", "default", FLOW, request_id, 1)]
        )
        await pass_time(gesta, 1)
        await append_raw(
            engine, request_id, 0, "RequestCreated.v1", CREATED.replace(b"%s", request_id.encode())
        )
        await pass_time(gesta, 2)
        # S0-26: no view and no event yet is a reason to look again, not to be done with it.
        assert (await engine.get(request_id)).state.status == "completed"
        assert await engine.admin.quarantined() == []
        assert engine.pipeline.admission._missing == {}, "nothing is remembered of what was found"
    assert len(provider.calls) == 1


async def test_a_pointer_to_a_request_that_never_comes_is_quarantined_after_five_looks(
    gesta, ports
):
    looks = 0

    async def count_looks(original, streams):
        nonlocal looks
        looks += any(stream.startswith(FLOW) for stream, _ in streams)
        return await original(streams)

    async with engine_of(Provider()) as engine:
        ports.events.replace("read", count_looks)
        request_id = engine.pipeline.process.ids.new()
        await engine.pipeline.environment.stores.queue.put(
            [Job(f"{request_id}-1", "default", FLOW, request_id, 1)]
        )
        await pass_time(gesta, 10)
        (quarantined,) = await engine.admin.quarantined()
        assert (quarantined.what, quarantined.stream, quarantined.error) == (
            "job",
            f"{request_id}-1",
            "request_not_found",
        )  # S0-26
        assert (
            engine.pipeline.telemetry.registry.get_sample_value(
                "gesta_quarantined_total", {"what": "job"}
            )
            == 1
        )
    assert looks == 5


async def test_an_attempt_is_journalled_before_the_call_where_the_flow_asks_for_it(gesta):
    seen = []

    async def look(payload: Note, attempt: Any) -> Done:
        seen.extend(await types_of(engine, attempt.request_id))
        return Done()

    provider = Provider(look)
    async with engine_of(provider, on_unknown="manual", journal=True) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "AttemptStarted",
            "Completed",
        ]
        started = (await events_of(engine, request.id))[1]
        assert fields(started.data) == {"attempt": 1, "key": f"default:{request.id}:send:1"}
    assert seen == ["RequestCreated", "AttemptStarted"]


async def test_only_the_winner_of_the_journal_calls(gesta, ports):
    provider = Provider()
    async with engine_of(provider, on_unknown="manual", journal=True) as engine:
        await let_run(gesta)

        async def another_was_faster(original, entries):
            ports.transactions.heal()
            await append_raw(engine, request.id, 1, "AttemptStarted.v1", b'{"attempt":1,"key":"k"}')
            return await original(entries)

        ports.transactions.replace("record", another_was_faster)
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert provider.calls == []
        # R1-21: begun and not ended: unknown, so the flow's policy decides.
        assert await result(request) == Unknown("lease_lost", WORKER_LOST)


async def test_a_journal_that_took_longer_than_the_lease_makes_no_call(gesta, ports):
    provider = Provider()
    async with engine_of(provider, on_unknown="manual", journal=True) as engine:
        await let_run(gesta)

        async def slow(original, entries):
            ports.transactions.heal()
            await sleep(gesta.runtime, 3.25)
            return await original(entries)

        ports.queue.fail("extend", times=5)
        ports.transactions.replace("record", slow)
        request = await engine.submit(Note())
        await pass_time(gesta, 10)
        # The journal says that an attempt began, and its end that nothing was called.
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "AttemptStarted",
            "AttemptFailed",
            "AttemptStarted",
            "Completed",
        ]
    assert len(provider.calls) == 1


async def test_a_call_back_that_met_a_running_attempt_holds_after_its_failure(gesta, ports):
    gate = Gate(Retry("busy"))
    provider = Provider(gate)
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        first = True

        async def attempt_ends_meanwhile(original, entries):
            nonlocal first
            answer = await original(entries)
            if first:
                # It sees that an attempt runs; before the cancellation is recorded, the attempt has
                # failed.
                first = False
                gate.opened.set()
                await asyncio.sleep(0.01)
            return answer

        ports.transactions.replace("record", attempt_ends_meanwhile)
        await request.cancel()
        await gesta.settle()
        assert await result(request) == Rejected("cancelled")
    assert len(provider.calls) == 1


async def test_a_second_cut_does_not_extend_the_grace_period_of_an_executor(gesta, ports):
    deaf = Deaf()
    async with engine_of(
        Provider(deaf), on_unknown="manual", timeout_seconds=10, concurrency=1
    ) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 11)
        following = await engine.submit(Note())
        # The lease is lost between the first cut and the end of its grace period.
        ports.queue.fail("extend", times=100)
        await pass_time(gesta, 3.5)
        ports.queue.heal()
        await pass_time(gesta, 1.5)
        status = await following.status()
        deaf.opened.set()
    assert status == "completed"
