"""Repeated, doubled, late and shuffled events, with a failing Backlog and a store that goes away:
one issue and one reply for each message.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from gesta.errors import StoreError
from gesta.intake.submit import Intake
from gesta.sandbox.slack import signed
from tests.intake.inbound.slack_posts import KEYWORD, SECRET
from tests.intake.inbound.stage import Stage, eventually

MESSAGES = 25


async def test_a_storm_of_events_creates_one_issue_for_each_message(
    slack_to_backlog: Stage, crash_seed: int
) -> None:
    stage, dice = slack_to_backlog, random.Random(crash_seed)
    backlog = stage.api.sandbox.backlog
    faults: list[dict[str, Any]] = [{"drop": True}, {"status": 502}, {"status": 429}]
    backlog.reset_seconds = 1
    for _ in range(12):
        backlog.next(**dice.choice(faults))
    posts = []
    for number in range(1, MESSAGES + 1):
        text = f"{KEYWORD} task {number}"
        said = stage.event(text, number)
        mention = stage.event(text, number, event_id=f"EvM{number}", type="app_mention")
        noise = stage.event(f"task {number}?", 1_000 + number)
        # S3-18: repeats carry Slack's header and another timestamp
        posts += [said, said, said, mention, noise]
    dice.shuffle(posts)  # R3-7

    async def post(envelope: dict[str, Any]) -> None:
        age = dice.choice([0, 0, 60, 280])
        answer = await stage.post(envelope, age_seconds=age)
        assert answer.status == 200

    for start in range(0, len(posts), 20):
        await asyncio.gather(*(post(one) for one in posts[start : start + 20]))
    await stage.ended("completed", MESSAGES)
    expected = sorted(f"task {number}" for number in range(1, MESSAGES + 1))
    assert sorted(stage.issues) == expected  # R3-6, R3-7, S3-2

    async def replies() -> int:
        return len(stage.replies)

    await eventually(replies, lambda found: found == MESSAGES)
    # Late: everything once more, after the end.
    for envelope in posts[:30]:
        assert (await stage.post(envelope)).status == 200
    assert sorted(stage.issues) == expected  # S3-3
    assert len(await stage.of("inbound.slack")) == MESSAGES


async def test_an_event_that_cannot_be_stored_is_5xx_and_comes_again(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, submit = here.event(f"{KEYWORD} x"), Intake.submit

    async def down(*_: Any) -> None:
        raise StoreError("the disk is gone: /secret/path")

    monkeypatch.setattr(Intake, "submit", down)
    answer = await here.post(event)
    assert answer.status == 503  # S3-18: never a success for an event that is lost
    assert "secret" not in answer.text
    monkeypatch.setattr(Intake, "submit", submit)
    assert (await here.post(event)).body["events"][0]["verdict"] == "accepted"
    await here.ended("completed")
    assert here.issues == ["x"]


async def test_a_verdict_that_cannot_be_recorded_is_5xx(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: Any) -> None:
        raise StoreError("away")

    monkeypatch.setattr(Intake, "ignore", down)
    assert (await here.post(here.event("hello"))).status == 503  # S3-18


async def test_answers_come_within_3_seconds_under_load(here: Stage) -> None:
    """Slack repeats what is answered later."""
    now = round(time.time())
    postings = [signed(here.event(f"{KEYWORD} {n}"), SECRET, now) for n in range(200)]
    took: list[float] = []

    async def post(posting: Any) -> None:
        began = time.monotonic()
        assert (await here.send(posting)).status == 200
        took.append(time.monotonic() - began)

    await asyncio.gather(*(post(one) for one in postings))
    assert max(took) < 3  # D-8
