"""A message in the pipeline: names of streams and events, jobs that are pointers, config by code at
execution.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gesta import Engine
from gesta.domain.events import Sent
from gesta.flows import slack
from gesta.outbound.http import Http
from gesta.ports.job_queue import Ack, Job
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder
from gesta.tenants.config import TenantConfig
from tests.architecture.source import ROOT, imports, modules
from tests.flows.slack_stage import OPS, PLACE, TOKEN, URL, end_of, opened, posted, put

ID = "018f3c1e-7a3b-7c11-8d2f-3f2f5b0a9c11"


@pytest.mark.parametrize(
    ("job", "is_leased"),
    [
        ({"messageRequestId": ID, "tenant": "acme"}, True),
        ({"messageRequestId": ID, "tenant": "acme", "threadTs": None}, True),
        ({"messageRequestId": ID, "tenant": "acme", "threadTs": "1731000000.000100"}, True),
        ({"messageRequestId": ID, "tenant": "acme", "threadTs": "1731000000.0001"}, False),
        ({"messageRequestId": "7", "tenant": "acme"}, False),
        ({"messageRequestId": ID}, False),
        ({"messageRequestId": ID, "tenant": "acme", "botToken": "xoxb-1"}, False),
        ({"messageRequestId": ID, "tenant": "acme", "template": {}}, False),
    ],
)
def test_the_job_has_exactly_its_three_fields(job, is_leased):
    # R0-1
    try:
        msgspec.json.decode(msgspec.json.encode(job), type=slack.SendMessageJob)
        assert is_leased
    except msgspec.ValidationError:
        assert not is_leased


async def test_the_snapshot_has_the_fields_of_the_contract(gesta):
    async with opened(gesta) as engine:
        await put(engine, "template", "welcome", text="Hello {{ name }}")
        message = slack.Message(
            channel="ops", template="welcome", data={"name": "Ann"}, thread_ts="1731000000.000100"
        )
        request = await engine.submit(message)
        await gesta.settle()
        view = await request.view()
    created, updated = view.state.created_at, view.state.updated_at
    assert slack.snapshot(view) == {
        "id": request.id,
        "tenant": "default",
        "workspaceCode": "default",
        "templateCode": "welcome",
        "channelCode": "ops",
        "threadTs": "1731000000.000100",
        "data": {"name": "Ann"},
        "status": "sent",
        "version": 2,
        "createdAt": created,
        "updatedAt": updated,
        "lastStreamRevision": 1,
    }  # R0-11
    job = msgspec.json.decode(msgspec.json.encode(slack.job_of(view)))
    assert job == {
        "messageRequestId": request.id,
        "tenant": "default",
        "threadTs": "1731000000.000100",
    }  # R0-1, R0-21


async def test_streams_and_events_have_the_names_of_the_contract(gesta):
    async with opened(gesta) as engine:
        await put(engine, "slack.workspace", "default", tenant="acme-corp", token=TOKEN)
        sent = await end_of(
            gesta, engine, slack.Message(channel=PLACE, text="a"), tenant="acme-corp"
        )
        gesta.sandbox.slack.next(error="is_archived")
        failed = await end_of(
            gesta, engine, slack.Message(channel=PLACE, text="a"), tenant="acme-corp"
        )
        stored = await engine.pipeline.environment.stores.events.follow(0, 100)
    names = {
        request.id: [one.type for one in stored if one.stream.endswith(request.id)]
        for request in (sent, failed)
    }
    assert names[sent.id] == [
        "notification.slack.MessageRequestCreated.v1",
        "notification.slack.MessageSent.v1",
    ]  # R0-18
    assert names[failed.id] == [
        "notification.slack.MessageRequestCreated.v1",
        "notification.slack.MessageFailed.v1",
    ]  # R0-18
    assert f"notification.slack.request-acme-corp-{sent.id}" in {
        one.stream for one in stored
    }  # R0-17


async def jobs_of(engine: Engine) -> list[Job]:
    return [
        standing.job
        for standing in await engine.pipeline.environment.stores.job_inspection.jobs("", 100)
    ]


async def test_a_created_request_is_enqueued_as_a_pointer(gesta):
    async with opened(gesta) as engine:
        await engine.admin.pause(flow="notification.slack")
        request = await engine.submit(
            slack.Message(channel="ops", text="a text", thread_ts="1731000000.000100")
        )
        await gesta.settle(days=0.001)
        [job] = await jobs_of(engine)
        everything = repr(await engine.pipeline.environment.stores.job_inspection.jobs("", 100))
    assert (job.request_id, job.tenant, job.flow) == (
        request.id,
        "default",
        "notification.slack",
    )  # R0-19
    assert not any(text in everything for text in ("a text", TOKEN, OPS, "ops"))  # R0-21, R0-2


async def test_an_updated_request_is_enqueued_only_when_it_is_queued_again(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(error="is_archived")
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle()
        await engine.admin.pause(flow="notification.slack")
        await request.redrive()
        await gesta.settle(days=0.001)
        again = await engine.history(request.id)
        assert (again[-1][0], len(await jobs_of(engine))) == (
            "notification.slack.MessageRequestUpdated.v1",
            1,
        )  # R0-20
        gesta.sandbox.slack.next(error="is_archived")
        await engine.admin.resume(flow="notification.slack")
        await gesta.settle()
        await request.purge()
        await gesta.settle()
        purged = await engine.history(request.id)
        assert (purged[-1][0], await jobs_of(engine)) == (
            "notification.slack.MessageRequestUpdated.v1",
            [],
        )  # R0-20


async def test_config_that_changed_after_submit_is_used(gesta):
    async with opened(gesta) as engine:
        await put(engine, "template", "welcome", text="old {{ n }}")
        request = await engine.submit(
            slack.Message(channel="ops", template="welcome", data={"n": 1}),
            deliver_at=datetime.now(UTC) + timedelta(hours=1),
        )
        await gesta.settle(days=0.01)
        await put(engine, "template", "welcome", text="new {{ n }}")
        await put(engine, "slack.channel", "ops", channel_id="C0MOVED")
        await put(engine, "slack.workspace", "default", token="xoxb-1111-second")
        await gesta.settle()
        assert await request.status() == "sent"
    [effect] = gesta.sandbox.slack.effects
    assert (effect.data["channel"], effect.text) == ("C0MOVED", "new 1")  # R0-3, R0-23
    assert effect.headers["authorization"] == "Bearer xoxb-1111-second"  # R0-3


async def test_the_versions_used_are_on_record(gesta):
    async with opened(gesta) as engine:
        await put(engine, "template", "welcome", text="Hello {{ n }}")
        state = await end_of(
            gesta, engine, slack.Message(channel="ops", template="welcome", data={"n": 1})
        )
        _, event, _ = (await engine.history(state.id))[-1]
    assert isinstance(event, Sent)
    assert event.used == {
        "slack.workspace/default": 1,
        "slack.channel/ops": 1,
        "template/welcome": 1,
    }


async def test_a_worker_loads_then_resolves_then_sends_then_reports(gesta, monkeypatch):
    done: list[str] = []

    def note(owner: type, method: str, said) -> None:
        original = getattr(owner, method)

        def noted(self, *given, **named):
            done.append(said(*given))
            return original(self, *given, **named)

        monkeypatch.setattr(owner, method, noted)

    async with opened(gesta) as engine:
        await put(engine, "slack.app", "robot", username="Ada")
        await put(engine, "template", "welcome", text="Hello")
        await gesta.settle(days=0.001)
        note(Loader, "load", lambda *_: "load")
        note(TenantConfig, "get", lambda kind, _: kind)
        note(Http, "exchange", lambda *_: "send")
        note(Recorder, "apply", lambda *_: "report")
        # Submitting looks at the template, too; the pipeline begins with its job.
        await engine.submit(slack.Message(channel="ops", template="welcome", app="robot"))
        done.clear()
        await gesta.settle()
    order = list(dict.fromkeys(done))
    # R0-22
    assert order == [
        "load",
        "slack.workspace",
        "slack.channel",
        "slack.app",
        "template",
        "send",
        "report",
    ]


async def test_two_workers_send_a_message_once(gesta):
    async with (
        opened(gesta, per_second=1_000, channel_per_second=1_000) as engine,
        Engine(URL, flows=[slack.flow()]),
    ):
        for number in range(50):
            await engine.submit(slack.Message(channel=PLACE, text=str(number)))
        await gesta.settle()
    assert sorted(int(given["text"]) for given in posted(gesta)) == list(
        range(50)
    )  # R0-22: held by another, it is left alone


async def test_a_lost_job_is_made_again_from_the_stream(gesta):
    async with Engine(URL, flows=[slack.flow(token="env:SLACK_TOKEN")], work=False) as asking:
        request = await asking.submit(slack.Message(channel=PLACE, text="a"))
        await asking.pipeline.projector.step()
        stores = asking.pipeline.environment.stores
        [job] = await jobs_of(asking)
        leased, _ = await stores.queue.take("thief", {job.flow: 1}, 1.0, durable=True)
        await stores.queue.settle([Ack(one.job.id, one.token) for one in leased])
        assert await jobs_of(asking) == []
    gesta.advance(120)
    async with Engine(URL, flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
        await gesta.settle()
        for _ in range(20):
            gesta.advance(15)
            await gesta.settle()
        assert (await engine.get(request.id)).state.status == "sent"
    assert [given["text"] for given in posted(gesta)] == ["a"]  # R0-4


async def test_priority_and_delay_are_honoured(gesta):
    async with opened(gesta, per_second=1_000, channel_per_second=1_000) as engine:
        await engine.admin.pause(flow="notification.slack")
        later = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(minutes=10)
        await engine.submit(slack.Message(channel=PLACE, text="delayed"), deliver_at=later)
        await engine.submit(slack.Message(channel=PLACE, text="idle"), priority=10)
        await engine.submit(slack.Message(channel=PLACE, text="urgent"), priority=1)
        await gesta.settle(days=0.001)
        await engine.admin.resume(flow="notification.slack")
        before = gesta.runtime.now_ms()
        await gesta.settle(days=300 / 86_400)
        assert [given["text"] for given in posted(gesta)] == ["urgent", "idle"]  # R0-9
        await gesta.settle()
    assert [given["text"] for given in posted(gesta)] == ["urgent", "idle", "delayed"]  # R0-9
    assert (
        float(gesta.sandbox.slack.effects[-1].id) * 1000
        >= later.timestamp() * 1000 - 1_000
        > before
    )


def test_flows_and_worker_report_through_the_recorder_only():
    closed = (
        "gesta.ports.event_store.EventStore",
        "gesta.ports.event_store.Append",
        "gesta.ports.event_store.NewEvent",
        "gesta.ports.transactions",
    )
    found = [
        f"{module.shown}: {name}"
        for folder in ("src/gesta/flows", "src/gesta/worker")
        for module in modules(ROOT, folder)
        for name, _ in imports(module)
        if name.startswith(closed)
    ]
    assert found == []  # R0-26: it appends nothing itself


async def test_every_line_about_a_message_carries_its_tags(gesta, caplog):
    caplog.set_level(logging.DEBUG, "gesta")
    async with opened(gesta) as engine:
        await put(engine, "template", "welcome", text="Hello")
        gesta.sandbox.slack.next(error="is_archived")
        message = slack.Message(channel="ops", template="welcome")
        request = await engine.submit(message, correlation_id="order-7")
        await gesta.settle()
        await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    lines = [
        msgspec.json.decode(record.getMessage())
        for record in caplog.records
        if record.name == "gesta"
    ]
    of_first = [line for line in lines if line.get("requestId") == request.id]
    assert {line["event"] for line in of_first} == {"attempt", "request failed"}
    for line in of_first:
        tags = {
            "tenant",
            "messageRequestId",
            "workspaceCode",
            "templateCode",
            "channelCode",
            "jobId",
            "correlationId",
        }
        assert {name: line[name] for name in sorted(tags)} == {
            "tenant": "default",
            "messageRequestId": request.id,
            "workspaceCode": "default",
            "templateCode": "welcome",
            "channelCode": "ops",
            "jobId": f"{request.id}-1",
            "correlationId": "order-7",
        }  # R0-27
    [other] = [
        line for line in lines if line["event"] == "attempt" and line["requestId"] != request.id
    ]
    assert "templateCode" not in other  # R0-27: only where the request has one
    assert other["correlationId"] == other["requestId"]  # S0-15
