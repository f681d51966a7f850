"""The fake of Slack: it keeps messages with their metadata, and a repeat is a second message."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from gesta.outbound.http import HttpRequest
from gesta.sandbox import FakeSlack

NOW_MS = 1_800_000_000_000
AUTHORIZED = {"Authorization": "Bearer xoxb-1", "Content-Type": "application/json;charset=utf-8"}


def ask(
    slack: FakeSlack,
    method: str,
    now_ms: int = NOW_MS,
    headers: dict[str, str] | None = None,
    **arguments: Any,
) -> Any:
    body = msgspec.json.encode(arguments)
    reply = slack.receive(
        HttpRequest("POST", f"https://slack.com/api/{method}", headers or AUTHORIZED, body), now_ms
    )
    return msgspec.json.decode(reply.body)


def look(slack: FakeSlack, method: str, **arguments: Any) -> Any:
    url = f"https://slack.com/api/{method}?{urlencode(arguments)}"
    return msgspec.json.decode(slack.receive(HttpRequest("GET", url, AUTHORIZED), NOW_MS).body)


def test_a_message_is_posted_and_found_again_with_its_metadata():
    slack = FakeSlack()
    metadata = {"event_type": "a", "event_payload": {"mark": "m"}}
    answer = ask(slack, "chat.postMessage", channel="C012", text="hi", metadata=metadata)
    assert (answer["ok"], answer["channel"], answer["ts"]) == (True, "C012", "1800000000.000001")
    [message] = look(slack, "conversations.history", channel="C012", include_all_metadata="1")[
        "messages"
    ]
    assert (message["ts"], message["text"], message["metadata"]) == (answer["ts"], "hi", metadata)
    assert "metadata" not in look(slack, "conversations.history", channel="C012")["messages"][0]
    assert [(effect.id, effect.text) for effect in slack.effects] == [("1800000000.000001", "hi")]


def test_a_repeat_is_a_second_message():
    slack = FakeSlack()
    for _ in range(2):
        ask(slack, "chat.postMessage", channel="C012", text="hi", client_msg_id="m")
    assert len(slack.effects) == 2


def test_history_has_pages_the_newest_first_and_no_replies():
    slack = FakeSlack()
    for number in range(5):
        ask(slack, "chat.postMessage", NOW_MS + number * 1_000, channel="C012", text=str(number))
    ask(
        slack,
        "chat.postMessage",
        NOW_MS + 9_000,
        channel="C012",
        text="reply",
        thread_ts=slack.effects[0].id,
    )
    first = look(slack, "conversations.history", channel="C012", limit=3)
    rest = look(
        slack,
        "conversations.history",
        channel="C012",
        limit=3,
        cursor=first["response_metadata"]["next_cursor"],
    )
    assert [message["text"] for message in first["messages"] + rest["messages"]] == [
        "4",
        "3",
        "2",
        "1",
        "0",
    ]
    assert (first["has_more"], rest["has_more"]) == (True, False)
    since = look(slack, "conversations.history", channel="C012", oldest=slack.effects[2].id)
    assert [message["text"] for message in since["messages"]] == ["4", "3"]
    thread = look(slack, "conversations.replies", channel="C012", ts=slack.effects[0].id)
    assert [message["text"] for message in thread["messages"]] == ["0", "reply"]


def test_a_message_to_a_person_is_in_the_conversation_with_that_person():
    slack = FakeSlack()
    assert ask(slack, "chat.postMessage", channel="U0ANN", text="hi")["channel"] == "D0ANN"
    assert ask(slack, "conversations.open", users="U0ANN")["channel"]["id"] == "D0ANN"
    assert len(look(slack, "conversations.history", channel="D0ANN")["messages"]) == 1
    assert look(slack, "conversations.history", channel="U0ANN")["error"] == "channel_not_found"


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("chat.postMessage", {"channel": "#general", "text": "a"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "C012"}, "no_text"),
        ("chat.shout", {}, "unknown_method"),
    ],
)
def test_slack_refuses_with_status_200(method, arguments, error):
    slack = FakeSlack()
    assert ask(slack, method, **arguments) == {"ok": False, "error": error}
    assert slack.effects == []


def test_without_a_token_nothing_goes():
    slack = FakeSlack()
    assert (
        ask(slack, "auth.test", headers={"Content-Type": "application/json"})["error"]
        == "not_authed"
    )
    assert ask(slack, "auth.test")["ok"]


def test_faults_have_the_format_of_slack():
    slack = FakeSlack()
    slack.next(status=429, retry_after=30)
    reply = slack.receive(
        HttpRequest("POST", "https://slack.com/api/auth.test", AUTHORIZED), NOW_MS
    )
    assert (
        reply.status,
        reply.headers["retry-after"],
        msgspec.json.decode(reply.body)["error"],
    ) == (429, "30", "ratelimited")
    slack.on("xoxb-1", error="token_revoked")
    assert ask(slack, "chat.postMessage", channel="C012", text="a")["error"] == "token_revoked"
    slack.heal()
    slack.on("C013", error="is_archived")
    assert ask(slack, "chat.postMessage", channel="C013", text="a")["error"] == "is_archived"
    assert ask(slack, "chat.postMessage", channel="C012", text="a")["ok"]
    slack.next(drop=True)
    assert slack.receive(
        HttpRequest(
            "POST",
            "https://slack.com/api/chat.postMessage",
            AUTHORIZED,
            b'{"channel": "C012", "text": "b"}',
        ),
        NOW_MS,
    ).drop
    assert [effect.text for effect in slack.effects] == ["a", "b"]
