"""Test requests: they reach the sandbox and no other server, whatever the tenant has stored, and
touch nothing of what is live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gesta import (
    Attempt,
    Conflict,
    Done,
    Engine,
    Flow,
    InvalidRequest,
    Outcome,
    Payload,
    Rejected,
    Retry,
    Unknown,
    flow,
)
from gesta.domain.commands import Rules
from gesta.domain.status_events import Event
from gesta.engine.environment import Environment, Wiring
from gesta.engine.pipeline import Pipeline
from gesta.flows import email, slack, sms, webhook
from gesta.flows.deferrals import CredentialRefused
from gesta.flows.flow import ConfigBody, Rendered, Secret
from gesta.intake.submit_options import Options
from gesta.outbound.http import HttpRequest, HttpResponse
from gesta.outbound.rate_limits import Limit
from gesta.outbound.smtp import Envelope, MailAnswer, MailServer
from gesta.runtime.settings import Settings
from gesta.worker import attempt as attempts
from gesta.worker.test_mode import KEPT, STAND_IN
from tests.world import URL, Note, Provider, events_of, fields, note_flow

OUTBOX_ID = "0190c7a0-0000-7000-8000-000000000001"


class Wire:
    """The ways out of this machine. A test that finds one used has failed."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.is_watched = False

    async def send(self, first: HttpRequest | MailServer, envelope: Envelope | None = None) -> Any:
        self.used.append(first.url if isinstance(first, HttpRequest) else first.host)
        if envelope is None:
            return HttpResponse(200, {}, b'{"ok": true}')  # type: ignore[arg-type]
        return MailAnswer("data", None)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def wire(gesta) -> Iterator[Wire]:
    """Engines opened from here on have real ways out, which are watched, and secrets that are
    looked up.
    """
    before, wire = Wiring.wire, Wire()

    def reference(text: str) -> str:
        # Digests of what programs declare are made when an engine starts, before anything is sent.
        if text.startswith("env:") and wire.is_watched:
            wire.used.append(text)
        return text

    async def wired(settings: Settings) -> Environment:
        def built(pipeline: Pipeline) -> None:
            gesta._pipelines.append(pipeline)
            wire.is_watched = True

        environment: Environment = await gesta.wire(settings)
        return replace(environment, transport=wire, mail=wire, reference=reference, built=built)

    Wiring.wire = staticmethod(wired)
    yield wire
    Wiring.wire = staticmethod(before)


def channels() -> list[Flow]:
    return [
        slack.flow(token="env:SLACK_TOKEN"),
        sms.flow(account_sid="AC1", token="env:TWILIO_TOKEN", sender="+15005550006"),
        email.flow(),
        webhook.flow(url="https://shop.example.com/hook", secret="env:HOOK_SECRET"),
    ]


MESSAGES: dict[str, Payload] = {
    "slack": slack.Message(text="hello"),
    "slack to a channel": slack.Message(channel="ops", text="hello", workspace="acme", app="bot"),
    "slack to a person": slack.Message(channel="U012AB3CD", text="hello"),
    "sms": sms.Message("+4930123456", "hello"),
    "email": email.Message("ada@example.org", "hello", template="letter"),
    "webhook": webhook.Message("order.paid", {"n": 1}),
    "webhook to an endpoint": webhook.Message("order.paid", {"n": 1}, "shop"),
}
CONFIG: dict[tuple[str, str], dict[str, Any]] = {
    ("slack.workspace", "default"): {"token": "xoxb-real", "default_channel_id": "C012AB3CD"},
    ("slack.workspace", "acme"): {"token": "xoxb-real"},
    ("slack.channel", "ops"): {"channel_id": "C012AB3CE", "workspace": "acme"},
    ("slack.app", "bot"): {"username": "bot"},
    ("sms.account", "default"): {
        "account_sid": "AC2",
        "auth_token": "real",
        "sender": "+15005550006",
    },
    ("email.sender", "default"): {
        "kind": "smtp",
        "from_address": "a@example.org",
        "host": "mail.example.org",
        "user": "u",
        "password": "real",
    },
    ("webhook.endpoint", "default"): {
        "url": "https://shop.example.com/",
        "secret": f"whsec_{'a' * 32}",
    },
    ("webhook.endpoint", "shop"): {
        "url": "https://shop.example.com/",
        "secret": f"whsec_{'a' * 32}",
    },
}


async def put_template(engine: Engine) -> None:
    await engine.admin.put_config("template", "letter", {"subject": "hello", "text": "hello"})


@pytest.mark.parametrize("name", MESSAGES)
async def test_a_newcomers_test_is_sent_without_any_config(gesta, wire, name):
    async with Engine(URL, flows=channels()) as engine:
        await put_template(engine)
        request = await engine.submit(MESSAGES[name], test=True)
        assert isinstance(await request.outcome(), Done)
        assert (await request.view()).state.test
        assert wire.used == []
        assert (await engine.get(request.id)).state.reason == ""


@pytest.mark.parametrize("name", MESSAGES)
async def test_a_test_goes_by_the_tenants_config_and_opens_none_of_its_secrets(
    gesta, wire, name, monkeypatch
):
    async with Engine(URL, flows=channels()) as engine:
        await put_template(engine)
        for (kind, code), given in CONFIG.items():
            await engine.admin.put_config(kind, code, given)
        opened: list[object] = []

        async def open_secret(*ref: object) -> list[str]:
            opened.append(ref)
            return [f"whsec_{'a' * 32}"]

        monkeypatch.setattr(engine.pipeline.config_writer, "open", open_secret)
        request = await engine.submit(MESSAGES[name], test=True)
        assert isinstance(await request.outcome(), Done)
        assert wire.used == opened == []
        # The same by a live request uses both, so that the watch is known to see.
        live = await engine.submit(MESSAGES[name])
        await gesta.settle(days=0.0001)
        assert wire.used
        assert opened
        assert (await live.view()).state.attempts or (await live.view()).state.started


async def test_amazons_ways_lead_to_the_sandbox_as_well(gesta, wire):
    ses = {
        "kind": "ses",
        "from_address": "a@example.org",
        "region": "eu-west-1",
        "access_key_id": "AKIAREAL",
        "secret_access_key": "real",
    }
    bodies = {
        "bucket": "letters",
        "region": "eu-west-1",
        "access_key_id": "AKIAREAL",
        "secret_access_key": "real",
    }
    async with Engine(URL, flows=channels()) as engine:
        await engine.admin.put_config("email.sender", "default", ses)
        await engine.admin.put_config("email.bodies", "default", bodies)
        message = email.Message("ada@example.org", "hello", "s3:letters/1.html")
        request = await engine.submit(message, test=True)
        assert isinstance(await request.outcome(), Done)
        assert wire.used == []
        trial = engine.pipeline.pool._attempts.tools.sandbox_mode
        assert trial is not None
        assert [one.type for one in trial.sandbox.ses.effects] == ["email"]


async def test_a_code_that_is_none_of_those_stored_fails_a_test_as_it_would_a_live_request(
    gesta, wire
):
    async with Engine(URL, flows=channels()) as engine:
        for (kind, code), given in CONFIG.items():
            await engine.admin.put_config(kind, code, given)
        request = await engine.submit(slack.Message(channel="typo", text="hello"), test=True)
        outcome = await request.outcome()
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "channel_config_missing"


async def test_a_declared_secret_is_not_used_where_the_tenant_has_stored_others(gesta, wire):
    flow = webhook.flow(url="https://shop.example.com/hook", secret=f"whsec_{'b' * 32}")
    async with Engine(URL, flows=[flow]) as engine:
        await engine.admin.put_config(
            "webhook.endpoint", "shop", CONFIG["webhook.endpoint", "shop"]
        )
        request = await engine.submit(webhook.Message("order.paid", {}), test=True)
        assert isinstance(await request.outcome(), Done)
        trial = engine.pipeline.pool._attempts.tools.sandbox_mode
        assert trial is not None
        (effect,) = trial.sandbox.webhook.effects
        from gesta.outbound.signatures import sign

        headers = effect.headers
        signed = sign(
            [STAND_IN], effect.id, int(headers["webhook-timestamp"]), effect.text.encode()
        )
        assert headers["webhook-signature"] == signed


async def test_a_user_defined_flow_refuses_test_requests_unless_it_declares_its_effects(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)]) as engine:
        with pytest.raises(InvalidRequest, match="effects='attempt'") as error:
            await engine.submit(Note(), test=True)
        assert error.value.fields.keys() == {"test"}
        with pytest.raises(InvalidRequest):
            await engine.submit_many([(Note(), Options(test=True))])
        assert await engine.find() == []
        assert (await engine.submit(Note())).verdict == "created"


class Account(ConfigBody, frozen=True):
    token: Secret[str]


async def test_a_flow_with_effects_by_attempt_is_tested_against_the_sandbox(gesta, wire):
    seen: list[Any] = []

    @flow("shop.charge", on_unknown="manual", effects="attempt")
    async def charge(note: Note, attempt: Attempt) -> Outcome:
        answer = await attempt.http.post(
            "https://pay.example.com/", json={}, headers={"Idempotency-Key": attempt.key}
        )
        seen.append((attempt.test, answer["id"], attempt.config.reference("env:TOKEN")))
        seen.append(await attempt.config.secrets("shop.account", "main", "token"))
        return Done(answer["id"])

    assert charge.effects == "attempt"
    async with Engine(URL, flows=[charge]) as engine:
        assert await (await engine.submit(Note(), test=True)).outcome() == Done("sandbox_1")
        assert seen == [(True, "sandbox_1", STAND_IN), [STAND_IN]]
        assert wire.used == []


async def test_a_test_whose_flow_takes_none_any_more_makes_no_call(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider, effects="attempt")], work=False) as engine:
        request = await engine.submit(Note(), test=True)
    async with Engine(URL, flows=[note_flow(provider)]) as engine:
        outcome = await (await engine.request(request.id)).outcome()
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "not_for_tests"
        assert provider.calls == []


async def test_an_unknown_test_asks_the_sandbox(gesta, wire):
    asked: list[bool] = []

    async def ask(note: Note, attempt: Attempt) -> Outcome:
        asked.append(attempt.test)
        await attempt.http.get("https://pay.example.com/charges")
        return Done("found")

    loses = Flow(
        "test.note",
        Note,
        Provider(Unknown("timeout")).execute,
        Rules(on_unknown="reconcile"),
        ask,
        effects="attempt",
    )
    async with Engine(URL, flows=[loses]) as engine:
        request = await engine.submit(Note(), test=True)
        outcome = await request.outcome(timeout=60)
        assert isinstance(outcome, Done)
        assert outcome.id == "found"
        assert asked == [True]
        assert wire.used == []


async def test_the_key_of_a_test_is_another_than_the_same_of_a_live_request(gesta):
    async with Engine(URL, flows=[note_flow(Provider(), effects="attempt")], work=False) as engine:
        tried = await engine.submit(Note("a"), key="order-7", test=True)
        live = await engine.submit(Note("b"), key="order-7")
        assert tried.verdict == live.verdict == "created"
        assert (await engine.submit(Note("a"), key="order-7", test=True)).id == tried.id
        assert (await engine.submit(Note("b"), key="order-7")).id == live.id
        with pytest.raises(Conflict):
            await engine.submit(Note("b"), key="order-7", test=True)
        # A key that looks like one of the other world is none.
        odd = await engine.submit(Note("a"), key="test\0order-7")
        assert odd.verdict == "created"


async def test_a_callers_own_id_of_a_test_stays_free_for_the_live_request(gesta, wire):
    async with Engine(URL, flows=[email.flow()], work=False) as engine:
        message = email.Message("ada@example.org", "hello", f"db:{OUTBOX_ID}", outbox_id=OUTBOX_ID)
        tried = await engine.submit(message, test=True)
        assert tried.id != OUTBOX_ID
        assert (await engine.submit(message, test=True)).id == tried.id
        live = await engine.submit(message)
        assert (live.id, live.verdict) == (OUTBOX_ID, "created")
        later = await engine.submit(message, test=True)
        assert (later.id, later.verdict) == (tried.id, "duplicate")


async def test_a_test_is_on_record_as_one_and_a_live_request_costs_no_byte_for_it(gesta):
    async with Engine(URL, flows=[note_flow(Provider(), effects="attempt")], work=False) as engine:
        tried, live = await engine.submit(Note(), test=True), await engine.submit(Note())
        (created,), (plain,) = await events_of(engine, tried.id), await events_of(engine, live.id)
        assert fields(created.data)["test"] is True
        assert "test" not in fields(plain.data)
        assert [one.state.test for one in await engine.find()] == []
        assert ((await tried.view()).state.test, (await live.view()).state.test) == (True, False)
        while await engine.pipeline.projector.step():
            pass
        assert sorted(one.state.test for one in await engine.find()) == [False, True]
        await engine.admin.rebuild()
        assert sorted(one.state.test for one in await engine.find()) == [False, True]


async def test_retry_redrive_cancel_and_handlers_know_a_test(gesta, wire):
    provider = Provider(Rejected("no"), Retry("busy", after_seconds=3_600))
    engine = Engine(URL, flows=[note_flow(provider, effects="attempt")])
    heard: list[Event] = []

    @engine.on("*", "completed", "failed", name="ear")
    async def hear(event: Event) -> None:
        heard.append(event)

    async with engine:
        request = await engine.submit(Note(), test=True)
        await request.outcome()
        (letter,) = await engine.admin.dead_letters()
        assert letter.test
        assert await request.redrive() == "queued"
        await gesta.settle(days=0.0001)
        assert await request.retry() == "queued"
        assert isinstance(await request.outcome(), Done)
        assert all(attempt.test for attempt in provider.calls)
        assert len(provider.calls) == 3
        await gesta.settle(days=0.0001)
        assert [(one.status, one.test) for one in heard] == [("failed", True), ("completed", True)]


async def test_an_answer_of_a_fake_disables_nothing_live(gesta, wire):
    limit = Limit("shop", 0.001)

    async def use_up(note: Note, attempt: Attempt) -> Outcome:
        await attempt.limits.take(limit)
        await attempt.limits.close("shop", 3_600)
        await attempt.config.disable("webhook.endpoint", "shop", "no")
        assert attempt.records is not None
        assert await attempt.records.put("k", "n", 1, b"v")
        assert await attempt.records.claim("k", "n")
        await attempt.records.forget("k", "n", upto=1)
        raise CredentialRefused("webhook.endpoint/shop", "revoked", "no")

    flows = [note_flow(Provider(use_up, use_up), effects="attempt"), webhook.flow()]
    async with Engine(URL, flows=flows) as engine:
        await engine.admin.put_config(
            "webhook.endpoint", "shop", CONFIG["webhook.endpoint", "shop"]
        )
        before = await engine.pipeline.environment.stores.vault.listed(("", "", 0), 100)
        for _ in range(2):
            outcome = await (await engine.submit(Note(), test=True)).outcome()
            assert isinstance(outcome, Rejected)
            assert outcome.reason == "credential_refused"
        assert await engine.admin.paused("default") == []
        assert await engine.pipeline.environment.stores.vault.listed(("", "", 0), 100) == before
        entity = await engine.admin.get_config("webhook.endpoint", "shop")
        assert entity.body.disabled is False  # type: ignore[attr-defined]
        assert await engine.pipeline.records.of("default").get("k", "n") is None
        assert await engine.pipeline.records.of("default").owner("k", "n") is None
        await engine.pipeline.pool._attempts.tools.of((await engine.find())[0].state)[2].take(limit)


async def test_a_thing_that_another_tenant_has_claimed_is_not_a_tests(gesta):
    owned: list[bool] = []

    async def claim(note: Note, attempt: Attempt) -> Outcome:
        assert attempt.records is not None
        owned.append(await attempt.records.claim("k", "n"))
        return Done("")

    async with Engine(URL, flows=[note_flow(Provider(claim, claim), effects="attempt")]) as engine:
        assert await engine.pipeline.records.of("acme").claim("k", "n")
        for tenant in ("acme", "globex"):
            await (await engine.submit(Note(), test=True, tenant=tenant)).outcome()
        assert owned == [True, False]


async def test_a_credential_that_is_held_holds_no_test_and_a_paused_tenant_does(gesta, wire):
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        await engine.admin.put_config(
            "webhook.endpoint", "shop", CONFIG["webhook.endpoint", "shop"]
        )
        await engine.admin.pause(credential="webhook.endpoint/shop", tenant="default")
        held = await engine.submit(webhook.Message("order.paid", {}, "shop"))
        tried = await engine.submit(webhook.Message("order.paid", {}, "shop"), test=True)
        assert isinstance(await tried.outcome(), Done)
        held_by = await engine.admin.pauses_of([await held.view(), await tried.view()])
        assert [one is None for one in held_by] == [False, True]
        await engine.admin.pause(tenant="default")
        waits = await engine.submit(webhook.Message("order.paid", {}, "shop"), test=True)
        await gesta.settle(days=0.0001)
        assert await waits.status() == "queued"
        assert wire.used == []


async def test_the_doubles_remember_so_much_and_no_more(gesta, wire):
    async with Engine(URL, flows=channels()) as engine:
        calls = [
            engine.submit(MESSAGES[name], test=True)
            for _ in range(KEPT + 5)
            for name in ("slack", "webhook")
        ]
        for request in await asyncio.gather(*calls):
            assert isinstance(await request.outcome(timeout=600), Done)
        trial = engine.pipeline.pool._attempts.tools.sandbox_mode
        assert trial is not None
        assert [len(one.effects) for one in (trial.sandbox.slack, trial.sandbox.webhook)] == [
            KEPT,
            KEPT,
        ]
        assert len(trial.sandbox.webhook._known) == KEPT
        assert len({one.id for one in trial.sandbox.slack.effects}) == KEPT


async def test_a_test_is_asked_for_by_a_truth_and_nothing_else(gesta):
    async with Engine(URL, flows=[note_flow(Provider(), effects="attempt")], work=False) as engine:
        for odd in ("yes", 1, None):
            with pytest.raises(InvalidRequest, match="test: true or false"):
                await engine.submit(Note(), test=odd)  # type: ignore[arg-type]


async def test_the_cache_of_tenants_is_bounded(gesta, monkeypatch):
    monkeypatch.setattr(attempts, "TENANTS_KEPT", 2)
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        for number in range(5):
            await engine.submit(Note(), tenant=f"tenant-{number}")
        await gesta.settle()
        assert len(engine.pipeline.pool._attempts.tools._of_tenants) <= 2


async def test_a_credential_refused_while_a_test_is_rendered_holds_nothing(gesta):
    async def refuse(payload: Note, attempt: Attempt) -> Rendered:
        raise CredentialRefused("shop.account/default", "no_account")

    provider = Provider()
    declared = note_flow(provider, effects="attempt")
    async with Engine(URL, flows=[replace(declared, render=refuse, journal=True)]) as engine:
        outcome = await (await engine.submit(Note(), test=True)).outcome()
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "no_account"
        assert await engine.admin.paused(None) == []
    assert provider.calls == []


async def test_a_test_request_deleted_a_live_record_by_its_digest(gesta):
    async def forget(note: Note, attempt: Attempt) -> Outcome:
        assert attempt.records is not None
        await attempt.records.forget("k", "n", upto=1)
        assert await attempt.records.forget_digest("k", attempt.records.digest("k", "n"))
        return Done("")

    async with Engine(URL, flows=[note_flow(Provider(forget), effects="attempt")]) as engine:
        records = engine.pipeline.records.of("default")
        assert await records.put("k", "n", 1, b"live")
        await (await engine.submit(Note(), test=True)).outcome()
        kept = await records.get("k", "n")
        assert kept is not None
        assert kept.value == b"live"
