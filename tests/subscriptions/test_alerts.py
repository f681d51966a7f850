"""Operators are alerted to what needs a person: once for each reason and window, and never of
the alerts themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gesta import Done, Engine, Rejected
from gesta.admin.doctor.checks import Finding, diagnose
from gesta.admin.doctor.collect import examine
from gesta.domain.status_events import ALERTING
from gesta.errors import BadSettings
from gesta.flows import email, slack, sms, webhook
from gesta.flows.deferrals import SECRET_MISSING, ConfigMissing, CredentialRefused
from gesta.runtime.settings import Settings, load
from gesta.subscriptions.alert_groups import KEPT_MAX, Group, Occurrence
from gesta.subscriptions.alerts import WINDOW_MS, Alerting
from gesta.testing.plugin import Harness
from tests.world import FLOW, URL, Note, Provider, append_raw, die, let_run, note_flow, pass_time

ENDPOINT = {"url": "https://ops.example/alerts", "secret": "whsec_" + "a" * 44}
TO = "notification.webhook:ops"


def engine_of(provider: Provider, to: str = TO, **options: Any) -> Engine:
    settings = Settings(url=URL, alerts_to=to)
    flows = [note_flow(provider, **options), webhook.flow(), slack.flow(), sms.flow(), email.flow()]
    return Engine(flows=flows, settings=settings)


async def watched(provider: Provider, to: str = TO, **options: Any) -> Engine:
    engine = engine_of(provider, to, **options)
    await engine.start()
    await engine.admin.put_config(webhook.ENDPOINT, "ops", ENDPOINT)
    return engine


@asynccontextmanager
async def stopping(engine: Engine) -> AsyncIterator[None]:
    yield
    await engine.stop()


def heard(gesta: Harness) -> list[tuple[str, str, int]]:
    """Kind, reason and count of every alert."""
    effects = [
        effect.data for effect in gesta.sandbox.webhook.effects if effect.type == "gesta.alert"
    ]
    return [(data["kind"], data["reason"], data["count"]) for data in effects]


async def test_dead_letters_of_one_reason_are_one_message_with_a_count_and_an_example(gesta):
    engine = await watched(
        Provider(Rejected("bad_payload"), Rejected("bad_payload"), Rejected("http_404"))
    )
    requests = [(await engine.submit(Note())).id for _ in range(3)]
    await gesta.settle()
    await engine.stop()
    assert sum(count for _, _, count in heard(gesta)) == 3
    assert {(kind, reason) for kind, reason, _ in heard(gesta)} == {
        ("dead_letter", "bad_payload"),
        ("dead_letter", "http_4xx"),
    }
    first = gesta.sandbox.webhook.effects[0].data
    assert (first["flow"], first["tenant"]) == (FLOW, "default")
    assert first["example"] in requests
    assert f"gesta dlq show {first['example']}" in first["text"]


async def test_a_test_request_causes_no_alert(gesta):
    engine = await watched(Provider(*[Rejected("bad_payload")] * 3), effects="attempt")
    for _ in range(2):
        await engine.submit(Note(), test=True)
    live = (await engine.submit(Note())).id
    await gesta.settle()
    assert len(await engine.find(status="failed")) == 3
    await engine.stop()
    assert heard(gesta) == [("dead_letter", "bad_payload", 1)]
    assert gesta.sandbox.webhook.effects[0].data["example"] == live


async def test_later_occurrences_in_a_window_are_in_the_next_alert(gesta):
    engine = await watched(Provider(*[Rejected("bad_payload")] * 5))
    gesta.runtime.advance_to((gesta.runtime.now_ms() // WINDOW_MS + 1) * WINDOW_MS)
    await engine.submit(Note())
    await let_run(gesta)
    assert heard(gesta) == [("dead_letter", "bad_payload", 1)]
    for _ in range(4):
        await engine.submit(Note())
    await pass_time(gesta, 60)
    assert len(heard(gesta)) == 1
    stores = engine.pipeline.environment.stores
    assert (
        await stores.checkpoints.position("subscription/gesta/alerts") < await stores.events.end()
    )
    await gesta.settle()
    assert heard(gesta) == [("dead_letter", "bad_payload", 1), ("dead_letter", "bad_payload", 4)]
    assert (
        await stores.checkpoints.position("subscription/gesta/alerts") == await stores.events.end()
    )
    await engine.stop()


async def test_a_restart_repeats_no_alert_and_loses_none(gesta, monkeypatch):
    engine = await watched(Provider(Rejected("bad_payload")))
    gesta.runtime.advance_to((gesta.runtime.now_ms() // WINDOW_MS + 1) * WINDOW_MS)
    await let_run(gesta)
    reached = asyncio.Event()

    async def never(self: Alerting) -> None:
        if self._delivered > (self._position or 0) and heard(gesta):
            reached.set()
            await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(Alerting, "_move", never)
        await engine.submit(Note())
        await let_run(gesta)
        gesta.advance(1)
        await let_run(gesta)
        assert reached.is_set()
        await die(engine)
    async with engine_of(Provider(Rejected("bad_payload"))) as engine:
        await pass_time(gesta, 10)
        await engine.submit(Note())
        await gesta.settle()
    assert sum(count for _, _, count in heard(gesta)) <= 3
    assert len(heard(gesta)) == 2
    assert len({effect.id for effect in gesta.sandbox.webhook.effects}) == 2


async def test_two_processes_send_an_alert_once(gesta):
    engine = await watched(Provider(Rejected("bad_payload")))
    async with engine_of(Provider()) as other:
        for one in (engine, other):
            one.pipeline.telemetry.crashed("projector", RuntimeError("x"))
        await pass_time(gesta, 3)
        assert heard(gesta) == [("crashed", "projector", 1)]
    await engine.stop()


async def test_what_a_process_counts_beside_an_alert_of_another_is_in_the_next_alert(gesta):
    engine = await watched(Provider())
    async with engine_of(Provider()) as other:
        for one, crashes in ((engine, 1), (other, 2)):
            for _ in range(crashes):
                one.pipeline.telemetry.crashed("projector", RuntimeError("x"))
        await pass_time(gesta, WINDOW_MS / 1000 + 3, step_seconds=1)
        assert sorted(heard(gesta)) == [("crashed", "projector", 1), ("crashed", "projector", 2)]
    await engine.stop()


async def test_a_failed_alert_causes_no_alert(gesta):
    engine = await watched(Provider(Rejected("bad_payload")))
    gesta.sandbox.webhook.on("gesta.alert", status=410)
    await engine.submit(Note())
    await gesta.settle()
    alerts = await engine.find(flow=webhook.NAME)
    assert [(view.state.status, view.state.source) for view in alerts] == [("failed", ALERTING)]
    await engine.stop()


async def test_doctor_reports_that_the_last_alert_failed(gesta):
    """It said that alerts go to the endpoint."""

    async def line(tenant: str = "default") -> Finding:
        facts = await examine(engine.pipeline, tenant)
        (found,) = [one for one in diagnose(facts) if one.about == "alerts"]
        return found

    engine = await watched(Provider(Rejected("bad_payload"), Rejected("http_404")))
    async with stopping(engine):
        gesta.sandbox.webhook.on("gesta.alert", status=410, times=1)
        await engine.submit(Note())
        await gesta.settle()
        (alert,) = await engine.find(flow=webhook.NAME)
        await engine.admin.put_config(webhook.ENDPOINT, "ops", ENDPOINT)
        found, named = await line(), alert.state.id
        assert found.level == "warn"
        assert (
            found.action == f"gesta show {named}; after the cause is fixed: gesta redrive {named}"
        )
        assert found.status.startswith(f"go to {TO}; the last one failed")
        assert found.status.endswith(f"({alert.state.reason})")
        assert f"redrive {named} --tenant default" in (await line("acme")).action
        await engine.submit(Note())
        await gesta.settle()
        assert len(heard(gesta)) == 1
        assert await line() == Finding("ok", "alerts", f"go to {TO}")


async def test_alerts_cause_no_event_webhooks(gesta):
    engine = await watched(Provider(Rejected("bad_payload")))
    await engine.admin.put_config(webhook.ENDPOINT, "shop", ENDPOINT)
    await engine.admin.put_config(
        webhook.SUBSCRIPTION, "shop", {"endpoint": "shop", "flow": "notification.*"}
    )
    await engine.submit(Note())
    await gesta.settle()
    assert [effect.type for effect in gesta.sandbox.webhook.effects] == ["gesta.alert"]
    await engine.stop()


async def test_an_unknown_outcome_for_a_person_causes_an_alert(gesta):
    engine = await watched(Provider(TimeoutError()), on_unknown="manual")
    await engine.submit(Note())
    await gesta.settle()
    await engine.stop()
    assert heard(gesta) == [("undecided", "unexpected_error", 1)]


async def test_a_refused_credential_causes_an_alert(gesta):
    engine = await watched(Provider(CredentialRefused("note.account/main", "token_revoked", "")))
    await engine.submit(Note())
    await let_run(gesta)
    await pass_time(gesta, 2)
    await engine.stop()
    assert heard(gesta) == [("credential_refused", "note.account", 1)]
    assert gesta.sandbox.webhook.effects[0].data["example"] == "note.account/main"


@pytest.mark.parametrize(
    "held_by",
    [
        ConfigMissing("slack.workspace", "main", "workspace_missing"),
        CredentialRefused("slack.workspace/main", SECRET_MISSING, "env:TOKEN is not set"),
    ],
)
async def test_missing_config_is_not_called_a_refusal_of_the_provider(gesta, held_by):
    engine = await watched(Provider(held_by))
    await engine.submit(Note())
    await let_run(gesta)
    await pass_time(gesta, 2)
    await engine.stop()
    assert heard(gesta) == [("config_missing", "slack.workspace", 1)]
    assert "refuse" not in gesta.sandbox.webhook.effects[0].text
    put = "gesta config put slack.workspace main token=env:SLACK_TOKEN"
    assert put in gesta.sandbox.webhook.effects[0].text


async def test_a_quarantined_event_causes_an_alert(gesta):
    engine = await watched(Provider())
    request = await engine.submit(Note())
    await let_run(gesta)
    await append_raw(engine, request.id, 2, "Failed.v1", b"{")
    await let_run(gesta)
    await pass_time(gesta, 2)
    await engine.stop()
    assert heard(gesta) == [("quarantined", "event", 1)]


@pytest.mark.parametrize(
    ("to", "kind", "code", "fields"),
    [
        ("notification.slack:ops", slack.message.CHANNEL, "ops", {"channel_id": "C012AB3CD"}),
        (
            "notification.sms:+4930123456",
            "sms.account",
            "default",
            {"account_sid": "AC1", "auth_token": "t", "sender": "+15550100"},
        ),
        (
            "notification.email:ops@example.com",
            "email.sender",
            "default",
            {
                "kind": "smtp",
                "from_address": "gesta@example.com",
                "host": "mail.example.com",
                "tls": "none",
            },
        ),
    ],
)
async def test_every_channel_can_carry_alerts(gesta, to, kind, code, fields):
    engine = await watched(Provider(Rejected("bad_payload")), to)
    assert engine.pipeline.alerts is not None
    assert "there is no" in await engine.pipeline.alerts.error()
    await engine.admin.put_config(slack.message.WORKSPACE, "default", {"token": "xoxb-1"})
    await engine.admin.put_config(kind, code, fields)
    assert await engine.pipeline.alerts.error() == ""
    request = await engine.submit(Note())
    await gesta.settle()
    await engine.stop()
    effects = [
        *gesta.sandbox.slack.effects,
        *gesta.sandbox.twilio.effects,
        *gesta.sandbox.smtp.effects,
    ]
    assert len(effects) == 1
    assert request.id in effects[0].text


async def test_a_process_whose_alerts_go_nowhere_logs_it_when_it_starts(gesta, caplog):
    for to, error in [
        ("shop.order:x", "this process has no flow shop.order"),
        (f"{FLOW}:x", f"{FLOW} cannot carry alerts; flows that can: notification.email"),
    ]:
        caplog.clear()
        engine = await watched(Provider(), to)
        # `gesta worker` prints its notes.
        assert any(error in note for note in engine.notes)
        await engine.stop()
        assert "no alerts are sent" in caplog.text
        assert error in caplog.text
    caplog.clear()
    engine = await watched(Provider())
    assert not any("alerts" in note for note in engine.notes)
    await engine.stop()
    assert "no alerts are sent" not in caplog.text


async def test_an_impossible_destination_is_reported(gesta):
    put, choose = "store it with gesta config put", "set alerts_to to a flow that can"
    for to, error, remedy in [
        ("notification.webhook:nobody", "there is no webhook.endpoint nobody", put),
        ("shop.order:x", "this process has no flow shop.order", choose),
        (f"{FLOW}:x", f"{FLOW} cannot carry alerts; flows that can: notification.email", choose),
    ]:
        engine = await watched(Provider(Rejected("bad_payload")), to)
        assert engine.pipeline.alerts is not None
        assert (await engine.pipeline.alerts.error()).startswith(error)
        (found,) = [
            one
            for one in diagnose(await examine(engine.pipeline, "default"))
            if one.about == "alerts"
        ]
        assert (found.level, error in found.status) == ("bad", True)
        assert found.action == remedy
        await engine.submit(Note())
        await gesta.settle()
        await engine.stop()
    assert heard(gesta) == []


def test_the_alerts_setting_is_read_from_its_table_and_validated(tmp_path):
    file = tmp_path / "gesta.toml"
    file.write_text('[alerts]\nto = "notification.slack:ops"\n')
    assert load(file=str(file)).alerts_to == "notification.slack:ops"
    for text in ('[alerts]\nto = "ops"\n', '[alerts]\nwho = "x"\n', "alerts = 3\n"):
        file.write_text(text)
        with pytest.raises(BadSettings, match="alerts"):
            load(file=str(file))


async def test_a_failure_before_alerts_were_configured_causes_no_alert(gesta):
    quiet = Engine(flows=[note_flow(Provider(Rejected("bad_payload")))], settings=Settings(url=URL))
    async with quiet:
        await quiet.submit(Note())
        await gesta.settle()
        assert len(await quiet.find(status="failed")) == 1
    engine = await watched(Provider(Rejected("http_404")))
    await gesta.settle()
    assert heard(gesta) == []
    await engine.submit(Note())
    await gesta.settle()
    await engine.stop()
    assert heard(gesta) == [("dead_letter", "http_4xx", 1)]


async def test_a_failure_solved_while_the_endpoint_was_missing_causes_no_alert(gesta):
    engine = engine_of(Provider(Rejected("bad_payload"), Done(), Rejected("bad_payload")))
    async with engine:
        solved = await engine.submit(Note())
        await pass_time(gesta, 3)
        await solved.redrive()
        await pass_time(gesta, 3)
        assert await solved.status() == "completed"
        failed = await engine.submit(Note())
        await pass_time(gesta, 600, step_seconds=30)
        assert [view.state.id for view in await engine.find(flow=webhook.NAME)] == []
        await engine.admin.put_config(webhook.ENDPOINT, "ops", ENDPOINT)
        await gesta.settle()
        # Neither the solved request, nor that the endpoint was missing.
        assert heard(gesta) == [("dead_letter", "bad_payload", 1)]
        assert gesta.sandbox.webhook.effects[0].data["example"] == failed.id


async def test_alerts_wait_while_their_endpoint_refuses_them(gesta):
    engine = await watched(Provider(Rejected("bad_payload"), Rejected("bad_payload")))
    async with stopping(engine):
        gesta.sandbox.webhook.next(status=401)
        await engine.submit(Note())
        await pass_time(gesta, 3)
        await engine.submit(Note())
        await pass_time(gesta, 600, step_seconds=2)
        # The first one found out. The next ones wait with what they are about.
        assert len(await engine.find(flow=webhook.NAME)) == 1
        await engine.admin.put_config(webhook.ENDPOINT, "ops", ENDPOINT)
        await gesta.settle()
        # Nothing about the endpoint itself: it works again when an alert arrives.
        assert heard(gesta) == [("dead_letter", "bad_payload", 1)] * 2


async def test_a_failure_solved_before_the_next_window_is_not_in_its_alert(gesta):
    engine = await watched(Provider(*[Rejected("bad_payload")] * 4))
    async with stopping(engine):
        gesta.runtime.advance_to((gesta.runtime.now_ms() // WINDOW_MS + 1) * WINDOW_MS)
        await engine.submit(Note())
        await let_run(gesta)
        assert heard(gesta) == [("dead_letter", "bad_payload", 1)]
        later = [await engine.submit(Note()) for _ in range(3)]
        await pass_time(gesta, 3)
        await later[0].redrive()
        await later[1].purge()
        await gesta.settle()
        assert heard(gesta)[1:] == [("dead_letter", "bad_payload", 1)]
        assert gesta.sandbox.webhook.effects[1].data["example"] == later[2].id


async def test_a_request_that_fails_again_is_counted_once_and_never_forgotten(gesta):
    engine = await watched(Provider(*[Rejected("bad_payload")] * 4))
    async with stopping(engine):
        gesta.runtime.advance_to((gesta.runtime.now_ms() // WINDOW_MS + 1) * WINDOW_MS)
        request = await engine.submit(Note())
        await let_run(gesta)
        for _ in range(2):
            await request.redrive()
            await pass_time(gesta, 3)
        await gesta.settle()
        assert heard(gesta) == [("dead_letter", "bad_payload", 1)] * 2


async def test_config_that_was_stored_in_between_is_not_called_missing(gesta):
    held_by = ConfigMissing("note.account", "main", "account_missing")
    engine = await watched(Provider(held_by), credential=lambda _: "note.account/main")
    async with stopping(engine):
        alerts = engine.pipeline.alerts
        assert alerts is not None
        # One about this kind of config was sent in this window.
        alerts._sent["config_missing", "", "note.account"] = alerts.window()
        await engine.submit(Note())
        await let_run(gesta)
        await pass_time(gesta, 2)
        assert [pause.kind for pause in await engine.admin.paused("default")] == ["config"]
        await engine.admin.resume(credential="note.account/main", tenant="default")
        alerts._sent.clear()
        await pass_time(gesta, 2)
        await engine.stop()
    assert ("config_missing", "note.account", 1) not in heard(gesta)


async def test_alerts_that_cannot_be_sent_for_a_day_are_forgotten(gesta):
    engine = engine_of(Provider(Rejected("bad_payload"), Rejected("http_404")))
    async with engine:
        await engine.submit(Note())
        await pass_time(gesta, 86_000, step_seconds=600)
        stores = engine.pipeline.environment.stores
        held_back = await stores.checkpoints.position("subscription/gesta/alerts")
        assert held_back < await stores.events.end()
        newer = await engine.submit(Note())
        await pass_time(gesta, 2_000, step_seconds=100)
        # Retention removes only what every consumer has passed.
        assert await stores.checkpoints.position("subscription/gesta/alerts") > held_back
        await engine.admin.put_config(webhook.ENDPOINT, "ops", ENDPOINT)
        await gesta.settle()
        assert heard(gesta) == [("dead_letter", "http_4xx", 1)]
        assert gesta.sandbox.webhook.effects[0].data["example"] == newer.id


async def test_the_alert_about_another_tenant_and_a_grouped_reason_names_what_commands_need(gesta):
    engine = await watched(Provider(Rejected("http_404")))
    async with stopping(engine):
        request = await engine.submit(Note(), tenant="acme")
        await gesta.settle()
    text = gesta.sandbox.webhook.effects[0].text
    assert f"{request.id}: gesta dlq show {request.id} --tenant acme" in text


def test_an_alert_names_the_stored_reason_that_dead_letters_are_listed_by():
    """It named the group, `other`, although all had one reason."""

    def text(*stored: str) -> str:
        group = Group()
        for number, one in enumerate(stored):
            group.add(Occurrence("dead_letter", FLOW, "other", "t", f"r{number}", one, "s"))
        return group.notice("key").text

    assert text("no_paper", "no_paper").startswith(
        f"gesta: 2 requests of {FLOW} failed: no_paper. Tenant t. For instance r0: gesta dlq show"
    )
    assert text("no_paper", "no_ink").startswith(
        f"gesta: 2 requests of {FLOW} failed: other. Tenant t. For instance r0 (no_paper): gesta"
    )
    assert "failed: other. Tenant t. For instance r0 (two\nlines)" in text("two\nlines")


def group_of(count: int) -> Group:
    """The time and position of each occurrence is its number, from 1."""
    group = Group()
    for number in range(1, count + 1):
        stream, example = f"stream-{number}", str(number)
        group.add(
            Occurrence("dead_letter", FLOW, "other", "t", example, "", stream, 1, number, number)
        )
    return group


def test_a_restart_while_alerts_wait_forgets_only_what_is_too_old():
    """The group is made again from its position."""
    group = group_of(KEPT_MAX + 3)
    group.forget_before(1)
    assert (group.count, group.position) == (KEPT_MAX + 3, 1)
    # Of those that are only counted, the newest is not too old.
    group.forget_before(3)
    assert (group.count, group.position) == (KEPT_MAX + 3, 3)


def test_more_occurrences_than_are_kept_are_counted_and_none_is_lost():
    group = group_of(KEPT_MAX + 3)
    assert (group.count, group.position, len(group.kept)) == (KEPT_MAX + 3, 1, KEPT_MAX)
    # All that are looked at again are over: those that were only counted may not be.
    group.keep([])
    assert (group.count, group.position) == (3, 1)
    assert group.notice("key").data["example"] == "3"
    group.forget_before(4)
    assert group.count == 0


async def test_doctor_says_which_flow_the_program_lacks_for_alerts(gesta):
    settings = Settings(url=URL, alerts_to=TO)
    async with Engine(flows=[note_flow(Provider())], settings=settings) as engine:
        facts = await examine(engine.pipeline, "default")
        (note,) = [note for note in engine.notes if "alerts" in note]
    (found,) = [one for one in diagnose(facts) if one.about == "alerts"]
    assert found.action == "add gesta.flows.webhook.flow() to the Engine's flows"
    assert note.endswith("; add gesta.flows.webhook.flow() to the Engine's flows")


async def test_a_restart_does_not_alert_again_of_what_is_still_open(gesta):
    engine = await watched(Provider(Rejected("bad_payload")))
    await engine.submit(Note())
    await gesta.settle()
    await engine.stop()
    assert heard(gesta) == [("dead_letter", "bad_payload", 1)]
    gesta.runtime.advance(3_600)
    async with engine_of(Provider(Rejected("bad_payload"))) as engine:
        await gesta.settle()
        assert len(heard(gesta)) == 1
        await engine.submit(Note())
        await gesta.settle()
    assert heard(gesta) == [("dead_letter", "bad_payload", 1)] * 2
