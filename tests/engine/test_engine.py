from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    GestaError,
    InvalidRequest,
    NotFound,
    Outcome,
    OutcomeTimeout,
    Payload,
    Refused,
    Rejected,
    Retry,
    RetryPolicy,
    Unknown,
    flow,
)
from gesta.errors import BadFlow, StoreError
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    append_raw,
    engine_of,
    events_of,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)


async def test_submit_answers_with_a_handle_on_the_request(gesta):
    async with engine_of(Provider()) as engine:
        request = await engine.submit(Note(), key="k-1", tenant="acme")
        assert (request.flow, request.tenant, request.verdict) == (FLOW, "acme", "created")
        assert repr(request) == f"Request(test.note {request.id} created)"


@pytest.mark.parametrize("name", ["source", "causation_id", "tenannt"])
async def test_submit_takes_no_option_that_is_not_a_callers_to_say(gesta, name):
    async with engine_of(Provider()) as engine:
        options: dict[str, Any] = {name: "me"}
        with pytest.raises(TypeError, match="submit"):
            await engine.submit(Note(), **options)


async def test_an_accepted_request_is_found_before_it_is_projected(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        request = await engine.submit(Note("hi"))
        view = await engine.get(request.id)
        assert (view.state.status, view.payload) == ("queued", b'{"text":"hi"}')
        assert await (await engine.request(request.id)).status() == "queued"


async def test_a_request_of_another_tenant_is_not_found(gesta):
    async with engine_of(Provider()) as engine:
        request = await engine.submit(Note(), tenant="acme")
        await let_run(gesta)
        for ask in (engine.get, engine.request, engine.history):
            with pytest.raises(NotFound):
                await ask(request.id)
            with pytest.raises(NotFound):
                await ask("no-such-id", tenant="acme")
        assert await engine.find() == []
        assert [view.state.id for view in await engine.find(tenant="acme")] == [request.id]


async def test_a_waiting_caller_gets_the_outcome_as_soon_as_it_is_known(gesta):
    gate = Gate(Done(id="p-1"))
    async with engine_of(Provider(gate)) as engine:
        request = await engine.submit(Note())
        waiting = [asyncio.ensure_future(request.outcome(timeout=60)) for _ in range(3)]
        await let_run(gesta)
        assert not any(one.done() for one in waiting)
        gate.opened.set()
        assert await asyncio.gather(*waiting) == [Done("p-1")] * 3
        assert engine.pipeline.waiters._waiting == {}


async def test_a_timeout_of_outcome_raises_and_the_request_goes_on(gesta):
    gate = Gate()
    async with engine_of(Provider(gate)) as engine:
        request = await engine.submit(Note())
        waiting = asyncio.ensure_future(request.outcome(timeout=10))
        await pass_time(gesta, 10.25)
        with pytest.raises(
            OutcomeTimeout,
            match="no outcome after 10 s: its first attempt is running and has not ended",
        ):
            await waiting
        gate.opened.set()
        await let_run(gesta)
        assert await request.outcome(timeout=0) == Done("through the gate")


async def test_a_waiting_caller_gets_the_error_of_a_store_that_cannot_be_read(gesta, ports):
    async with engine_of(Provider(Gate())) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        ports.read_model.fail("get", StoreError("out of reach"))
        with pytest.raises(StoreError, match="out of reach"):
            await request.outcome(timeout=60)


async def test_waiting_ends_for_a_manual_unknown_but_not_for_one_that_is_resent(gesta):
    async with engine_of(Provider(TimeoutError()), on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        outcome = await request.outcome(timeout=0)
        assert isinstance(outcome, Unknown)
        # The log names the line, so that the author of the executor finds it.
        assert re.fullmatch(r"TimeoutError: {1,2}\(at world\.py:\d+\)", outcome.detail)
    async with engine_of(Provider(TimeoutError()), "memory:other") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        with pytest.raises(OutcomeTimeout):
            await request.outcome(timeout=0)


async def test_the_history_has_every_event_with_its_metadata(gesta):
    async with engine_of(Provider(Retry("busy"))) as engine:
        request = await engine.submit(Note(), correlation_id="c-1")
        await gesta.settle()
        history = await engine.history(request.id)
    assert [name for name, _, _ in history] == [
        f"{FLOW}.RequestCreated.v1",
        f"{FLOW}.AttemptFailed.v1",
        f"{FLOW}.Completed.v1",
    ]
    assert {meta.correlation_id for _, _, meta in history} == {"c-1"}


async def test_requests_are_listed_newest_first_and_page_by_page(gesta):
    async with engine_of(Provider()) as engine:
        ids = [(await engine.submit(Note(str(n)))).id for n in range(5)]
        await let_run(gesta)
        first = await engine.find(limit=2)
        second = await engine.find(limit=2, before_id=first[-1].state.id)
        assert [view.state.id for view in (*first, *second)] == ids[:0:-1]


async def test_a_waiting_attempt_can_be_had_now_under_the_same_key(gesta):
    provider = Provider(Retry("busy", after_seconds=3_600))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await request.retry() == "queued"
        await let_run(gesta)
        assert await request.status() == "completed"
        with pytest.raises(Refused) as refused:
            await request.retry()
        assert refused.value.code == "not_waiting"
    assert len(set(provider.keys)) == 1
    assert len(provider.calls) == 2


async def test_a_cancelled_request_is_not_executed(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        later = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(minutes=5)
        request = await engine.submit(Note(), deliver_at=later)
        await let_run(gesta)
        assert await request.cancel() == "cancelled"
        assert await request.cancel() == "cancelled"
        await gesta.settle()
        assert await result(request) == Rejected("cancelled")
        assert await engine.pipeline.environment.stores.live_jobs([f"{request.id}-1"]) == set()
    assert provider.calls == []


async def test_a_dead_letter_has_its_failure(gesta):
    async with engine_of(
        Provider(Rejected("bad_address", "answered 404 for ann@example.com"))
    ) as engine:
        request = await engine.submit(Note("a secret text"), key="k-1")
        await let_run(gesta)
        (letter,) = await engine.admin.dead_letters()
        # original ref, errorInfo, dlqMetadata, lastFailureReason; here the request itself with
        # its `failure`.
        shown = msgspec.to_builtins(letter)
        assert shown["failure"] == {
            "reason": "bad_address",
            "detail": "answered 404 for [email]",
            "at": "2027-01-15T08:00:00.000Z",
            "attemptCount": 1,
            "keptUntil": "2027-01-29T08:00:00.000Z",
        }
        original = {
            name: shown[name] for name in ("id", "flow", "tenant", "version", "key", "test")
        }
        assert original == {
            "id": request.id,
            "flow": FLOW,
            "tenant": "default",
            "version": 2,
            "key": "k-1",
            "test": False,
        }
        assert "secret text" not in repr(letter)


async def test_dead_letters_are_redriven_purged_and_forgotten_after_their_time(gesta):
    provider = Provider(*[Rejected("no")] * 3)
    async with engine_of(provider) as engine:
        redriven, purged, old = [await engine.submit(Note()) for _ in range(3)]
        await let_run(gesta)
        assert len(await engine.admin.dead_letters()) == 3
        letter = await engine.admin.dead_letter(redriven.id)
        await engine.admin.request(letter).redrive()
        await purged.purge()
        await let_run(gesta)
        assert [one.id for one in await engine.admin.dead_letters()] == [old.id]
        gesta.advance(14 * 86_400)
        await let_run(gesta)
        # gone from the list, still on record.
        assert await engine.admin.dead_letters() == []
        with pytest.raises(NotFound, match="dead letter"):
            await engine.admin.dead_letter(old.id)
        assert await old.status() == "failed"


async def test_a_redrive_has_a_fresh_budget_and_may_have_a_new_time_to_live(gesta):
    provider = Provider(*[Retry("busy")] * 4)
    async with engine_of(provider, retry=RetryPolicy(attempts=2)) as engine:
        request = await engine.submit(Note(), ttl=timedelta(hours=1))
        await gesta.settle()
        await request.redrive(ttl=timedelta(hours=2))
        await let_run(gesta)
        assert (await request.view()).state.expires_at == gesta.runtime.now_ms() + 7_200_000
        await gesta.settle()
        assert (await request.view()).state.attempts == 4


@pytest.mark.parametrize(
    ("decision", "name"),
    [
        ({"verb": "redrive", "ttl": timedelta(0)}, "ttl"),
        ({"verb": "redrive", "ttl": 60}, "ttl"),
        ({"verb": "redrive", "actor": "root"}, "actor"),
        ({"verb": "resolve", "result": "perhaps", "by": "ann", "evidence": "none"}, "result"),
        ({"verb": "resolve", "result": "executed", "by": 7, "evidence": "none"}, "by"),
        ({"verb": "resolve", "result": "executed", "by": "ann", "evidence": "\ud800"}, "evidence"),
    ],
)
async def test_a_decision_with_a_wrong_value_is_refused_and_not_recorded(gesta, decision, name):
    async with engine_of(Provider(TimeoutError()), on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        arguments: dict[str, Any] = dict(decision)
        with pytest.raises(InvalidRequest) as refusal:
            await getattr(request, arguments.pop("verb"))(**arguments)
        assert set(refusal.value.fields) == {name}
        assert await types_of(engine, request.id) == ["RequestCreated", "OutcomeUnknown"]


async def test_an_engine_that_only_queries_runs_no_component(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        request = await asking.submit(Note())
        await gesta.settle()
        assert await request.status() == "queued"
        assert not asking.pipeline.is_running
    assert provider.calls == []


async def test_an_engine_can_be_started_again_after_it_was_stopped(gesta):
    engine = engine_of(Provider())
    for _ in range(3):
        async with engine:
            request = await engine.submit(Note())
            await let_run(gesta)
            assert await request.status() == "completed"
        with pytest.raises(GestaError, match="not running"):
            await engine.submit(Note())
        with pytest.raises(GestaError, match=r"`async with engine:`, or `await engine.start\(\)`"):
            _ = engine.admin
    await engine.stop()


async def test_a_running_engine_is_not_started_twice(gesta):
    async with engine_of(Provider()) as engine:
        with pytest.raises(GestaError, match="already running"):
            await engine.start()


async def test_a_start_that_fails_can_be_tried_again(gesta, ports):
    engine = engine_of(Provider())
    from gesta.engine.environment import Wiring

    wire = Wiring.wire

    async def broken_once(settings):
        environment = await wire(settings)
        ports.vault.fail("put", StoreError("out of reach"))
        return environment

    Wiring.wire = staticmethod(broken_once)
    with pytest.raises(StoreError):
        await engine.start()
    Wiring.wire = wire
    async with engine:
        assert (await engine.submit(Note())).verdict == "created"


async def test_the_views_show_how_it_ended_when_the_engine_has_stopped(gesta):
    gate = Gate()
    async with engine_of(Provider(gate)) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        # The projector is busy elsewhere when the outcome comes.
        engine.pipeline.components.tasks["projector"].cancel()
        gate.opened.set()
        await let_run(gesta)
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as asking:
        assert [view.state.id for view in await asking.find(status="completed")] == [request.id]


async def test_stopping_at_any_moment_loses_nothing(gesta):
    for turns in range(40):
        provider, url = Provider(), f"memory:{turns}"
        engine = engine_of(provider, url)
        await engine.start()
        request = await engine.submit(Note())
        for _ in range(turns):
            await asyncio.sleep(0)
        await engine.stop()
        async with engine_of(provider, url) as engine:
            await gesta.settle()
            assert await (await engine.request(request.id)).status() == "completed", turns
            # Stopped in order, so nothing is unknown: one call, one attempt.
            assert await types_of(engine, request.id) == ["RequestCreated", "Completed"], turns
        assert len(provider.calls) == 1, turns


async def test_two_engines_on_one_store_share_the_work_and_execute_each_request_once(gesta):
    provider = Provider()
    async with (
        engine_of(provider, concurrency=2) as first,
        engine_of(provider, concurrency=2) as second,
    ):
        requests = [await (first if n % 2 else second).submit(Note(str(n))) for n in range(40)]
        await gesta.settle()
        assert {await (await first.request(one.id)).status() for one in requests} == {"completed"}
    assert sorted(note.text for note in provider.payloads) == sorted(str(n) for n in range(40))


def executor(**_: Any) -> Any:
    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        return Done()

    return execute


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: flow("receipt", on_unknown="manual")(executor()), "two or more parts"),
        (lambda: flow("billing.Receipt", on_unknown="manual")(executor()), "two or more parts"),
        (lambda: flow("a.b")(executor()), "choose on_unknown"),
        (
            lambda: flow("a.b", on_unknown="manual", effects=cast("Any", "all"))(executor()),
            "effects must be 'attempt' or 'any'",
        ),
        (
            lambda: flow("a.b", on_unknown="guess")(executor()),  # type: ignore[arg-type]
            "on_unknown must be",
        ),
        (lambda: flow("a.b", on_unknown="reconcile")(executor()), "needs reconcile="),
        (lambda: flow("a.b", on_unknown="manual", attempts=0)(executor()), "must be positive"),
        (
            lambda: flow("a.b", on_unknown="manual", timeout_seconds=0)(executor()),
            "must be positive",
        ),
        (
            lambda: flow("a.b", on_unknown="manual")(lambda *_: Done()),  # type: ignore[arg-type]
            "must be an async function",
        ),
        (lambda: Engine(URL, flows=[executor()]), "not a flow"),
        (
            lambda: Engine(URL, flows=[note_flow(Provider()), note_flow(Provider())]),
            "with this name is already declared",
        ),
        (
            lambda: Engine(
                URL,
                flows=[
                    flow("a.b", on_unknown="manual")(executor()),
                    flow("a.c", on_unknown="manual")(executor()),
                ],
            ),
            "'a.c': its payload type Note is that of 'a.b'.*take a subclass",
        ),
    ],
)
def test_a_wrong_declaration_of_a_flow_raises(declare, text):
    with pytest.raises(BadFlow, match=text):
        declare()


def test_the_error_of_a_flow_without_on_unknown_explains_each_choice_and_suggests_one():
    with pytest.raises(BadFlow) as error:
        flow("a.b")
    for part in (
        "'resend' tries again",
        "'reconcile' asks the provider",
        "'manual' stops until a person",
        "write on_unknown='resend', otherwise on_unknown='manual'",
    ):
        assert part in str(error.value)


def test_a_flow_of_the_user_retries_for_hours_by_default():
    retry = flow("a.b", on_unknown="manual")(executor()).rules.retry
    waits = [retry.delay_seconds(made, 0.5) or 0.0 for made in range(1, 15)]
    assert (retry.attempts, retry.delay_seconds(15, 0.5)) == (15, None)
    assert (waits[:3], waits[-1]) == ([1.0, 2.0, 4.0], 1800.0)
    assert 2 * 3600 < sum(waits) < 2.1 * 3600
    fewer = flow("a.b", on_unknown="manual", attempts=4)(executor()).rules.retry
    assert fewer == msgspec.structs.replace(retry, attempts=4)


def test_a_payload_must_be_annotated():
    async def unannotated(payload, attempt) -> Outcome:
        return Done()

    async def wrong(payload: dict[str, str], attempt: Attempt) -> Outcome:
        return Done()

    for execute in (unannotated, wrong):
        with pytest.raises(BadFlow, match="annotate"):
            flow("a.b", on_unknown="manual")(execute)


async def test_flows_are_declared_before_the_start(gesta):
    class Other(Payload, frozen=True):
        n: int = 0

    async with engine_of(Provider()) as engine:
        with pytest.raises(BadFlow, match="before the engine starts"):
            engine.add(Flow("test.other", Other, executor()))


async def test_a_poison_request_is_named_and_hides_no_other(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        poisoned, healthy = await engine.submit(Note()), await engine.submit(Note())
        await append_raw(engine, poisoned.id, 1, "AttemptFailed.v1", b'{"attempt":"first"}')
        with pytest.raises(GestaError, match=rf"{poisoned.id} version 2 cannot be read"):
            await engine.get(poisoned.id)
        assert (await engine.get(healthy.id)).state.status == "queued"
        assert len(await events_of(engine, poisoned.id)) == 2


def test_an_engine_does_not_load_what_only_some_engines_use():
    rare = (
        "cronsim",
        "gesta.flows.card",
        "gesta.flows.ticket",
        "gesta.intake.adoption",
        "gesta.intake.inbound.boundary",
        "gesta.payments",
        "gesta.stores.separate_queue",
        "gesta.stores.separate_views",
        "gesta.subscriptions.thread_replies",
        "zoneinfo",
    )
    script = f"import sys, gesta.engine.engine; sys.exit(str(sys.modules.keys() & {rare}))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stderr.strip() == "set()"
