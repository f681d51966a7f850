"""One attempt, safely: the guard, the call, the outcome, the retry.

What dies or lies is in test_worker_deaths.py and test_worker_errors.py.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import pytest

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Rejected,
    Retry,
    RetryPolicy,
    Unknown,
    flow,
)
from gesta.domain.commands import Rules
from gesta.flows import webhook
from gesta.flows.flow import DEFAULT_RETRY, ConfigBody, Secret
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    engine_of,
    events_of,
    fields,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)


async def test_a_request_goes_through_the_whole_pipeline(gesta):
    provider = Provider(Done(id="p-1"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note("hi"))
        await gesta.settle()
        # R1-1: create → event → projector → executor → outcome event → projector.
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]
        assert [view.state.status for view in await engine.find()] == ["completed"]
        assert await result(request) == Done("p-1")
    assert provider.payloads == [Note("hi")]


async def test_the_executor_is_given_its_payload_a_key_and_the_attempt(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        request = await engine.submit(Note("hi"), tenant="acme", correlation_id="c-1")
        await gesta.settle()
    (attempt,) = provider.calls
    # R1-24, R1-34, R1-8
    assert attempt.key == f"acme:{request.id}:send:1"
    assert (attempt.tenant, attempt.flow, attempt.request_id, attempt.number) == (
        "acme",
        FLOW,
        request.id,
        1,
    )
    assert attempt.correlation_id == "c-1"
    assert provider.payloads == [Note("hi")]  # R1-51: builds the payload


async def test_the_key_stays_the_same_over_retries_and_unknown_outcomes(gesta):
    provider = Provider(Retry("busy"), TimeoutError(), Retry("busy"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        assert await request.status() == "completed"
    assert provider.keys == [f"default:{request.id}:send:1"] * 4  # R1-34
    assert [attempt.number for attempt in provider.calls] == [1, 2, 3, 4]


async def test_only_a_redrive_after_a_sure_failure_changes_the_key(gesta):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await request.redrive()
        await gesta.settle()
    assert provider.keys == [f"default:{request.id}:send:1", f"default:{request.id}:send:2"]


class Account(ConfigBody, frozen=True):
    address: str
    token: Secret[Annotated[str, msgspec.Meta(max_length=50)]]


class Letter(Payload, frozen=True):
    account: str


async def test_target_and_credentials_come_from_config_when_the_attempt_begins(gesta):
    used: list[tuple[str, list[str]]] = []

    async def execute(payload: Letter, attempt: Attempt) -> Outcome:
        entity = attempt.config.get("test.account", payload.account)
        assert entity is not None
        assert isinstance(entity.body, Account)
        used.append(
            (
                entity.body.address,
                await attempt.config.secrets("test.account", payload.account, "token"),
            )
        )
        return Done()

    letters = Flow("test.letter", Letter, execute, config={"test.account": Account})
    async with Engine(URL, flows=[letters]) as engine:
        await engine.admin.put_config("test.account", "main", {"address": "box 1", "token": "t-1"})
        await engine.submit(Letter("main"))
        await gesta.settle()
    assert used == [("box 1", ["t-1"])]  # R1-8, R1-42, R1-51


async def test_a_retry_waits_for_the_backoff_and_stops_at_the_last_attempt(gesta):
    provider = Provider(*[Retry("busy")] * 9)
    async with engine_of(provider, retry=RetryPolicy(attempts=4)) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        assert await result(request) == Rejected("max_attempts_exceeded", "busy")
        dues = [
            fields(one.data)["nextAttemptAt"] for one in (await events_of(engine, request.id))[1:4]
        ]
        # S1-9: a failed attempt with another to come is AttemptFailed; Failed is the end of the
        # intent.
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            *["AttemptFailed"] * 4,
            "Failed",
        ]
    started = [attempt.at_ms for attempt in provider.calls]
    ceilings_ms = (1_000, 2_000, 4_000)
    for before, due, after, ceiling in zip(started, dues, started[1:], ceilings_ms, strict=False):
        assert (
            before <= due <= before + ceiling
        )  # R1-27, S1-19: full jitter below a doubling ceiling
        assert due <= after <= due + 200
    assert len(started) == 4  # R1-27, R1-51


async def test_the_backoff_of_the_engine_is_at_most_a_minute(gesta):
    provider = Provider(*[Retry("busy")] * 20)
    async with engine_of(provider, retry=RetryPolicy(attempts=20)) as engine:
        await engine.submit(Note())
        await gesta.settle()
    started = [attempt.at_ms for attempt in provider.calls]
    gaps = [after - before for before, after in pairwise(started)]
    assert max(gaps) <= 60_200  # S1-19
    assert len(set(gaps)) > 10


async def test_retry_after_is_honoured_when_it_is_longer_than_the_backoff(gesta):
    provider = Provider(Retry("throttled", after_seconds=120))
    async with engine_of(provider) as engine:
        await engine.submit(Note())
        await gesta.settle()
    first, second = (attempt.at_ms for attempt in provider.calls)
    assert 120_000 <= second - first <= 120_500  # R1-27


@pytest.mark.parametrize("value", ["90", "Fri, 15 Jan 2027 08:01:30 GMT"])
async def test_a_receiver_may_say_retry_after_in_seconds_or_as_a_date(gesta, value):
    async with Engine(
        URL, flows=[webhook.flow(url="https://example.com/hook", secret="env:HOOK")]
    ) as engine:
        assert gesta.runtime.now_ms() == 1_800_000_000_000  # 2027-01-15T08:00:00Z
        gesta.sandbox.webhook.next(status=429, retry_after=value)
        request = await engine.submit(webhook.Message(type="a.b", data={}))
        await let_run(gesta)
        assert (await request.view()).state.due_at == 1_800_000_090_000  # R1-27, S1-19


async def test_a_refusal_is_not_retried(gesta):
    provider = Provider(Rejected("bad_address"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        assert await result(request) == Rejected("bad_address")
    assert len(provider.calls) == 1  # R1-27


async def test_a_terminal_outcome_ends_the_job_without_an_error(gesta, caplog):
    provider = Provider(Done(), Rejected("no"))
    async with engine_of(provider) as engine:
        requests = [await engine.submit(Note()) for _ in range(2)]
        await gesta.settle()
        jobs = [f"{request.id}-1" for request in requests]
        assert await engine.pipeline.environment.stores.live_jobs(jobs) == set()  # R1-26
        assert await engine.admin.quarantined() == []
    assert [
        record.message for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}
    ] == []


async def test_exactly_one_call_is_made_for_each_attempt(gesta):
    # no inner loop of a client multiplies the engine's own attempts.
    async with Engine(
        URL, flows=[webhook.flow(url="https://example.com/hook", secret="env:HOOK")]
    ) as engine:
        gesta.sandbox.webhook.next(status=500, times=3)
        request = await engine.submit(webhook.Message(type="a.b", data={}))
        await gesta.settle()
        assert (await request.view()).state.attempts == 4
    assert gesta.sandbox.webhook.calls == 4


async def test_waiting_for_a_retry_holds_no_slot(gesta):
    provider = Provider(Retry("busy", after_seconds=100))
    async with engine_of(provider, concurrency=1) as engine:
        waiting = await engine.submit(Note())
        await let_run(gesta)
        other = await engine.submit(Note())
        await let_run(gesta)
        assert await other.status() == "completed"
        assert await waiting.status() == "queued"


async def test_a_slow_call_holds_back_no_other(gesta):
    gate = Gate()
    provider = Provider(gate)
    async with engine_of(provider) as engine:
        slow = await engine.submit(Note())
        others = [await engine.submit(Note()) for _ in range(10)]
        await let_run(gesta)
        assert {await other.status() for other in others} == {"completed"}
        gate.opened.set()
        await let_run(gesta)
        assert await slow.status() == "completed"


async def test_no_more_calls_run_at_once_than_the_flow_allows(gesta):
    running = most = 0

    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Done()

    async with Engine(URL, flows=[Flow(FLOW, Note, execute, concurrency=3)]) as engine:
        requests = await asyncio.gather(*(engine.submit(Note()) for _ in range(20)))
        await gesta.settle()
        assert {await request.status() for request in requests} == {"completed"}
    assert most == 3


async def test_a_held_job_is_not_executed_by_another_worker(gesta):
    gate, provider = Gate(), Provider()
    provider.script.append(gate)
    async with engine_of(provider) as first, engine_of(provider) as second:
        request = await first.submit(Note())
        await let_run(gesta)
        await gate.reached.wait()
        # R1-21: the lease is the lock; it is renewed for as long as the call takes.
        await pass_time(gesta, 20)
        assert len(provider.calls) == 1
        gate.opened.set()
        await let_run(gesta)
        assert await (await second.request(request.id)).status() == "completed"


async def test_an_executor_is_cut_off_at_the_deadline_of_its_flow(gesta):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual", timeout_seconds=7) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 6.75)
        assert await request.status() == "queued"
        await pass_time(gesta, 1)
        assert await result(request) == Unknown("timeout", "no end after 7 s")


async def test_an_unknown_outcome_is_resent_under_the_same_key_or_asked_for_or_left_to_a_person(
    gesta,
):
    resent, asked, quarantined = (
        Provider(TimeoutError()),
        Provider(TimeoutError()),
        Provider(TimeoutError()),
    )
    ask = Provider(Done(id="found"))
    statuses = []
    worlds: list[tuple[Provider, dict[str, Any]]] = [
        (resent, {"on_unknown": "resend"}),
        (asked, {"on_unknown": "reconcile", "reconcile": ask}),
        (quarantined, {"on_unknown": "manual"}),
    ]
    for number, (provider, options) in enumerate(worlds):
        async with engine_of(provider, f"memory:{number}", **options) as engine:
            request = await engine.submit(Note())
            await gesta.settle()
            statuses.append((await request.status(), (await request.view()).state.provider_id))
    assert statuses == [("completed", "provider-2"), ("completed", "found"), ("unknown", "")]
    assert [len(provider.calls) for provider in (resent, asked, ask, quarantined)] == [2, 1, 1, 1]
    assert ask.keys == asked.keys


async def test_a_question_that_finds_no_trace_leads_to_a_new_attempt_under_the_same_key(gesta):
    provider, ask = Provider(TimeoutError()), Provider(Retry("not_found"))
    async with engine_of(provider, on_unknown="reconcile", reconcile=ask) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        assert await request.status() == "completed"
    assert len(set(provider.keys)) == 1
    assert (len(provider.calls), len(ask.calls)) == (2, 1)


async def test_a_stored_payload_that_no_longer_fits_its_type_fails_with_that_reason(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as old:
        request = await old.submit(Note())

    class NewNote(Payload, frozen=True):
        subject: str

    changed = Flow(FLOW, NewNote, provider.execute, target=lambda note: note.subject)
    async with Engine(URL, flows=[changed]) as engine:
        await gesta.settle()
        outcome = await result(await engine.request(request.id))
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "bad_payload"
    assert provider.calls == []


async def test_an_attempt_is_not_begun_when_its_time_to_live_is_over(gesta):
    from datetime import timedelta

    provider = Provider(Retry("busy", after_seconds=50))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note(), ttl=timedelta(seconds=40))
        await gesta.settle()
        # The next attempt would come too late: it ends at once instead of waiting in vain.
        assert await result(request) == Rejected("expired")
    assert len(provider.calls) == 1


async def test_nothing_is_sent_again_when_the_provider_has_forgotten_our_key(gesta):
    provider = Provider(TimeoutError())
    retry = RetryPolicy(base_seconds=60, cap_seconds=60)
    async with engine_of(provider, retry=retry, key_protects_seconds=100) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert (await request.view()).state.due_at is not None
    # The process was away for longer than the key protects.
    gesta.advance(200)
    async with engine_of(provider, retry=retry, key_protects_seconds=100) as engine:
        await gesta.settle()
        assert await result(await engine.request(request.id)) == Unknown("key_forgotten")
    assert len(provider.calls) == 1


@pytest.mark.parametrize(("policy", "durable"), [("resend", False), ("manual", True)])
async def test_a_take_is_on_disk_before_the_call_where_it_serves_as_the_journal(
    gesta, ports, policy, durable
):
    asked = []

    async def look(original, *args, **kwargs):
        asked.append(kwargs["durable"])
        return await original(*args, **kwargs)

    async with engine_of(Provider(), on_unknown=policy) as engine:
        ports.queue.replace("take", look)
        await engine.submit(Note())
        await let_run(gesta)
    assert set(asked) == {durable}


async def test_a_flow_declared_by_decorator_runs_like_any_other(gesta):
    @flow("test.decorated", on_unknown="resend", attempts=2)
    async def decorated(payload: Note, attempt: Attempt) -> Outcome:
        raise TimeoutError if attempt.number == 1 else RuntimeError(payload.text)

    async with Engine(URL, flows=[decorated]) as engine:
        request = await engine.submit(Note("secret text"))
        await gesta.settle()
        outcome: Any = await result(request)
        assert (type(outcome), outcome.reason) == (Unknown, "unexpected_error")
        assert decorated.rules == Rules(
            msgspec.structs.replace(DEFAULT_RETRY, attempts=2), "resend"
        )
