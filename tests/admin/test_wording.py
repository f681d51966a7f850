"""What tables say: durations, moments, attempts gathered from events."""

import msgspec
import pytest

from gesta.admin.representations import attempt_representations
from gesta.admin.wording import describe, span
from gesta.domain import events as e


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (42_300, "42 s"),
        (90_000, "1.5 min"),
        (3_600_000, "1 h"),
        (864_000_000, "10 d"),
    ],
)
def test_a_duration_is_shown_in_its_largest_unit(duration_ms, words):
    assert span(duration_ms) == words


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (None, "written by a newer gesta"),
        (
            e.AttemptFailed(2, "http_500", "answered 500", 61_000),
            "attempt 2, http_500, answered 500, next in 1 min",
        ),
        (
            e.OutcomeUnknown(1, "lease_lost", "resend", next_at=1_000),
            "attempt 1, lease_lost, resend now",
        ),
        (
            e.OutcomeUnknown(1, "timeout", "manual"),
            "attempt 1, timeout, a person has to resolve it",
        ),
        (
            e.Failed("max_attempts_exceeded", 5, retryable=True, last_error="busy"),
            "max_attempts_exceeded, busy, 5 attempts",
        ),
        (e.Updated("redrive", intent=2), "redrive, intent 2"),
        (e.Expired(0), "attempts 0"),
    ],
)
def test_an_event_is_described_in_one_line(event, words):
    assert describe(event, 1_000) == words


def test_every_attempt_has_one_record_whatever_its_events():
    meta = e.Meta("default", "shop.note", "1", 1_000, "1", "1")
    history = [
        e.AttemptStarted(1, "key"),
        e.OutcomeUnknown(1, "timeout", "reconcile", next_at=6_000),
        e.OutcomeUnknown(1, "no_answer", "reconcile", next_at=9_000),
        e.OutcomeResolved("not_executed", "provider", "no trace"),
        e.AttemptFailed(2, "busy", next_attempt_at=None),
        e.Failed("max_attempts_exceeded", 2, retryable=True, last_error="busy"),
        e.Updated("redrive", intent=2),
        e.Failed("bad_address", 3),
        e.CompletedLate(3, "note-3"),
    ]
    attempts = msgspec.to_builtins(
        attempt_representations([("type", event, meta) for event in history])
    )
    assert [(one["number"], one["outcome"], one["reason"]) for one in attempts] == [
        (1, "unknown", "timeout"),
        (2, "retry", "busy"),
        (3, "done", None),
    ]
