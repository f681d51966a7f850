"""Whatever is posted, signed or not: an answer of the table, no crash, nothing stored wrongly."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gesta.errors import GestaError, InvalidSignature
from gesta.intake.inbound.source import Malformed
from gesta.sandbox.slack import message_event, signed
from tests.intake.inbound.slack_posts import CHANNEL, KEYWORD, SECRET, TEAM
from tests.intake.inbound.stage import Stage, stage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["type", "subtype", "channel", "user", "text", "ts", "thread_ts", "bot_id", "app_id", "team"]
)
OUTER = st.sampled_from(["type", "team_id", "event_id", "event", "event_time", "challenge"])
RELAXED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150
)


async def take(stage: Stage, body: bytes, headers: dict[str, str]) -> Any:
    inbox = stage.api.engine.pipeline.inbox
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        return await inbox.take("slack", "default", (), lower.get, body)
    except (InvalidSignature, Malformed) as expected:
        return expected
    except GestaError as error:
        raise AssertionError(f"not an answer of the table: {error!r}") from error


def test_any_bytes_without_a_signature_are_refused(fuzzed: Any) -> None:
    @RELAXED
    @given(
        st.binary(max_size=300),
        st.dictionaries(
            st.sampled_from(["X-Slack-Signature", "X-Slack-Request-Timestamp"]),
            st.text(max_size=80),
        ),
    )
    def search(body: bytes, headers: dict[str, str]) -> None:
        assert isinstance(fuzzed(lambda stage: take(stage, body, headers)), InvalidSignature)

    search()
    assert fuzzed(lambda stage: stage.everything()) == 0


def test_any_signed_bytes_are_refused_or_a_challenge(fuzzed: Any) -> None:
    @RELAXED
    @given(st.binary(max_size=300) | JSON.map(lambda one: json.dumps(one).encode()))
    def search(body: bytes) -> None:
        posting = signed(body, SECRET, round(time.time()))
        found = fuzzed(lambda stage: take(stage, posting.body, posting.headers))
        assert isinstance(found, InvalidSignature | Malformed)

    search()
    assert fuzzed(lambda stage: stage.everything()) == 0


def test_any_change_of_an_event_has_an_answer_of_the_table(fuzzed: Any) -> None:
    count = iter(range(10**9))

    @RELAXED
    @given(st.dictionaries(FIELDS, JSON, max_size=3), st.dictionaries(OUTER, JSON, max_size=2))
    def search(inner: dict[str, Any], outer: dict[str, Any]) -> None:
        number = next(count)
        envelope = message_event(
            f"{KEYWORD} x",
            event_id=f"Ev{number}",
            ts=f"1700000000.{number:06d}",
            team=TEAM,
            channel=CHANNEL,
        )
        envelope["event"] |= inner
        envelope |= outer
        posting = signed(envelope, SECRET, round(time.time()))
        fuzzed(lambda stage: take(stage, posting.body, posting.headers))

    search()


def test_any_text_is_stored_or_ignored_but_never_lost(fuzzed: Any) -> None:
    count = iter(range(10**9))

    @RELAXED
    @given(st.text(max_size=200))
    def search(text: str) -> None:
        number = next(count)
        envelope = message_event(
            f"{KEYWORD} {text}",
            event_id=f"Tx{number}",
            ts=f"1700000001.{number:06d}",
            team=TEAM,
            channel=CHANNEL,
        )
        posting = signed(envelope, SECRET, round(time.time()))
        (receipt,) = fuzzed(lambda stage: take(stage, posting.body, posting.headers))
        assert receipt.verdict in ("accepted", "ignored")
        assert receipt.request is not None

    search()


@pytest.fixture
def fuzzed(tmp_path: Any) -> Any:
    """Runs a coroutine function on one stage, which Hypothesis' own examples share."""
    with asyncio.Runner() as runner:
        opened = stage(f"sqlite:///{tmp_path / 'fuzz.db'}")
        made = runner.run(opened.__aenter__())
        yield lambda work: runner.run(work(made))
        runner.run(opened.__aexit__(None, None, None))
