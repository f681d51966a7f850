"""notification.webhook: one signed POST for each attempt, and what its answer means."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from gesta import Engine
from gesta.domain.commands import RecordOutcome
from gesta.domain.events import Failed, OutcomeUnknown
from gesta.domain.ids import idempotency_key
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.state import State
from gesta.domain.stream_names import config_stream
from gesta.errors import BadConfig, BadFlow
from gesta.flows import webhook
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import ConfigMissing, CredentialRefused
from gesta.flows.flow import Flow
from gesta.flows.validation import decode_fields
from gesta.outbound.http import AttemptEnded, Http, HttpRequest
from gesta.outbound.rate_limits import Limits, Tokens
from gesta.runtime.clock import Ids, ManualRuntime
from gesta.sandbox import Effect, SandboxTransport
from gesta.stores.memory.token_buckets import MemoryTokenBuckets
from gesta.tenants.config import TenantConfig
from gesta.tenants.templates.renderer import InlineRenderer
from gesta.tenants.templates.templates import Templates

decide = NOTIFICATION.decide

URL = "https://hooks.shop.example/gesta"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_" + "A" * 32


@dataclass
class StoredConfig:
    """A fake of a tenant's config."""

    endpoints: dict[str, webhook.Endpoint] = field(default_factory=dict)
    clear: list[str] = field(default_factory=lambda: [SECRET])
    environment: dict[str, str] = field(default_factory=dict)

    def get(self, kind: str, code: str) -> Any:
        assert kind == "webhook.endpoint"
        return (
            SimpleNamespace(kind=kind, code=code, body=self.endpoints[code])
            if code in self.endpoints
            else None
        )

    async def secrets(self, kind: str, code: str, name: str) -> list[str]:
        assert (kind, name, code in self.endpoints) == ("webhook.endpoint", "secret", True)
        return self.clear

    async def disable(self, kind: str, code: str, reason: str) -> None:
        if code in self.endpoints:
            self.endpoints[code] = webhook.Endpoint(
                self.endpoints[code].url, "", disabled=True, disabled_reason=reason
            )

    def reference(self, text: str) -> str:
        return self.environment[text.removeprefix("env:")]


class Pipeline:
    """The executor with fakes of receiver and config, and a manual clock."""

    def __init__(self, flow: Flow | None = None, config: StoredConfig | None = None) -> None:
        self.runtime = ManualRuntime()
        self.transport = SandboxTransport(self.runtime)
        self.receiver = self.transport.sandbox.webhook
        self.receiver.secrets = [SECRET]
        self.config = config or StoredConfig()
        self.flow = flow or webhook.flow(URL, SECRET)
        self.request_id = Ids(self.runtime).new()
        self.intent = 1

    async def attempt(self, message: webhook.Message | None = None) -> Outcome:
        key = idempotency_key("shop.eu", self.request_id, "send", self.intent)
        http, config = Http(self.transport, self.runtime), cast("TenantConfig", self.config)
        now_ms = self.runtime.now_ms()
        limits, templates = (
            Limits(Tokens(MemoryTokenBuckets(self.runtime), self.runtime), "shop.eu"),
            Templates(InlineRenderer(), config),
        )
        attempt = Attempt(
            "shop.eu",
            webhook.NAME,
            self.request_id,
            1,
            key,
            self.request_id,
            now_ms,
            http,
            config,
            limits,
            templates,
        )
        try:
            return await self.flow.execute(
                message or webhook.Message("order.paid", {"order": 7}), attempt
            )
        except AttemptEnded as ended:
            return ended.outcome

    @property
    def effects(self) -> list[Effect]:
        return self.receiver.effects


async def test_a_message_is_signed_sent_and_done():
    pipeline = Pipeline()
    outcome = await pipeline.attempt()
    [effect] = pipeline.effects
    assert outcome == Done(effect.id)  # R1-8
    assert (effect.type, effect.data) == ("order.paid", {"order": 7})
    assert effect.headers["content-type"] == "application/json"


async def test_the_headers_are_those_of_the_standard():
    pipeline = Pipeline()
    pipeline.runtime.advance(1.9)
    await pipeline.attempt()
    headers = pipeline.effects[0].headers
    assert headers["webhook-timestamp"] == "1800000001"  # D-13: seconds of this attempt
    assert headers["webhook-signature"].startswith("v1,")
    assert "." not in headers["webhook-id"]  # D-13: although the tenant's name has one
    assert "shop" not in headers["webhook-id"]


async def test_every_attempt_of_an_intent_has_the_same_id_and_body_and_its_own_timestamp():
    pipeline = Pipeline()
    for _ in range(2):
        assert isinstance(await pipeline.attempt(), Done)
        pipeline.runtime.advance(3_600)
    # The double answers 409 to a known id with another body, so one effect with two receipts shows
    # that both were equal.
    assert [effect.receipts for effect in pipeline.effects] == [
        2
    ]  # D-13: webhook-id is the same across retries
    assert pipeline.receiver.refusals == []


async def test_another_intent_is_another_message():
    pipeline = Pipeline()
    await pipeline.attempt()
    pipeline.intent = 2
    await pipeline.attempt()
    assert len({effect.id for effect in pipeline.effects}) == 2


async def test_the_body_is_type_timestamp_and_data_with_the_time_of_the_request():
    pipeline = Pipeline()
    pipeline.runtime.advance(7_200)
    await pipeline.attempt()
    # D-14: {type, timestamp, data}; the request was made two hours before this attempt
    assert json.loads(pipeline.effects[0].text) == {
        "type": "order.paid",
        "timestamp": "2027-01-15T08:00:00.000Z",
        "data": {"order": 7},
    }


@given(
    st.dictionaries(
        st.text(max_size=9),
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
        max_size=4,
    )
)
def test_the_reference_library_signs_whatever_is_sent_the_same(data):
    pipeline = Pipeline()
    assert isinstance(asyncio.run(pipeline.attempt(webhook.Message("a.b", data))), Done)
    [effect] = pipeline.effects
    moment = datetime.fromtimestamp(int(effect.headers["webhook-timestamp"]), UTC)
    assert (
        Webhook(SECRET).sign(effect.id, moment, effect.text) == effect.headers["webhook-signature"]
    )  # D-13


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_2xx_is_a_success(status):
    pipeline = Pipeline()
    pipeline.receiver.next(status=status)
    assert isinstance(await pipeline.attempt(), Done)  # D-14: success = 2xx only


@pytest.mark.parametrize("status", [301, 302, 304, 307, 308])
async def test_a_redirect_is_refused(status):
    pipeline = Pipeline()
    pipeline.receiver.next(status=status)
    assert await pipeline.attempt() == Rejected(
        "redirect_refused", f"answered {status}"
    )  # D-14, S1-27: 3xx failure


@pytest.mark.parametrize("status", [400, 404, 408, 409, 413, 422, 429, 500, 501, 503])
async def test_any_other_answer_is_tried_again_not_before_the_time_asked_for(status):
    pipeline = Pipeline()
    pipeline.receiver.next(status=status, retry_after=77)
    assert await pipeline.attempt() == Retry(
        f"http_{status}", f"answered {status}", 77.0
    )  # D-14, R1-27: honour Retry-After


@pytest.mark.parametrize("status", [502, 504])
async def test_a_gateways_error_is_unknown(status):
    pipeline = Pipeline()
    pipeline.receiver.next(status=status, retry_after=9)
    assert await pipeline.attempt() == Unknown(
        f"http_{status}", f"answered {status}", 9.0
    )  # D-14: throttle


async def test_a_lost_answer_is_unknown_and_the_same_message_again_has_no_second_effect():
    pipeline = Pipeline()
    pipeline.receiver.next(drop=True)
    assert await pipeline.attempt() == Unknown("reset", "the request may have arrived")
    assert isinstance(await pipeline.attempt(), Done)
    assert [effect.receipts for effect in pipeline.effects] == [2]


async def test_a_receiver_has_at_least_15_seconds_and_is_unknown_by_30():
    pipeline = Pipeline()
    pipeline.receiver.next(slow_seconds=15)
    assert isinstance(await after(pipeline, 15), Done)  # D-14: timeout 15-30 s
    pipeline.receiver.next(slow_seconds=60)
    call = asyncio.ensure_future(pipeline.attempt())
    await turns()
    pipeline.runtime.advance(14.999)
    await turns()
    assert not call.done()
    pipeline.runtime.advance(15.001)
    # D-14: it was sent, so no outcome may say that nothing happened: no Retry, whose redrive would
    # be a new message.
    assert await asyncio.wait_for(call, 5) == Unknown("timeout", "the request may have arrived")
    # The executor as a whole may take longer than its call, which distinguishes a slow receiver
    # from a stuck worker.
    assert pipeline.flow.timeout_seconds == 25


async def turns() -> None:
    """Let the call get as far as it can without the clock."""
    for _ in range(10):
        await asyncio.sleep(0)


async def after(pipeline: Pipeline, seconds: float) -> Outcome:
    """What an attempt has come to when so much time has passed."""
    call = asyncio.ensure_future(pipeline.attempt())
    await turns()
    pipeline.runtime.advance(seconds)
    return await asyncio.wait_for(call, 5)


async def test_gone_disables_the_endpoint_and_nothing_is_sent_to_it_any_more():
    pipeline = Pipeline(webhook.flow(), StoredConfig({"erp": webhook.Endpoint(URL, "")}))
    pipeline.receiver.next(status=410)
    message = webhook.Message("order.paid", {}, endpoint="erp")
    put = "gesta config put webhook.endpoint erp url=URL secret=env:HOOK_SECRET"
    first = f"before a redrive, store it again: {put}"
    assert await pipeline.attempt(message) == Rejected(
        "endpoint_gone", f"answered 410, so the endpoint is disabled; {first}"
    )  # D-14: 410 disable endpoint
    assert await pipeline.attempt(message) == Rejected(
        "endpoint_disabled", f"the receiver answered 410 Gone; {first}"
    )
    assert pipeline.receiver.calls == 1


async def test_an_endpoint_that_the_tenant_has_not_stored_holds_the_request():
    pipeline = Pipeline(webhook.flow())
    for endpoint in ("default", "erp"):
        with pytest.raises(ConfigMissing) as missing:
            await pipeline.attempt(webhook.Message("order.paid", {}, endpoint=endpoint))
        assert missing.value.reason == "endpoint_missing"
        assert f"gesta config put webhook.endpoint {endpoint}" in missing.value.detail
    assert pipeline.receiver.calls == 0


async def test_while_a_secret_is_changed_both_sign():
    pipeline = Pipeline(
        webhook.flow(), StoredConfig({"erp": webhook.Endpoint(URL, "")}, [SECRET, OLD])
    )
    for known_to_the_receiver in (SECRET, OLD):
        pipeline.receiver.secrets = [known_to_the_receiver]
        assert isinstance(
            await pipeline.attempt(webhook.Message("order.paid", {}, endpoint="erp")), Done
        )
    assert (
        len(pipeline.effects[0].headers["webhook-signature"].split(" ")) == 2
    )  # D-13: two signatures during rotation


async def test_a_stored_default_endpoint_takes_precedence_over_the_declared_one():
    pipeline = Pipeline(
        webhook.flow(URL, OLD), StoredConfig({"default": webhook.Endpoint(URL, "")})
    )
    assert isinstance(await pipeline.attempt(), Done)


async def test_a_secret_in_the_environment_is_looked_up_at_each_attempt():
    pipeline = Pipeline(webhook.flow(URL, "env:HOOK_SECRET"))
    with pytest.raises(CredentialRefused) as held:
        await pipeline.attempt()
    assert (held.value.credential, held.value.reason) == (
        "webhook.endpoint/default",
        "secret_missing",
    )
    assert held.value.detail == "env:HOOK_SECRET is not set"
    pipeline.config.environment["HOOK_SECRET"] = SECRET
    assert isinstance(await pipeline.attempt(), Done)


async def test_nothing_is_sent_unsigned():
    pipeline = Pipeline(webhook.flow(), StoredConfig({"default": webhook.Endpoint(URL, "")}, []))
    with pytest.raises(
        CredentialRefused, match=r"webhook\.endpoint/default was refused: secret_missing"
    ):
        await pipeline.attempt()
    assert pipeline.receiver.calls == 0


async def test_nothing_is_signed_with_an_invalid_secret():
    pipeline = Pipeline(
        webhook.flow(), StoredConfig({"default": webhook.Endpoint(URL, "")}, ["swordfish"])
    )
    outcome = await pipeline.attempt()
    assert isinstance(outcome, Retry)
    assert (outcome.reason, pipeline.receiver.calls) == ("secret_invalid", 0)
    assert "swordfish" not in repr(outcome)


def test_the_schedule_is_the_standards():
    policy = webhook.flow().rules.retry
    waits = [policy.delay_seconds(made, chance=0.0) for made in range(1, 11)]
    minute, hour = 60, 3_600
    # D-14: 0, 5 s, 5 m, 30 m, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h
    assert waits == [
        5,
        5 * minute,
        30 * minute,
        2 * hour,
        5 * hour,
        10 * hour,
        14 * hour,
        20 * hour,
        24 * hour,
        None,
    ]
    assert 5 < (policy.delay_seconds(1, chance=0.99) or 0) <= 5.5  # D-14: + jitter
    assert (
        policy.delay_seconds(1, chance=0.0, retry_after_seconds=60) == 60
    )  # S1-19: max(backoff, Retry-After)


def test_a_lost_answer_is_resent_five_seconds_later_under_the_same_key():
    state = State("id", "shop.eu", webhook.NAME, "queued", version=1, created_at=0, updated_at=0)
    [event] = decide(state, RecordOutcome(Unknown("reset"), attempt=1, at=0), webhook.flow().rules)
    assert isinstance(event, OutcomeUnknown)
    assert (event.policy, event.next_at) == ("resend", 5_000)


def test_ten_failures_are_a_dead_letter_that_can_be_redriven():
    state = State(
        "id", "shop.eu", webhook.NAME, "queued", version=1, created_at=0, updated_at=0, attempts=9
    )
    events = decide(state, RecordOutcome(Retry("http_500"), attempt=10, at=0), webhook.flow().rules)
    assert isinstance(events[-1], Failed)
    assert (events[-1].reason, events[-1].retryable) == ("max_attempts_exceeded", True)


def test_the_target_in_the_logs_is_a_masked_host_or_a_code():
    target = webhook.flow("https://user:pass@a1b2c3.hooks.example/t0k?k=1", SECRET).target
    assert target is not None
    assert target(webhook.Message("a", {})) == "*.hooks.example"  # S1-20
    assert target(webhook.Message("a", {}, endpoint="erp")) == "erp"


@pytest.mark.parametrize(
    ("url", "secret", "error"),
    [
        (URL, None, "needs secret="),
        (URL, "swordfish", "starts with whsec_"),
        (URL, "whsec_c2hvcnQ=", "24 to 64 bytes"),
        ("shop.example", SECRET, "must start with https://"),
    ],
)
def test_a_wrong_declaration_raises_without_the_secret(url, secret, error):
    with pytest.raises(BadFlow, match=error) as caught:
        webhook.flow(url, secret)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    ("given_", "field_"),
    [
        ({"type": "", "data": {}}, "type"),
        ({"type": "a", "data": []}, "data"),
        ({"type": "a"}, "data"),
        ({"type": "a", "data": {}, "endpoint": ""}, "endpoint"),
        ({"type": "a", "data": {}, "url": "x"}, "url"),
    ],
)
def test_a_message_that_does_not_fit_names_its_field(given_, field_):
    assert list(decode_fields(webhook.Message, given_)[1]) == [field_]


@pytest.mark.parametrize(
    ("given_", "fields"),
    [
        ({"url": "ftp://x", "secret": "nope"}, ["url", "secret"]),
        ({"url": URL}, ["secret"]),
        ({"url": URL, "secret": "whsec_c2hvcnQ="}, ["secret"]),
    ],
)
def test_an_endpoint_that_does_not_fit_names_its_fields_and_shows_no_secret(given_, fields):
    errors = decode_fields(webhook.Endpoint, given_)[1]
    assert list(errors) == fields
    assert given_.get("secret", "nope") not in str(errors)


def test_an_endpoint_shows_neither_its_secret_nor_its_whole_url():
    assert (
        repr(webhook.Endpoint("https://user:pass@a1b2c3.hooks.example/t0k?k=1", SECRET))
        == "Endpoint(*.hooks.example)"
    )  # S1-23


def test_a_stored_endpoint_is_read_back_without_its_secret():
    endpoint, errors = decode_fields(webhook.Endpoint, {"url": URL, "secret": ""})
    assert (endpoint, errors) == (webhook.Endpoint(URL, ""), {})


CREDENTIALS = "https://user:pw-7@hooks.example.com/in?token=t0ken-7"
SHOWN = "https://[hidden]@hooks.example.com/in?…"


@pytest.fixture
def urls(gesta, monkeypatch) -> list[str]:
    """The URLs that messages were posted to."""
    found: list[str] = []
    read = gesta.sandbox.webhook.read

    def note(request: HttpRequest, now_ms: int) -> Any:
        found.append(request.url)
        return read(request, now_ms)

    monkeypatch.setattr(gesta.sandbox.webhook, "read", note)
    return found


async def everything_stored(engine: Engine) -> bytes:
    stored = await engine.pipeline.environment.stores.events.read([(config_stream("default"), 0)])
    assert stored
    return b"".join(one.data for one in stored)


async def test_credentials_in_a_url_are_kept_in_the_vault(gesta, urls):
    fields = {"url": CREDENTIALS, "secret": SECRET}
    async with Engine("memory:hidden", flows=[webhook.flow()]) as engine:
        await engine.admin.put_config("webhook.endpoint", "shop", fields)
        assert (await engine.admin.list_config())[0].body == webhook.Endpoint(SHOWN, "")
        stored = await everything_stored(engine)
        assert b"hooks.example.com/in" in stored
        assert b"pw-7" not in stored
        assert b"t0ken-7" not in stored
        # What is shown can be put back: the credentials stay.
        await engine.admin.put_config("webhook.endpoint", "shop", {"url": SHOWN})
        request = await engine.submit(webhook.Message("order.paid", {}, "shop"))
        await gesta.settle()
        assert await request.status() == "sent"
        assert urls == [CREDENTIALS]


async def test_stored_credentials_are_not_sent_to_another_url(gesta, urls):
    elsewhere = SHOWN.replace("hooks", "evil")
    async with Engine("memory:hidden", flows=[webhook.flow()]) as engine:
        fields = {"url": CREDENTIALS, "secret": SECRET}
        await engine.admin.put_config("webhook.endpoint", "shop", fields)
        await engine.admin.put_config("webhook.endpoint", "shop", {"url": elsewhere})
        request = await engine.submit(webhook.Message("order.paid", {}, "shop"))
        await gesta.settle()
        assert (await request.status(), urls) == ("queued", [])
        # Without credentials it needs none.
        await engine.admin.put_config(
            "webhook.endpoint", "shop", {"url": "https://hooks.example.com/plain"}
        )
        await gesta.settle()
        assert await request.status() == "sent"
        assert urls == ["https://hooks.example.com/plain"]
        with pytest.raises(BadConfig) as refused:
            await engine.admin.put_config(
                "webhook.endpoint", "shop", {"url": elsewhere, "whole_url": CREDENTIALS}
            )
        assert set(refused.value.fields) == {"whole_url"}


async def test_credentials_in_a_declared_url_are_used(gesta, urls):
    async with Engine("memory:hidden", flows=[webhook.flow(CREDENTIALS, SECRET)]) as engine:
        await (await engine.submit(webhook.Message("order.paid", {}))).outcome()
        assert urls == [CREDENTIALS]
