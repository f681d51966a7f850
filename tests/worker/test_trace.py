"""Changes that need attention leave one log line and one count; attempts are recorded."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Personal,
    Rejected,
    Retry,
    Unknown,
    flow,
)
from gesta.admin.representations import attempt_representations
from gesta.domain.outcome import ENCRYPTED_TEXT
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows import webhook
from gesta.flows.deferrals import CredentialRefused
from gesta.outbound.http import HttpResponse
from gesta.sandbox import SandboxTransport
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    events_of,
    fields,
    let_run,
    note_flow,
    pass_time,
    result,
)

ADDRESS = "https://provider.example.com/v1"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Log lines about requests that were written so far, by their event."""
    caplog.set_level(logging.INFO, "gesta")

    def read(request_id: str) -> list[str]:
        found = [
            msgspec.json.decode(record.getMessage())
            for record in caplog.records
            if record.name == "gesta"
        ]
        return [
            line["event"]
            for line in found
            if line.get("requestId") == request_id and line["level"] == "warning"
        ]

    return read


def transitions(engine: Engine) -> dict[tuple[str, str], int]:
    """Flow and status → how many, from what Prometheus would read."""
    counts: Counter[tuple[str, str]] = Counter()
    for family in engine.pipeline.telemetry.registry.collect():
        if family.name == "gesta_requests":
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    counts[sample.labels["flow"], sample.labels["status"]] += int(sample.value)
    return dict(counts)


async def test_requests_left_unknown_by_a_kill_are_logged_and_counted_once_each(gesta, lines):
    engine = engine_of(Provider(*[Gate()] * 8), on_unknown="manual")
    await engine.start()
    requests = [await engine.submit(Note(str(number))) for number in range(8)]
    await let_run(gesta)
    await die(engine)
    async with engine_of(Provider(), on_unknown="manual") as after:
        await pass_time(gesta, 40)
        for one in requests:
            assert (await (await after.request(one.id)).view()).state.status == "unknown"
            # 8 of 8 requests left `unknown` by a kill once produced neither.
            assert lines(one.id) == ["a person has to decide"]
        assert transitions(after) == {(FLOW, "unknown"): 8}


async def test_failed_and_unknown_are_logged_and_counted_once_each(gesta, lines):
    provider = Provider(Rejected("bad_address"), Unknown("no_answer"), Retry("busy"), Retry("busy"))
    retry = RetryPolicy(attempts=2)
    async with engine_of(provider, on_unknown="manual", retry=retry) as engine:
        requests = []
        for text in ("rejected", "unknown", "used up"):
            requests.append(await engine.submit(Note(text)))
            await gesta.settle()
        assert [lines(one.id) for one in requests] == [
            ["request failed"],
            ["a person has to decide"],
            ["request failed"],
        ]
        assert transitions(engine) == {(FLOW, "failed"): 2, (FLOW, "unknown"): 1}


async def test_a_request_that_expires_while_it_waits_is_logged_and_counted_by_the_sweeper(
    gesta, lines
):
    async with engine_of(Provider()) as engine:
        await engine.admin.pause(flow=FLOW)
        request = await engine.submit(Note(), ttl=timedelta(minutes=1))
        await pass_time(gesta, 70)
        assert lines(request.id) == ["request held", "request expired"]
        assert transitions(engine) == {(FLOW, "held"): 1, (FLOW, "expired"): 1}


async def test_holding_and_releasing_are_in_the_requests_timeline(gesta, lines):
    async with engine_of(Provider()) as engine:
        await engine.admin.pause(flow=FLOW, reason="maintenance")
        request = await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.resume(flow=FLOW)
        await pass_time(gesta, 1)
        assert isinstance(await result(request), Done)
        updates = [
            fields(one.data)
            for one in await events_of(engine, request.id)
            if "RequestUpdated" in one.type
        ]
        assert updates == [
            {"change": "held", "heldBy": f"flow:{FLOW}"},
            {"change": "released"},
        ]
        assert lines(request.id) == ["request held"]


async def test_a_refused_credential_holds_on_record_also_where_attempts_are_journalled(gesta):
    refused = CredentialRefused("shop.account/main", "invalid_auth")
    declared = note_flow(Provider(refused), journal=True, credential=lambda _: "shop.account/main")
    async with Engine(URL, flows=[declared]) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        state = (await request.view()).state
        assert (state.held, state.started) == ("tenant:default refused:shop.account/main", None)
        await engine.admin.resume(tenant="default", credential="shop.account/main")
        await pass_time(gesta, 1)
        assert isinstance(await result(request), Done)
        assert (await request.view()).state.held == ""


async def test_an_endpoint_that_the_engine_disables_is_logged_and_counted(gesta, caplog):
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        secret = "whsec_" + "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
        await engine.admin.put_config(
            "webhook.endpoint", "erp", {"url": "https://erp.example.com/", "secret": secret}
        )
        gesta.sandbox.webhook.next(status=410)
        request = await engine.submit(webhook.Message("order.paid", {}, endpoint="erp"))
        await gesta.settle(days=0)
        assert (await request.view()).state.reason == "endpoint_gone"
        assert transitions(engine)["webhook.endpoint", "disabled"] == 1
    assert sum("config disabled" in one.getMessage() for one in caplog.records) == 1


class Order(Payload, frozen=True):
    email: Personal[str] = ""


def answers(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Let the provider answer 422 with this body."""

    async def send(*_: object) -> HttpResponse:
        return HttpResponse(422, body=body)

    monkeypatch.setattr(SandboxTransport, "send", send)


def calling(**options: Any) -> Flow:
    @flow(FLOW, on_unknown="manual", effects="attempt", retry=RetryPolicy(attempts=2), **options)
    async def call(_: Order, attempt: Attempt) -> Outcome:
        await attempt.http.post(ADDRESS)
        return Done()

    return call


async def test_an_attempt_records_start_duration_worker_host_status_code_and_answer(
    gesta, monkeypatch
):
    answers(monkeypatch, b'{"error": {"code": "bad_amount"}, "hint": "ann@example.com"}')
    async with Engine(URL, flows=[calling()]) as engine:
        request = await engine.submit(Order())
        await gesta.settle(days=0)
        (one,) = attempt_representations(await engine.history(request.id))
        owner = engine.pipeline.owner
    assert (one.http_status, one.provider_code) == (422, "bad_amount")
    assert f"{one.host}:{one.worker}" == owner
    assert one.started_at is not None
    assert one.duration_ms is not None
    assert one.answer is not None
    assert "bad_amount" in one.answer
    assert "ann@example.com" not in one.answer, "redacted"


async def test_the_answer_to_a_request_about_a_person_is_stored_encrypted_and_is_erased(
    gesta, monkeypatch
):
    answers(monkeypatch, b"no such customer: Ann of Main Street")
    async with Engine(URL, flows=[calling()]) as engine:
        request = await engine.submit(Order("ann@example.com"))
        await gesta.settle(days=0)
        stored = fields((await events_of(engine, request.id))[-1].data)
        assert ENCRYPTED_TEXT in stored["answer"]
        assert "Main Street" not in str(stored)
        (one,) = attempt_representations(await engine.history(request.id))
        assert "Main Street" in str(one.answer)
        await engine.admin.erase("ann@example.com")
        (one,) = attempt_representations(await engine.history(request.id))
        assert "Main Street" not in str(one.answer)


async def test_an_exception_before_anything_was_sent_is_a_retry_with_its_traceback(gesta):
    tries: list[int] = []

    @flow(FLOW, on_unknown="manual", effects="attempt", retry=RetryPolicy(attempts=3))
    async def call(_: Note, attempt: Attempt) -> Outcome:
        tries.append(attempt.number)
        if attempt.number == 1:
            raise KeyError("before the call")
        await attempt.http.post(ADDRESS)
        return Done("sent")

    async with Engine(URL, flows=[call]) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        assert await result(request) == Done("sent")
        first, _ = attempt_representations(await engine.history(request.id))
    assert (tries, first.outcome, first.reason) == ([1, 2], "retry", "unexpected_error")
    assert first.traceback is not None
    assert "test_trace.py" in first.traceback
    assert "KeyError" in first.traceback


@pytest.mark.parametrize(("effects", "sends"), [("attempt", True), ("any", False)])
async def test_an_exception_is_unknown_after_a_send_or_where_effects_are_not_declared(
    gesta, effects, sends
):
    @flow(FLOW, on_unknown="manual", effects=effects)
    async def call(_: Note, attempt: Attempt) -> Outcome:
        if sends:
            await attempt.http.post(ADDRESS)
        raise KeyError("a bug")

    async with Engine(URL, flows=[call]) as engine:
        request = await engine.submit(Note())
        await gesta.settle(days=0)
        state = (await request.view()).state
    assert (state.status, state.reason) == ("unknown", "unexpected_error")
