"""What became of a message whose answer got lost: Slack is asked, by the mark in its metadata."""

from __future__ import annotations

import pytest

from gesta.flows import slack
from gesta.flows.slack.asking import PAGE, PAGES_MAX
from gesta.sandbox import Effect
from gesta.testing.plugin import Harness
from tests.flows.slack_stage import PLACE, end_of, opened, posted

FAST = {"per_second": 1_000, "channel_per_second": 1_000}
THREAD = "1731000000.000100"


@pytest.mark.parametrize(
    "message",
    [
        slack.Message(channel=PLACE, text="a"),
        slack.Message(channel="U0PERSON", text="a"),
        slack.Message(channel=PLACE, text="a", thread_ts=THREAD),
    ],
    ids=["in a channel", "to a person", "in a thread"],
)
async def test_a_message_that_was_posted_is_found_and_not_posted_again(gesta, message):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(drop=True)
        state = await end_of(gesta, engine, message)
        types = [type_name for type_name, _, _ in await engine.history(state.id)]
    [effect] = gesta.sandbox.slack.effects
    assert (state.status, state.provider_id) == ("sent", effect.id)
    assert types == [
        "notification.slack.MessageRequestCreated.v1",
        "notification.slack.OutcomeUnknown.v1",
        "notification.slack.OutcomeResolved.v1",
    ]


@pytest.mark.parametrize(
    "fault",
    [{"status": 500}, {"error": "internal_error"}, {"error": "fatal_error"}, {"status": 502}],
)
async def test_a_message_that_was_not_posted_is_posted_once(gesta, fault):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(**fault)
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    assert (state.status, state.attempts, len(posted(gesta))) == ("sent", 2, 1)  # D-3


async def test_a_message_alike_is_not_taken_for_it(gesta):
    async with opened(gesta, **FAST) as engine:
        await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
        gesta.sandbox.slack.next(status=500)
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    assert (state.status, len(posted(gesta))) == ("sent", 2)


async def test_an_earlier_intent_of_the_same_request_is_not_taken_for_it(gesta):
    async with opened(gesta, **FAST) as engine:
        gesta.sandbox.slack.next(drop=True)
        gesta.sandbox.slack.on("conversations.history", error="channel_not_found", times=30)
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle()
        assert await request.status() == "unknown"
        gesta.sandbox.slack.heal()
        gesta.sandbox.slack.next(status=500)
        await request.redrive(again=True)
        await gesta.settle()
        assert await request.status() == "sent"
    assert len({given["client_msg_id"] for given in posted(gesta)}) == 2


def others_speak(gesta: Harness, count: int) -> None:
    """Messages of others in the same channel, after ours."""
    now = gesta.runtime.now_ms() / 1000
    gesta.sandbox.slack.effects += [
        Effect(
            f"{now + number / 1_000:.6f}",
            "chat.postMessage",
            {"channel": PLACE, "text": "other"},
            {},
        )
        for number in range(count)
    ]


async def test_it_is_found_among_many_others(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(drop=True)
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle(days=1 / 86_400)
        others_speak(gesta, 3 * PAGE + 50)
        await gesta.settle()
        assert await request.status() == "sent"
    assert [given["text"] for given in posted(gesta)].count("a") == 1
    # The message itself, and the pages up to it.
    assert gesta.sandbox.slack.calls == 1 + 4


async def test_a_conversation_too_long_to_search_leaves_the_outcome_unknown(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(status=500)
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle(days=1 / 86_400)
        others_speak(gesta, PAGES_MAX * PAGE + 1)
        await gesta.settle(days=600 / 86_400)
        state = (await request.view()).state
    assert (state.status, state.reason) == ("unknown", "history_too_long")
    assert [given["text"] for given in posted(gesta)].count("a") == 0


@pytest.mark.parametrize(
    "error", ["missing_scope", "channel_not_found", "internal_error", "brand_new"]
)
async def test_a_question_without_an_answer_leaves_the_outcome_unknown_and_stops_no_other_request(
    gesta, error
):
    async with opened(gesta, **FAST) as engine:
        gesta.sandbox.slack.next(drop=True)
        gesta.sandbox.slack.on("conversations.history", error=error)
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle()
        state = (await request.view()).state
        assert (state.status, state.waits_for_a_person) == ("unknown", True)
        assert (
            await end_of(gesta, engine, slack.Message(channel=PLACE, text="b"))
        ).status == "sent"
    assert [given["text"] for given in posted(gesta)] == ["a", "b"]


async def test_a_rate_limited_question_is_repeated_after_retry_after(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(drop=True)
        gesta.sandbox.slack.on("conversations.history", status=429, retry_after=120, times=1)
        before = gesta.runtime.now_ms()
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    assert (state.status, state.attempts, len(posted(gesta))) == ("sent", 1, 1)
    assert gesta.runtime.now_ms() - before >= 150_000
