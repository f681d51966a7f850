"""ticket.backlog: what is sent to Backlog, what its answers mean, and how a lost issue is found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta import Engine, InvalidRequest
from gesta.flows import ticket
from gesta.flows.ticket.issue import Issue, issue_of
from gesta.flows.ticket.message import Ticket
from gesta.intake.inbound.slack_text import after_keyword, plain
from gesta.testing.plugin import Harness
from tests.domain.event_document import DOCUMENT
from tests.domain.test_event_message import message

KEYWORD = "Backlog登録希望"


async def set_up(engine: Engine, **space: Any) -> None:
    fields = {"host": "example.backlog.com", "api_key": "key-1", "per_second": 1_000}
    await engine.admin.put_config("backlog.space", "default", fields | space)
    project = {"project_id": 7, "issue_type_id": 8}
    await engine.admin.put_config("backlog.project", "default", project)


def slack_ticket(text: str, **event: str) -> Ticket:
    changed = DOCUMENT["data"]["slackEvent"] | {"text": text} | event
    return Ticket(event=message(data=DOCUMENT["data"] | {"slackEvent": changed}))


async def run(gesta: Harness, one: Ticket) -> Any:
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine)
        request = await engine.submit(one)
        await gesta.settle()
        return (await request.view()).state


async def test_an_issue_is_created_from_form_fields(gesta: Harness) -> None:
    state = await run(gesta, Ticket("Replace the printer", "On the second floor"))
    (effect,) = gesta.sandbox.backlog.effects
    assert effect.headers["content-type"] == "application/x-www-form-urlencoded"  # S3-26, D-17
    assert {name: effect.data[name] for name in ("projectId", "issueTypeId", "priorityId")} == {
        "projectId": "7",
        "issueTypeId": "8",
        "priorityId": "3",
    }
    assert effect.data["summary"] == "Replace the printer"
    assert (state.status, state.provider_id) == ("completed", "PRJ7-1")
    assert state.target_id == "https://example.backlog.com/view/PRJ7-1"


async def test_a_body_that_is_not_form_encoded_is_refused_by_the_fake(gesta: Harness) -> None:
    """The original of this contract posted JSON and never created an issue."""
    from gesta.outbound.http import HttpRequest

    request = HttpRequest(
        "POST",
        "https://example.backlog.com/api/v2/issues?apiKey=k",
        {"content-type": "application/json"},
        b'{"projectId": 7, "summary": "x", "issueTypeId": 8, "priorityId": 3}',
    )
    assert gesta.sandbox.backlog.receive(request, 0).status == 400  # S3-26


async def test_an_issue_of_a_slack_message_says_where_it_comes_from(gesta: Harness) -> None:
    await run(
        gesta, slack_ticket(f"{KEYWORD} プリンター\n二階 &lt;急ぎ&gt; <https://a.example|資料>")
    )
    (effect,) = gesta.sandbox.backlog.effects
    assert effect.data["summary"] == "プリンター"  # S3-22
    lines = effect.data["description"].splitlines()
    assert lines[:2] == ["プリンター", "二階 <急ぎ> 資料 (https://a.example)"]  # S3-21
    assert "Slack: https://slack.com/archives/C123ABC/p1234567890123456" in lines
    assert "User: U123ABC" in lines
    assert "Channel: C123ABC" in lines
    assert "Time: 2009-02-13T23:31:30Z" in lines
    assert lines[-1] == "slack:T123ABC/C123ABC/1234567890.123456"  # S3-5


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"{KEYWORD} タスク", " タスク"),
        (f"{KEYWORD}タスク", "タスク"),
        (f"  <@U1> <@U2|bob> {KEYWORD}　タスク", "　タスク"),
        ("Ｂａｃｋｌｏｇ登録希望 full width", " full width"),
        (f"<!here> {KEYWORD}", ""),
        ("\ufeff" + KEYWORD + "\nx", "\nx"),
        (f"please {KEYWORD} x", None),
        ("backlog登録希望 x", None),
        ("Backlog登録", None),
        ("", None),
        ("<@U1>", None),
    ],
)
def test_the_keyword_is_a_prefix_after_mentions(text: str, rest: str | None) -> None:
    assert after_keyword(text, KEYWORD) == rest  # R3-19, S3-21


def test_a_team_may_look_for_the_keyword_anywhere() -> None:
    assert after_keyword(f"please {KEYWORD} x", KEYWORD, "contains") == " x"  # S3-21
    assert after_keyword("please x", KEYWORD, "contains") is None


def test_a_keyword_with_composed_characters_is_found_in_both_forms() -> None:
    composed, decomposed = "チケットが欲しい", "チケットか\u3099欲しい"
    assert after_keyword(f"{decomposed} x", composed) == " x"  # S3-21
    assert after_keyword(f"{composed} x", decomposed) == " x"
    # The mark belongs to the last character, which is another one then.
    assert after_keyword("チケットか\u3099", "チケットか") is None


@given(st.text(max_size=60))
def test_any_text_has_a_rest_that_it_ends_with(text: str) -> None:
    rest = after_keyword(KEYWORD + text, KEYWORD)
    # A combining mark behind the keyword changes its last character.
    assert rest is None or (KEYWORD + text).endswith(rest)
    plain(text)


class _Config:
    def get(self, kind: str, code: str) -> None:
        return None


class _Attempt:
    tenant, request_id, config = "default", "r1", _Config()


def issue(text: str) -> Issue:
    return issue_of(slack_ticket(text), _Attempt())  # type: ignore[arg-type]


@given(st.text(max_size=400))
def test_hostile_text_never_breaks_out_of_its_field(text: str) -> None:
    made = issue(f"{KEYWORD} {text}")
    assert 0 < len(made.summary) <= 255  # S3-22
    assert made.summary.isprintable() or not re.search(r"[\x00-\x1f\x7f]", made.summary)
    assert "\n" not in made.summary
    assert made.description.splitlines()[-1] == made.marker
    markers = [line for line in made.description.splitlines() if line.startswith("slack:")]
    assert markers == ["slack:T123ABC/C123ABC/1234567890.123456"]


def test_a_message_cannot_pose_as_the_issue_of_another() -> None:
    victim = "slack:T123ABC/C123ABC/1700000000.000001"
    for text in (victim, f"\n{victim}\n", f"\r{victim}\u2028", f"  {victim}  ", "\x00" + victim):
        made = issue(f"{KEYWORD} x\n{text}")
        assert victim not in [line.strip() for line in made.description.splitlines()]  # S3-5


def test_a_message_with_nothing_but_the_keyword_has_a_default_summary() -> None:
    assert issue(f"{KEYWORD}  \n ").summary == "Slackから登録されたタスク"  # S3-22


@pytest.mark.parametrize(
    ("stored", "project"),
    [
        ((), "7"),
        (("T123ABC",), "20"),
        (("T123ABC", "T123ABC.C123ABC"), "21"),
        (("T999", "T123ABC.C999"), "7"),
    ],
)
async def test_the_project_is_that_of_the_channel_or_of_the_team(
    gesta: Harness, stored: tuple[str, ...], project: str
) -> None:
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine)
        for number, code in enumerate(stored):
            fields = {"project_id": 20 + number, "issue_type_id": 1, "priority_id": 2}
            await engine.admin.put_config("backlog.project", code, fields)
        await engine.submit(slack_ticket(f"{KEYWORD} x"))
        await gesta.settle()
    assert gesta.sandbox.backlog.effects[0].data["projectId"] == project  # S3-29


async def test_a_lost_answer_is_found_by_its_marker_and_creates_no_second_issue(
    gesta: Harness,
) -> None:
    gesta.sandbox.backlog.next(drop=True)
    state = await run(gesta, slack_ticket(f"{KEYWORD} x"))
    assert (state.status, state.provider_id) == ("completed", "PRJ7-1")
    assert len(gesta.sandbox.backlog.effects) == 1  # S3-5


async def test_an_issue_that_was_never_created_is_created_after_the_search(gesta: Harness) -> None:
    gesta.sandbox.backlog.next(status=502)
    state = await run(gesta, slack_ticket(f"{KEYWORD} x"))
    assert (state.status, state.attempts) == ("completed", 2)
    assert len(gesta.sandbox.backlog.effects) == 1  # S3-5


async def test_the_marker_is_searched_before_a_forced_redrive_creates_again(
    gesta: Harness,
) -> None:
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine)
        gesta.sandbox.backlog.next(drop=True)
        # The search fails for good, so that the outcome stays unknown.
        gesta.sandbox.backlog.on("find", error="7")
        request = await engine.submit(slack_ticket(f"{KEYWORD} x"))
        await gesta.settle()
        assert (await request.view()).state.status == "unknown"
        gesta.sandbox.backlog.heal()
        await request.redrive(again=True)
        await gesta.settle()
        assert (await request.view()).state.status == "completed"
    assert len(gesta.sandbox.backlog.effects) == 1  # S3-5


async def test_three_tries_are_made_and_no_more(gesta: Harness, monkeypatch: Any) -> None:
    from gesta.outbound.http import TransportError
    from gesta.sandbox import SandboxTransport

    tries = 0

    async def refused(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise TransportError("refused", sent=False)

    monkeypatch.setattr(SandboxTransport, "send", refused)
    state = await run(gesta, Ticket("x"))
    assert state.status == "failed"
    # R3-9, S3-10: the search before a repeat fails in the same way
    assert tries == 3
    assert (state.attempts, state.reason) == (3, "max_attempts_exceeded")


async def test_the_waits_between_tries_are_those_of_the_contract() -> None:
    retry = ticket.flow().rules.retry
    assert retry.attempts == 3  # R3-9
    waits = [retry.delay_seconds(made, 0.0) for made in (1, 2, 3)]
    # R3-8: as long as an undeleted message stays hidden, and longer before the last try
    assert waits == [60.0, 300.0, None]


async def test_an_outage_of_backlog_of_five_minutes_makes_no_dead_letter(
    gesta: Harness, monkeypatch: Any
) -> None:
    from gesta.outbound.http import TransportError
    from gesta.sandbox import SandboxTransport

    send, until = SandboxTransport.send, gesta.runtime.now_ms() + 300_000

    async def refused(self: SandboxTransport, request: Any) -> Any:
        if gesta.runtime.now_ms() < until:
            raise TransportError("refused", sent=False)
        return await send(self, request)

    monkeypatch.setattr(SandboxTransport, "send", refused)
    assert (await run(gesta, Ticket("x"))).status == "completed"


async def test_a_rate_limit_is_waited_for_and_uses_up_no_attempt(gesta: Harness) -> None:
    gesta.sandbox.backlog.reset_seconds = 45
    gesta.sandbox.backlog.next(status=429)
    began = gesta.runtime.now_ms()
    state = await run(gesta, Ticket("x"))
    assert (state.status, state.attempts) == ("completed", 1)
    assert gesta.runtime.now_ms() - began >= 44_000  # D-18: until X-RateLimit-Reset


async def test_an_answer_without_remaining_calls_closes_the_space(gesta: Harness) -> None:
    gesta.sandbox.backlog.remaining, gesta.sandbox.backlog.reset_seconds = 0, 30
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine)
        await (await engine.submit(Ticket("one"))).outcome()
        began = gesta.runtime.now_ms()
        second = await engine.submit(Ticket("two"))
        await gesta.settle()
        assert (await second.view()).state.updated_at - began >= 28_000  # D-18


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("2", "licence_error"),
        ("4", "access_denied"),
        ("5", "unauthorized_operation"),
        ("6", "no_resource"),
        ("7", "invalid_request"),
        ("8", "space_over_capacity"),
        ("99", "backlog_other"),
    ],
)
async def test_a_permanent_error_of_backlog_is_a_dead_letter(
    gesta: Harness, code: str, reason: str
) -> None:
    gesta.sandbox.backlog.next(error=code)
    state = await run(gesta, Ticket("x"))
    assert (state.status, state.reason, state.attempts) == ("failed", reason, 1)  # D-18


async def test_the_fake_refuses_with_an_error_by_its_name(gesta: Harness) -> None:
    gesta.sandbox.backlog.next(error="no_resource")
    state = await run(gesta, Ticket("x"))
    assert (state.status, state.reason) == ("failed", "no_resource")


async def test_the_fake_answers_an_error_that_backlog_does_not_have(gesta: Harness) -> None:
    gesta.sandbox.backlog.next(error="who_knows")
    assert (await run(gesta, Ticket("x"))).status == "failed"


async def test_the_api_key_is_in_no_event_and_no_dead_letter(gesta: Harness) -> None:
    gesta.sandbox.backlog.next(error="7")
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine, api_key="very-secret-key")
        request = await engine.submit(Ticket("x"))
        await gesta.settle()
        history = await engine.history(request.id)
    assert "very-secret-key" not in repr(history)  # S3-13


async def test_a_ticket_without_its_project_is_held_until_the_project_is_stored(
    gesta: Harness,
) -> None:
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine)
        request = await engine.submit(Ticket("x", project="shop"))
        await gesta.settle()
        state = (await request.view()).state
        assert (state.status, state.attempts) == ("queued", 0)
        (held,) = await engine.admin.paused()
        assert held.scope.credential == "backlog.project/shop"
        assert held.reason.startswith("project_missing: ")
        assert "gesta config put backlog.project shop" in held.reason
        project = {"project_id": 1, "issue_type_id": 2}
        await engine.admin.put_config("backlog.project", "shop", project)
        await gesta.settle()
        assert (await request.view()).state.status == "completed"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (Ticket(), "summary"),
        (Ticket("  "), "summary"),
        (Ticket("two\nlines"), "summary"),
        (Ticket("x" * 256), "summary"),
        (Ticket("x", event=message()), "event"),
    ],
)
async def test_a_ticket_that_makes_no_issue_is_refused(
    gesta: Harness, wrong: Ticket, field: str
) -> None:
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(wrong)
        assert set(refused.value.fields) == {field}


async def test_the_fields_are_those_that_backlog_names(gesta: Harness) -> None:
    async with Engine("sqlite:///t.db", flows=[ticket.flow()]) as engine:
        await set_up(engine)
        fields = {
            "project_id": 7,
            "issue_type_id": 8,
            "priority_id": 2,
            "assignee_id": 5,
            "category_ids": [3, 4],
            "notified_user_ids": [9],
        }
        await engine.admin.put_config("backlog.project", "default", fields)
        await (await engine.submit(Ticket("x"))).outcome()
    (effect,) = gesta.sandbox.backlog.effects
    assert effect.data["categoryId[]"] == ["3", "4"]  # D-17
    assert effect.data["notifiedUserId[]"] == ["9"]
    assert (effect.data["assigneeId"], effect.data["priorityId"]) == ("5", "2")
