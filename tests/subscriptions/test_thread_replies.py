"""One reply in the thread for each outcome of a ticket, and never a second issue."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import Engine
from gesta.engine.request import Request
from gesta.errors import BadConfig
from gesta.flows import slack, ticket
from gesta.intake.inbound import slack as slack_events
from gesta.intake.inbound.inbox import Receipt
from gesta.runtime.settings import Settings
from gesta.sandbox.slack import message_event, signed
from gesta.testing.plugin import Harness

SECRET, TEAM, CHANNEL = "a-signing-secret", "T123ABC", "C123ABC"
KEYWORD = "Backlog登録希望"
CREATED = "課題を登録しました: PRJ7-1 https://example.backlog.com/view/PRJ7-1"
FAILED = "課題を登録できませんでした。管理者に連絡してください。"


def engine_of(**settings: Any) -> Engine:
    chosen = Settings(url="sqlite:///replies.db", **settings)
    return Engine(settings=chosen, flows=[slack.flow(), ticket.flow(), slack_events.flow()])


async def set_up(engine: Engine, **team: Any) -> None:
    put = engine.admin.put_config
    await put("slack.team", TEAM, {"signing_secret": SECRET} | team)
    await put("slack.workspace", "default", {"token": "xoxb-sandbox"})
    await put("backlog.space", "default", {"host": "example.backlog.com", "api_key": "k"})
    await put("backlog.project", "default", {"project_id": 7, "issue_type_id": 8})


async def post(engine: Engine, gesta: Harness, text: str, number: int = 1, **more: Any) -> Receipt:
    envelope = message_event(
        text,
        **{"event_id": f"Ev{number}", "ts": f"1700000000.{number:06d}", "team": TEAM}
        | {"channel": CHANNEL}
        | more,
    )
    posting = signed(envelope, SECRET, gesta.runtime.now_ms() // 1000)
    headers = {name.lower(): value for name, value in posting.headers.items()}
    found = await engine.pipeline.inbox.take("slack", "default", (), headers.get, posting.body)
    assert isinstance(found, list)
    return found[0]


def replies(gesta: Harness) -> list[tuple[str, str, str]]:
    return [
        (one.text, one.data["channel"], one.data["thread_ts"])
        for one in gesta.sandbox.slack.effects
    ]


async def test_the_thread_gets_the_key_of_the_issue(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
    assert replies(gesta) == [(CREATED, CHANNEL, "1700000000.000001")]  # S3-4


async def test_a_message_inside_a_thread_is_answered_in_that_thread(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        await post(engine, gesta, f"{KEYWORD} x", thread_ts="1699999999.000100")
        await gesta.settle()
    assert [thread for _, _, thread in replies(gesta)] == ["1699999999.000100"]


async def test_a_reply_that_fails_is_tried_again_and_the_issue_is_not_created_again(
    gesta: Harness,
) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        gesta.sandbox.slack.next(error="service_unavailable", times=2)
        await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
    assert len(gesta.sandbox.backlog.effects) == 1  # S3-4
    assert [text for text, _, _ in replies(gesta)] == [CREATED]


async def test_a_bot_that_is_not_in_the_channel_makes_no_dead_letter(
    gesta: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine_of(alerts_to="notification.slack:C0PS") as engine:
        await set_up(engine)
        gesta.sandbox.slack.on(CHANNEL, error="not_in_channel")
        receipt = await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle(days=1)
        assert receipt.request is not None
        view = await engine.get(receipt.request.request_id)
        assert view.state.status == "completed"  # S3-29
        failed = await engine.find(status="failed")
        assert [one.state.purged for one in failed] == [True]
    assert len(gesta.sandbox.backlog.effects) == 1
    assert "reply in the thread refused" in caplog.text
    # Nothing was posted: no alert about the reply either.
    assert gesta.sandbox.slack.effects == []


async def test_a_dead_letter_is_reported_once_without_details(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        gesta.sandbox.backlog.next(error="7", times=2)
        receipt = await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
        assert replies(gesta) == [(FAILED, CHANNEL, "1700000000.000001")]  # S3-28
        assert receipt.request is not None
        request = await engine.request(receipt.request.request_id)
        await request.redrive()
        await gesta.settle()
        assert len(replies(gesta)) == 1  # S3-28: it failed again
        await request.redrive()
        await gesta.settle()
    assert [text for text, _, _ in replies(gesta)] == [FAILED, CREATED]
    assert len(gesta.sandbox.backlog.effects) == 1


async def reply_of(engine: Engine, status: str) -> Request:
    (view,) = await engine.find(flow="notification.slack", status=status)
    return await engine.request(view.state.id)


async def test_a_redriven_failure_reply_is_not_sent_after_the_ticket_succeeded(
    gesta: Harness,
) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        gesta.sandbox.backlog.next(error="7")
        gesta.sandbox.slack.next(error="service_unavailable", times=5)
        receipt = await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
        reply = await reply_of(engine, "failed")
        assert receipt.request is not None
        await (await engine.request(receipt.request.request_id)).redrive()
        await gesta.settle()
        await reply.redrive()
        await gesta.settle()
        assert [text for text, _, _ in replies(gesta)] == [CREATED]  # S3-28: the last word is true
        view = await engine.get(reply.id)
    assert (view.state.status, view.state.reason) == ("cancelled", "outdated")


async def test_a_failure_reply_that_waits_is_not_sent_once_the_ticket_has_succeeded(
    gesta: Harness,
) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        gesta.sandbox.backlog.next(error="7")
        await engine.admin.pause(flow="notification.slack")
        receipt = await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
        assert receipt.request is not None
        await (await engine.request(receipt.request.request_id)).redrive()
        await gesta.settle()
        await engine.admin.resume(flow="notification.slack")
        await gesta.settle()
    assert [text for text, _, _ in replies(gesta)] == [CREATED]


async def test_a_failure_reply_waits_while_its_ticket_is_under_way(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        gesta.sandbox.backlog.next(error="7", times=2)
        gesta.sandbox.slack.next(error="service_unavailable", times=5)
        receipt = await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
        reply = await reply_of(engine, "failed")
        await engine.admin.pause(flow="ticket.backlog")
        assert receipt.request is not None
        await (await engine.request(receipt.request.request_id)).redrive()
        await reply.redrive()
        await gesta.settle(days=0.01)
        assert replies(gesta) == []
        await engine.admin.resume(flow="ticket.backlog")
        await gesta.settle()
    assert [text for text, _, _ in replies(gesta)] == [FAILED]  # S3-28: it failed again


async def test_a_lost_checkpoint_causes_no_second_reply(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
        consumer = next(
            one
            for one in engine.pipeline.subscriptions.subscribers
            if one.name == "gesta/thread-replies"
        )
        events = await engine.pipeline.environment.stores.events.follow(0, 1_000)
        words = consumer._words(events, lambda flow: flow == "ticket.backlog")
        reported = await consumer._status_events(
            events, {at: one for at, one in words.items() if one[0] == "completed"}
        )
        await consumer._handle(list(reported.values()))  # type: ignore[attr-defined]
        await gesta.settle()
    assert len(replies(gesta)) == 1


async def test_a_team_may_want_no_replies(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine, reply=False)
        await post(engine, gesta, f"{KEYWORD} x")
        await gesta.settle()
    assert len(gesta.sandbox.backlog.effects) == 1
    assert replies(gesta) == []


async def test_a_reply_must_not_contain_the_keyword(gesta: Harness) -> None:
    async with engine_of() as engine:
        with pytest.raises(BadConfig) as refused:
            await set_up(engine, reply_created=f"次は {KEYWORD} {{key}}")
    assert set(refused.value.fields) == {"reply_created"}  # S3-20
    assert KEYWORD not in CREATED
    assert KEYWORD not in FAILED


async def test_a_ticket_of_a_program_gets_no_reply(gesta: Harness) -> None:
    async with engine_of() as engine:
        await set_up(engine)
        await engine.submit(ticket.Ticket("from a program"))
        await gesta.settle()
    assert len(gesta.sandbox.backlog.effects) == 1
    assert gesta.sandbox.slack.effects == []
