"""What Slack's errors mean: one table, and the endings that follow from it."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from slack_sdk.web import async_base_client

from gesta import Engine
from gesta.domain.outcome import Rejected, Retry, Unknown
from gesta.flows import slack
from gesta.flows.slack.client import MEANINGS, outcome_of
from gesta.outbound.http import HttpResponse
from tests.flows.slack_stage import OPS, PLACE, TOKEN, end_of, opened, posted, put

THROTTLED = ["ratelimited", "rate_limited"]
AGAIN = ["service_unavailable", "request_timeout"]
LATER = ["team_added_to_org", "org_login_required", "message_limit_exceeded"]
UNKNOWN = ["internal_error", "fatal_error"]
FINAL = (
    "channel_not_found not_in_channel is_archived msg_too_long msg_blocks_too_long no_text"
    " invalid_blocks invalid_blocks_format invalid_arguments invalid_arg_name invalid_array_arg"
    " invalid_charset invalid_form_data invalid_post_type missing_post_type too_many_attachments"
    " too_many_contact_cards metadata_too_large invalid_metadata_format invalid_metadata_schema"
    " restricted_action restricted_action_read_only_channel restricted_action_thread_only_channel"
    " restricted_action_non_threadable_channel restricted_action_thread_locked"
    " cannot_reply_to_message messages_tab_disabled ekm_access_denied"
    " slack_connect_file_link_sharing_blocked"
).split()
CREDENTIAL = (
    "not_authed invalid_auth account_inactive token_revoked token_expired no_permission"
    " missing_scope not_allowed_token_type access_denied accesslimited team_access_not_granted"
    " enterprise_is_restricted two_factor_setup_required method_deprecated deprecated_endpoint"
).split()


def answer(error: str, status: int = 200) -> HttpResponse:
    return HttpResponse(status, body=msgspec.json.encode({"ok": False, "error": error}))


def test_every_error_of_the_provider_notes_has_its_meaning():
    # D-2, D-4, D-5
    assert (
        dict.fromkeys(THROTTLED, "throttled")
        | dict.fromkeys(AGAIN, "again")
        | dict.fromkeys(LATER, "later")
        | dict.fromkeys(UNKNOWN, "unknown")
        | dict.fromkeys(FINAL, "final")
        | dict.fromkeys(CREDENTIAL, "credential")
    ) == MEANINGS


@pytest.mark.parametrize("error", FINAL)
def test_permanent_refusals_of_slack_are_final(error):
    assert outcome_of(answer(error), None) == Rejected(
        error, f"answered 200: {error}"
    )  # D-4, R0-28


@pytest.mark.parametrize("error", UNKNOWN)
def test_where_something_may_have_succeeded_the_outcome_is_unknown(error):
    assert outcome_of(answer(error), None) == Unknown(error, f"answered 200: {error}")  # D-3


@pytest.mark.parametrize("error", AGAIN)
def test_calls_that_were_not_executed_are_retried(error):
    assert outcome_of(answer(error, 503), 7.0) == Retry(error, f"answered 503: {error}", 7.0)  # D-2


@pytest.mark.parametrize(
    ("response", "retry_after", "outcome"),
    [
        (HttpResponse(500), None, Unknown("http_500", "answered 500")),  # D-3: 5xx after send
        (HttpResponse(502, body=b"<html>"), None, Unknown("http_502", "answered 502")),
        (HttpResponse(503), None, Unknown("http_503", "answered 503")),
        (HttpResponse(503), 9.0, Retry("http_503", "answered 503", 9.0)),
        (HttpResponse(302), None, Rejected("redirect_refused", "answered 302")),
        (HttpResponse(404), None, Rejected("http_404", "answered 404")),
        (
            HttpResponse(200, body=b"ok"),
            None,
            Unknown("bad_answer", "answered 200, but not as Slack does"),
        ),
        (
            HttpResponse(200, body=b"[]"),
            None,
            Unknown("bad_answer", "answered 200, but not as Slack does"),
        ),
        (HttpResponse(200, body=b'{"ok": false}'), None, Rejected("slack_other", "answered 200")),
        (
            answer("brand_new_error"),
            None,
            Rejected("slack_other", "answered 200: brand_new_error"),
        ),  # D-5: any unlisted error
        (
            answer("Ann <ann@example.com> has left"),
            None,
            Rejected("slack_other", "answered 200"),
        ),  # R0-28: never a sentence
    ],
)
def test_answers_without_a_known_code_are_classified_by_status(response, retry_after, outcome):
    assert outcome_of(response, retry_after) == outcome


async def test_a_permanent_error_is_a_dead_letter_after_one_call(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(error="is_archived")
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
        assert (state.status, state.reason, state.attempts) == ("failed", "is_archived", 1)
        assert [letter.failure.reason for letter in await engine.admin.dead_letters()] == [
            "is_archived"
        ]
    assert gesta.sandbox.slack.calls == 1


async def test_an_unlisted_error_is_logged_as_an_error(gesta, caplog):
    caplog.set_level(logging.ERROR, "gesta")
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(error="brand_new_error")
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
        text = engine.metrics().decode()
    assert (state.status, state.reason) == ("failed", "slack_other")
    [line] = [msgspec.json.decode(record.getMessage()) for record in caplog.records]
    assert (line["level"], line["reason"], line["detail"]) == (
        "error",
        "slack_other",
        "answered 200: brand_new_error",
    )  # D-5
    assert 'reason="slack_other"' in text


async def test_a_rate_limit_waits_for_retry_after_and_uses_up_no_attempt(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(status=429, retry_after=30)
        before = gesta.runtime.now_ms()
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    assert (state.status, state.attempts) == ("sent", 1)
    assert gesta.runtime.now_ms() - before >= 30_000  # R0-25: Retry-After is honoured
    assert (gesta.sandbox.slack.calls, len(posted(gesta))) == (2, 1)


@pytest.mark.parametrize("error", THROTTLED)
async def test_too_fast_without_a_time_waits_half_a_minute(gesta, error):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(error=error)
        before = gesta.runtime.now_ms()
        assert (
            await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
        ).status == "sent"  # D-2: both spellings
    assert gesta.runtime.now_ms() - before >= 30_000


async def test_too_fast_closes_the_whole_channel_and_no_other(gesta):
    async with opened(gesta, channel_per_second=1_000, per_second=1_000) as engine:
        gesta.sandbox.slack.on(PLACE, status=429, retry_after=60, times=1)
        for number in range(20):
            await engine.submit(slack.Message(channel=PLACE, text=f"there {number}"))
        await gesta.settle(days=59 / 86_400)
        calls = gesta.sandbox.slack.calls
        for number in range(20):
            await engine.submit(slack.Message(channel="ops", text=f"ops {number}"))
        await gesta.settle(days=0.5 / 86_400)
        assert [given["channel"] for given in posted(gesta)] == [OPS] * 20
        # S0-29: those that were under way when it said so, and then none of the twenty.
        assert calls <= 20
        assert gesta.sandbox.slack.calls == calls + 20
        await gesta.settle()
        assert len(posted(gesta)) == 40


async def test_messages_to_one_channel_keep_its_pace(gesta):
    async with opened(gesta, channel_per_second=0.5) as engine:
        for number in range(6):
            await engine.submit(slack.Message(channel=PLACE, text=str(number)))
        before = gesta.runtime.now_ms()
        await gesta.settle()
    times = [float(effect.id) for effect in gesta.sandbox.slack.effects]
    assert len(times) == 6
    assert gesta.runtime.now_ms() - before >= 10_000  # S0-29
    assert gesta.sandbox.slack.calls == 6


@pytest.mark.parametrize("error", LATER)
async def test_a_workspace_that_takes_nothing_now_is_left_alone_for_a_while(gesta, error):
    async with opened(gesta, per_second=1_000) as engine:
        gesta.sandbox.slack.next(error=error)
        before = gesta.runtime.now_ms()
        first = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle(days=1 / 86_400)
        others = [
            await engine.submit(slack.Message(channel="ops", text=str(number)))
            for number in range(5)
        ]
        await gesta.settle(days=600 / 86_400)
        assert gesta.sandbox.slack.calls == 1
        await gesta.settle()
        assert {await request.status() for request in (first, *others)} == {"sent"}
    assert gesta.runtime.now_ms() - before >= 900_000  # D-2: long wait


async def test_the_client_retries_nothing_by_itself(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(drop=True)
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle(days=1 / 86_400)
        assert (await request.status(), gesta.sandbox.slack.calls) == (
            "unknown",
            1,
        )  # R0-25, S0-11, D-6
    # The library's own handlers would: a test that fails when this default is no longer the danger
    # it was.
    assert async_base_client.AsyncBaseClient(token="x").retry_handlers


@pytest.mark.parametrize("error", ["token_revoked", "invalid_auth", "missing_scope"])
async def test_a_refused_token_holds_everything_of_its_workspace(gesta, error):
    async with opened(gesta, per_second=1_000, channel_per_second=1_000) as engine:
        await put(
            engine,
            "slack.workspace",
            "eu",
            token="xoxb-2222-other",
            per_second=1_000,
            channel_per_second=1_000,
        )
        gesta.sandbox.slack.on(TOKEN, error=error)
        held = [
            await engine.submit(slack.Message(channel=PLACE, text=str(number)))
            for number in range(50)
        ]
        other = await engine.submit(slack.Message(channel=PLACE, text="eu", workspace="eu"))
        await gesta.settle(days=1)
        assert await other.status() == "sent"
        views = [await request.view() for request in held]
        assert {(view.state.status, view.state.attempts) for view in views} == {
            ("queued", 0)
        }  # D-5
        assert await engine.admin.dead_letters() == []
        await put(
            engine,
            "slack.workspace",
            "default",
            token="xoxb-1111-second",
            per_second=1_000,
            channel_per_second=1_000,
        )
        await gesta.settle()
        assert {await request.status() for request in held} == {"sent"}
    assert len(posted(gesta)) == 51


async def test_no_token_and_no_body_of_an_error_comes_into_a_log_or_an_event(gesta, caplog):
    caplog.set_level(logging.DEBUG)
    async with opened(gesta) as engine:
        for fault in (
            {"error": "is_archived"},
            {"status": 500},
            {"error": "brand_new"},
            {"drop": True},
        ):
            gesta.sandbox.slack.next(**fault)
            await end_of(gesta, engine, slack.Message(channel=PLACE, text="the text of a person"))
        history = [repr(await engine.history(view.state.id)) for view in await engine.find()]
    logged = "".join(record.getMessage() for record in caplog.records) + "".join(history)
    assert TOKEN not in logged  # R0-28, R0-2
    assert "the text of a person" not in "".join(record.getMessage() for record in caplog.records)


async def test_a_slow_slack_is_unknown_after_twenty_seconds(gesta):
    flow = slack.flow(token="env:SLACK_TOKEN")
    async with Engine("memory:slow", flows=[flow]) as engine:
        gesta.sandbox.slack.next(slow_seconds=60)
        before = gesta.runtime.now_ms()
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle(days=21 / 86_400)
        state = (await request.view()).state
        assert (state.status, state.reason) == ("unknown", "timeout")  # D-3: read timeout
        assert 20_000 <= state.updated_at - before <= 21_000
        await asyncio.sleep(0)
    assert flow.timeout_seconds == 25
