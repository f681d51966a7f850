"""POST /inbound/slack/events: verified, deduplicated, stored before the answer."""

from __future__ import annotations

import asyncio
import io
import json
import time
from typing import Any

import pytest

from gesta.errors import StoreError
from gesta.intake.submit import Intake
from gesta.sandbox.slack import signed
from tests.intake.inbound.slack_posts import CHANNEL, KEYWORD, SECRET, TEAM
from tests.intake.inbound.stage import PATH, Stage

FORGED = "the signature is not valid for this address"


async def test_a_message_with_the_keyword_becomes_an_issue(slack_to_backlog: Stage) -> None:
    stage = slack_to_backlog
    answer = await stage.post(stage.event(f"{KEYWORD} プリンターを交換する"))
    assert (answer.status, answer.body["events"]) == (
        200,
        [{"id": f"slack-{TEAM}-Ev00000001", "verdict": "accepted"}],
    )
    await stage.ended("completed")
    assert stage.issues == ["プリンターを交換する"]  # R3-18, R3-19


async def test_other_text_creates_nothing_and_its_verdict_is_recorded(
    slack_to_backlog: Stage,
) -> None:
    stage = slack_to_backlog
    answer = await stage.post(stage.event("おはよう、秘密の話"))
    assert (answer.status, answer.body["events"][0]["verdict"]) == (200, "ignored")
    (view,) = await stage.ended("ignored", flow="inbound.slack")
    assert (view.state.reason, view.state.key) == ("no_keyword", f"slack-{TEAM}-Ev00000001")
    assert b"\xe7\xa7\x98\xe5\xaf\x86" not in view.payload
    assert await stage.of("ticket.backlog") == []  # R3-19
    assert stage.api.sandbox.backlog.calls == 0


async def test_url_verification_is_answered_only_with_a_valid_signature(here: Stage) -> None:
    asked = {"type": "url_verification", "challenge": "3eZbrw1aB10", "token": "x"}
    answer = await here.post(asked)
    assert (answer.status, answer.body) == (200, {"challenge": "3eZbrw1aB10"})  # R3-20, D-7
    assert (await here.post(asked, secret="other")).status == 403  # S3-19
    assert await here.everything() == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"X_Slack_Signature": None},
        {"X_Slack_Request_Timestamp": None},
        {"X_Slack_Signature": "v0=" + "0" * 64},
        {"X_Slack_Signature": "v1=" + "0" * 64},
        {"X_Slack_Signature": "ä"},
        {"X_Slack_Signature": ""},
        {"X_Slack_Request_Timestamp": "1e9"},
        {"X_Slack_Request_Timestamp": "-5"},
        {"X_Slack_Request_Timestamp": "9" * 400},
    ],
)
async def test_a_request_without_a_valid_signature_is_refused(
    here: Stage, changes: dict[str, Any]
) -> None:
    answer = await here.post(here.event(f"{KEYWORD} x"), **changes)
    # R3-20, S3-19: whatever is wrong with it, the answer is the same
    assert (answer.status, answer.body["code"], answer.body["detail"]) == (403, "forged", FORGED)
    assert await here.everything() == 0


@pytest.mark.parametrize(
    ("age_seconds", "status"), [(290, 200), (310, 403), (-290, 200), (-310, 403)]
)
async def test_a_timestamp_is_valid_for_300_seconds(
    here: Stage, age_seconds: int, status: int
) -> None:
    answer = await here.post(here.event(f"{KEYWORD} x"), age_seconds=age_seconds)
    assert answer.status == status  # R3-20, D-7


async def test_a_body_that_was_changed_after_signing_is_refused_unread(here: Stage) -> None:
    posting = signed(here.event(f"{KEYWORD} x"), SECRET, round(time.time()))
    changed = type(posting)(posting.body + b" ", posting.headers)
    assert (await here.send(changed)).status == 403  # S3-19
    # Not parsed before it is verified: this is no JSON, and says nothing else.
    broken = type(posting)(b"{", posting.headers)
    assert (await here.send(broken)).body["code"] == "forged"  # S3-19


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"type": "event_callback", "team_id": "T123ABC"}',
        b'{"type": "event_callback", "team_id": "T123ABC", "event_id": "a/b", "event": {}}',
        b'{"type": "event_callback", "team_id": "T123ABC", "event_id": "E", "event": []}',
        b'{"type": "who_knows", "team_id": "T123ABC", "event_id": "E"}',
        b"[" * 10_000,
    ],
)
async def test_a_signed_body_that_is_no_event_is_400_and_not_repeated(
    here: Stage, body: bytes
) -> None:
    answer = await here.post(body)
    assert (answer.status, answer.headers.get("X-Slack-No-Retry")) == (400, "1")  # D-8
    assert await here.everything() == 0


@pytest.mark.parametrize(
    "event",
    [
        {"channel": "general"},
        {"channel": {"id": "C1"}},
        {"ts": "soon"},
        {"ts": "1700000000"},
        {"user": None},
        {"user": {"id": "U1"}},
        {"user": "U1\n"},
        {"thread_ts": "../x"},
    ],
)
async def test_a_message_without_a_valid_place_is_refused(
    here: Stage, event: dict[str, Any]
) -> None:
    answer = await here.post(here.event(f"{KEYWORD} x", **event))
    assert answer.status == 400
    assert await here.everything() == 0


async def test_an_oversized_body_is_413(here: Stage) -> None:
    posting = signed(here.event(f"{KEYWORD} " + "x" * 1_100_000), SECRET, round(time.time()))
    url, body = here.api.address + PATH, io.BytesIO(posting.body)
    async with here.api.session.post(url, data=body, headers=posting.headers) as answer:
        assert answer.status == 413
    assert await here.everything() == 0


async def test_a_longest_possible_text_is_accepted(here: Stage) -> None:
    """Slack cuts at 40,000 characters, which are up to 160,000 bytes."""
    text = f"{KEYWORD} " + "𩸽" * 39_900
    blocks = [{"type": "rich_text", "elements": [{"type": "text", "text": text}]}]
    answer = await here.post(here.event(text, blocks=blocks))
    assert answer.status == 200
    await here.ended("completed")
    assert len(here.issues[0]) == 255  # S3-22


async def test_each_team_has_its_own_secret(here: Stage) -> None:
    await here.put("slack.team", "T2", signing_secret="second-secret")
    assert (await here.post(here.event(f"{KEYWORD} one"))).status == 200
    answer = await here.post(here.event(f"{KEYWORD} two", team="T2"), secret="second-secret")
    assert answer.status == 200
    # One team's secret does not speak for another team.
    for team, secret in ((TEAM, "second-secret"), ("T2", SECRET), ("T404", SECRET)):
        answer = await here.post(here.event(f"{KEYWORD} x", team=team), secret=secret)
        assert (answer.status, answer.body["detail"]) == (403, FORGED)
    await here.ended("completed", 2)
    assert sorted(here.issues) == ["one", "two"]


async def test_a_tenant_cannot_post_events_of_another_tenants_team_or_channel(here: Stage) -> None:
    await here.set_up("acme", "T9", "acme-secret")
    before = await here.everything()
    for path in (PATH, f"{PATH}/acme", f"{PATH}/nobody", f"{PATH}/%20"):
        for team, secret in (("T9", SECRET), (TEAM, "acme-secret")):
            answer = await here.post(
                here.event(f"{KEYWORD} x", team=team), secret=secret, path=path
            )
            assert (answer.status, answer.body["detail"]) == (403, FORGED)
    assert await here.everything() == before
    # Its own it can.
    own = here.event(f"{KEYWORD} own", team="T9", channel=CHANNEL)
    assert (await here.post(own, secret="acme-secret", path=f"{PATH}/acme")).status == 200
    assert [len(await here.of("ticket.backlog", tenant=one)) for one in ("default", "acme")] == [
        0,
        1,
    ]


async def test_a_tenant_cannot_use_up_the_event_ids_of_another_one(here: Stage) -> None:
    await here.set_up("acme", secret="acme-secret")
    theirs = here.event(f"{KEYWORD} theirs", event_id="Ev0SAME")
    assert (await here.post(theirs, secret="acme-secret", path=f"{PATH}/acme")).status == 200
    ours = await here.post(here.event(f"{KEYWORD} ours", event_id="Ev0SAME"))
    assert ours.body["events"][0]["verdict"] == "accepted"


async def test_a_rotated_secret_is_accepted_beside_the_new_one(here: Stage) -> None:
    await here.put("slack.team", TEAM, signing_secret="fresh")
    for secret in ("fresh", SECRET):
        assert (await here.post(here.event("hi"), secret=secret)).status == 200


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"bot_id": "B1"}, "bot_message"),
        ({"subtype": "bot_message", "user": None}, "bot_message"),
        ({"app_id": "A0SANDBOX", "bot_id": "B0"}, "own_message"),
        ({"subtype": "message_changed", "user": None}, "edited"),
        ({"subtype": "message_deleted", "user": None}, "deleted"),
        ({"subtype": "channel_join"}, "not_written_by_a_person"),
        ({"type": "reaction_added", "channel": None}, "not_a_message"),
        ({"type": "channel_created", "channel": {"id": "C1"}}, "not_a_message"),
    ],
)
async def test_bots_edits_and_our_own_messages_are_ignored_with_a_verdict(
    here: Stage, event: dict[str, Any], reason: str
) -> None:
    answer = await here.post(here.event(f"{KEYWORD} loop", **event))
    assert answer.status == 200
    (view,) = await here.ended("ignored", flow="inbound.slack")
    assert view.state.reason == reason  # S3-20
    assert await here.of("ticket.backlog") == []


async def test_an_ignored_event_that_comes_again_is_recorded_once(slack_to_backlog: Stage) -> None:
    for _ in range(3):
        answer = await slack_to_backlog.post(slack_to_backlog.event("hello", 7))
        assert answer.status == 200
    assert len(await slack_to_backlog.ended("ignored", flow="inbound.slack")) == 1  # R3-6


async def test_a_team_may_keep_no_record_of_ignored_messages(here: Stage) -> None:
    await here.put("slack.team", TEAM, signing_secret=SECRET, record_ignored=False)
    assert (await here.post(here.event("hello"))).body["events"][0]["verdict"] == "ignored"
    assert await here.everything() == 0


async def test_only_configured_channels_count(here: Stage) -> None:
    await here.put("slack.team", TEAM, signing_secret=SECRET, channels=["C777"])
    await here.post(here.event(f"{KEYWORD} elsewhere"))
    await here.post(here.event(f"{KEYWORD} here", channel="C777"))
    await here.ended("completed")
    assert here.issues == ["here"]
    (view,) = await here.ended("ignored", flow="inbound.slack")
    assert view.state.reason == "channel_not_configured"


async def test_repeats_of_an_event_create_one_issue(slack_to_backlog: Stage) -> None:
    stage = slack_to_backlog
    event = stage.event(f"{KEYWORD} once")
    verdicts = []
    for retry in range(4):
        # S3-18: a repeat by Slack is not dropped by its header, but recognised by its id
        answer = await stage.post(event, X_Slack_Retry_Num=str(retry))
        verdicts.append(answer.body["events"][0]["verdict"])
    assert verdicts == ["accepted", "duplicate", "duplicate", "duplicate"]
    await stage.ended("completed")
    assert stage.issues == ["once"]  # R3-6


async def test_two_events_about_one_message_create_one_issue(slack_to_backlog: Stage) -> None:
    stage = slack_to_backlog
    text = f"<@U0BOT> {KEYWORD} once"
    await stage.post(stage.event(text, 1, event_id="EvMessage"))
    again = await stage.post(stage.event(text, 1, event_id="EvMention", type="app_mention"))
    assert again.body["events"][0]["verdict"] == "duplicate"
    await stage.ended("completed")
    assert stage.issues == ["once"]  # S3-2


async def test_an_event_id_that_comes_with_another_message_creates_nothing(
    slack_to_backlog: Stage,
) -> None:
    stage = slack_to_backlog
    first = stage.event(f"{KEYWORD} once", event_id="Ev0SAME")
    other = stage.event(f"{KEYWORD} twice", event_id="Ev0SAME")
    verdicts = [
        (await stage.post(one)).body["events"][0]["verdict"] for one in (first, other, first)
    ]
    assert verdicts == ["accepted", "duplicate", "duplicate"]  # R3-6
    await stage.ended("completed")
    assert stage.issues == ["once"]


async def test_an_event_whose_id_was_claimed_before_a_crash_is_accepted_when_it_comes_again(
    slack_to_backlog: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, event = slack_to_backlog, slack_to_backlog.event(f"{KEYWORD} once")

    async def lost(*_: object) -> None:
        raise StoreError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(Intake, "submit", lost)
        assert (await stage.post(event)).status == 503  # S3-18
    assert (await stage.post(event)).body["events"][0]["verdict"] == "accepted"
    await stage.ended("completed")
    assert stage.issues == ["once"]


async def test_a_stored_event_is_the_message_of_the_document(here: Stage) -> None:
    await here.post(here.event(f"{KEYWORD} タスク", thread_ts="1699999999.000100"))
    (view,) = await here.ended("completed")
    stored = json.loads(view.payload)["event"]
    metadata = stored["data"].pop("metadata")
    assert stored["data"]["slackEvent"] == {  # R3-3
        "type": "message",
        "channel": CHANNEL,
        "user": "U0PERSON",
        "text": f"{KEYWORD} タスク",
        "ts": "1700000000.000001",
        "team": TEAM,
    }
    assert (stored["messageId"], stored["source"], stored["eventType"], stored["retryCount"]) == (
        f"slack-{TEAM}-Ev00000001",  # S3-25
        "slack-event-ingest",  # R3-2
        "slack.message",
        0,
    )
    assert metadata["eventId"] == "Ev00000001"  # S3-1
    assert metadata["threadTs"] == "1699999999.000100"
    # S3-6: verified, and useless to its reader
    assert metadata["signatureVerified"] is True
    assert len(metadata["signature"]) == len("v0=a2114d57…")
    # R3-4: the id of our own server's request
    assert len(metadata["apiGatewayRequestId"]) == 36
    assert metadata["receivedAt"].endswith("Z")
    assert metadata["signatureTimestamp"].isdecimal()


async def test_events_at_once_read_the_config_once(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, reads = here.api.engine.pipeline.config, 0
    refresh = config.refresh

    async def counted(tenant: str) -> None:
        nonlocal reads
        reads += 1
        await refresh(tenant)

    monkeypatch.setattr(config, "refresh", counted)
    here.api.engine.pipeline.inbox._read_at.clear()
    events = [here.event(f"{KEYWORD} {n}") for n in range(10)]
    answers = await asyncio.gather(*(here.post(event) for event in events))
    assert [answer.status for answer in answers] == [200] * 10
    assert reads <= 2
