"""The fake of Twilio: it keeps texts, and a repeat is a second text."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from gesta.outbound.http import HttpRequest
from gesta.sandbox import FakeTwilio

NOW_MS = 1_800_000_000_000
URL = "https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json"
AUTHORIZED = {"authorization": "Basic " + base64.b64encode(b"AC1:token").decode()}


def send(twilio: FakeTwilio, headers: dict[str, str] = AUTHORIZED, **form: str) -> tuple[int, Any]:
    reply = twilio.receive(HttpRequest("POST", URL, headers, urlencode(form).encode()), NOW_MS)
    return reply.status, msgspec.json.decode(reply.body)


def listed(twilio: FakeTwilio, path: str = "", **query: str | int) -> Any:
    url = f"https://api.twilio.com{path}" if path else f"{URL}?{urlencode(query)}"
    return msgspec.json.decode(twilio.receive(HttpRequest("GET", url, AUTHORIZED), NOW_MS).body)


def test_a_text_is_sent_and_found_again():
    twilio = FakeTwilio()
    status, answer = send(twilio, To="+4930123", From="+15550100", Body="hi")
    assert (status, answer["sid"], answer["status"]) == (201, twilio.effects[0].id, "queued")
    send(twilio, To="+4930999", From="+15550100", Body="other")
    [found] = listed(twilio, To="+4930123")["messages"]
    assert (found["sid"], found["body"], found["date_created"]) == (
        answer["sid"],
        "hi",
        "Fri, 15 Jan 2027 08:00:00 +0000",
    )


def test_a_repeat_is_a_second_text_and_lists_have_pages():
    twilio = FakeTwilio()
    for number in range(5):
        send(twilio, To="+4930123", From="+15550100", Body=str(number))
    first = listed(twilio, To="+4930123", PageSize=3)
    rest = listed(twilio, first["next_page_uri"])
    assert [text["body"] for text in first["messages"] + rest["messages"]] == [
        "4",
        "3",
        "2",
        "1",
        "0",
    ]
    assert rest["next_page_uri"] is None


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ({"error": "21610"}, 400, 21610),
        ({"error": "20003"}, 401, 20003),
        ({"status": 429}, 429, 20429),
        ({"status": 500}, 500, 20500),
    ],
)
def test_faults_have_the_format_of_twilio(fault, status, code):
    twilio = FakeTwilio()
    twilio.next(**fault)
    answered, answer = send(twilio, To="+4930123", From="+15550100", Body="hi")
    assert (answered, answer["code"], twilio.effects) == (status, code, [])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Basic !"},
        {"authorization": "Basic " + base64.b64encode(b"AC1:").decode()},
    ],
)
def test_without_a_token_nothing_goes(headers):
    assert send(FakeTwilio(), headers, To="+4930123", Body="hi")[0] == 401


def test_a_rule_may_be_about_a_number_or_an_account():
    twilio = FakeTwilio()
    twilio.on("+4930123", error="21610")
    assert send(twilio, To="+4930123", Body="hi")[0] == 400
    assert send(twilio, To="+4930999", Body="hi")[0] == 201
    twilio.on("AC1", error="20003")
    assert send(twilio, To="+4930999", Body="hi")[0] == 401
