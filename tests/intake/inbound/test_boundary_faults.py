"""What can go wrong between the boundary queue and the inbox, on a double of the queue."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest

from gesta.domain.event_message import DeadLetterMessage, decode_dead_letter, original_of
from gesta.errors import StoreError
from gesta.intake.inbound.boundary_dead_letters import Choice
from gesta.testing.plugin import Harness
from tests.domain.event_document import DOCUMENT
from tests.intake.inbound import queue_double, slack_posts
from tests.intake.inbound.queue_double import DoubleStage, double_stage
from tests.intake.inbound.slack_posts import KEYWORD, SECRET


def message(number: int = 1, **slack_event: Any) -> bytes:
    found = deepcopy(DOCUMENT)
    found["messageId"] = f"m{number}"
    found["data"]["metadata"]["eventId"] = f"Ev{number}"
    found["data"]["slackEvent"] |= {"ts": f"1234567890.{number:06d}"} | slack_event
    return json.dumps(found).encode()


def letters_in(stage: DoubleStage) -> list[DeadLetterMessage]:
    return [decode_dead_letter(one.envelope.body) for one in stage.queue.dead]


async def test_a_message_that_two_processes_try_in_turns_is_a_dead_letter_with_its_error(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        calls = 0

        async def fail(*_: object) -> None:
            nonlocal calls
            calls += 1
            raise RuntimeError("Failed to create Backlog issue")

        monkeypatch.setattr(stage.engine.pipeline.inbox, "process", fail)
        other = stage.another_consumer()
        await stage.send(message())
        for consumer in (stage.consumer, other, stage.consumer, stage.consumer):
            await consumer.step()
            gesta.advance(61)
        assert calls == 3  # R3-9
        (letter,) = letters_in(stage)
        assert letter.error_info is not None  # R3-15
        assert letter.error_info.attempt_count == 3


async def post(stage: DoubleStage, text: str, number: int, gesta: Harness) -> Any:
    return await slack_posts.post(stage.engine.pipeline.inbox, text, number, gesta.runtime.now_ms())


async def test_a_text_with_a_character_that_xml_does_not_have_passes_the_queue(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        text = f"{KEYWORD} a\uffffb\ufffe\x00\x7f"
        await post(stage, text, 1, gesta)
        await stage.consumer.step()
        (view,) = await stage.issues()
        assert json.loads(view.payload)["event"]["data"]["slackEvent"]["text"] == text


async def test_a_letter_that_cannot_be_buried_keeps_no_other_message(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        await stage.send(b'"' + b"x" * (1024 * 1024 - 2) + b'"')
        await stage.send(message(1))
        await stage.send(b"no json")
        for _ in range(6):
            with suppress(StoreError):
                await stage.consumer.step()
            gesta.advance(61)
        assert len(await stage.issues()) == 1
        assert stage.queue.live == []
        assert len(stage.queue.dead) == 2  # R3-12, S3-11


async def test_a_slow_redrive_sends_each_letter_once_and_leaves_none(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        for number in range(5):
            await stage.send(message(number))
        found = await stage.queue.receive(10, 0)
        await stage.queue.delete(found)
        await stage.queue.bury([one.envelope for one in found])
        letters = stage.engine.pipeline.boundary_dead_letters
        assert letters is not None
        redriving = letters.redrive(Choice(), per_second=0.05)

        async def redrive() -> list[str]:
            return [one.letter.message_id async for one in redriving]

        run = asyncio.ensure_future(redrive())
        seen: list[str] = []
        while not run.done():
            await asyncio.sleep(0)
            gesta.advance(1)
            # Another person reads the letters meanwhile.
            seen += [one.receipt for one in await stage.queue.dead_letters(10, 60)]
        assert await run == [f"m{n}" for n in range(5)]
        assert seen == []
        assert stage.queue.dead == []
        assert len(stage.queue.live) == 5


@pytest.mark.parametrize(
    "slack_event",
    [
        {"ts": "soon"},
        {"ts": "999999999999.000000"},
        {"ts": ""},
        {"channel": "general"},
        {"channel": "C1\nslack:T1/C1/1.1"},
        {"user": "U1\nslack:T1/C1/1.1"},
    ],
)
async def test_a_message_of_another_program_without_a_valid_place_is_a_dead_letter(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch, slack_event: dict[str, str]
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        await stage.send(message(1, **slack_event))
        await stage.consumer.step()
        assert await stage.issues() == []
        (letter,) = letters_in(stage)
        assert letter.error_info is not None
        assert letter.error_info.error_type == "MalformedMessage"


async def test_a_message_of_a_team_that_is_not_stored_is_a_dead_letter_and_not_lost(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        await stage.send(message(1, team="T9"))
        await stage.consumer.step()
        (letter,) = letters_in(stage)
        assert letter.error_info is not None
        assert letter.error_info.error_type == "UnknownTeam"


async def moved_back(stage: DoubleStage) -> None:
    """What the console of the broker does: it sends a dead letter to the queue as it is."""
    await stage.queue.send([one.envelope for one in stage.queue.dead])
    stage.queue.dead = []


async def test_a_dead_letter_that_the_broker_moved_back_is_redriven(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        await stage.send(message(1, team="T9"))
        await stage.consumer.step()
        for _ in range(2):
            await moved_back(stage)
            await stage.consumer.step()
        (letter,) = letters_in(stage)
        # S3-12: the message itself, however often it came back.
        assert original_of(letter).message_id == "m1"
        assert json.loads(bytes(letter.original_message))["messageId"] == "m1"
        team = {"signing_secret": SECRET, "flow": "test.issue"}
        await stage.engine.admin.put_config("slack.team", "T9", team)
        await moved_back(stage)
        gesta.advance(2)
        await stage.consumer.step()
        (view,) = await stage.issues()
        assert json.loads(view.payload)["event"]["retryCount"] == 3  # S3-14
        assert letters_in(stage) == []


async def test_of_events_sent_together_only_the_refused_one_has_to_come_again(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with double_stage(gesta, monkeypatch) as stage:
        monkeypatch.setattr(queue_double, "_is_refused", lambda one: b"Ev000003" in one.body)
        answers = await asyncio.gather(
            *(post(stage, f"{KEYWORD} {n}", n, gesta) for n in range(1, 6)),
            return_exceptions=True,
        )
        refused = [n for n, one in enumerate(answers, 1) if isinstance(one, StoreError)]
        assert refused == [3]  # S3-17, S3-18
        assert len(stage.queue.live) == 4
