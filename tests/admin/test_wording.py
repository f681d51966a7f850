"""What tables say: durations, moments, attempts gathered from events."""

import msgspec
import pytest

from gesta.admin.representations import attempt_representations
from gesta.admin.wording import currency_of, describe, span
from gesta.domain import events as e
from gesta.domain.transaction import events as money


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


def test_the_history_of_a_payment_is_shown_in_its_currency_and_without_the_fields_of_the_journal():
    opened = e.Created("1", "payment.card", msgspec.Raw(b"{}"), facts={"currency": "EUR"})
    currency = currency_of(opened)
    called = money.CallStarted(
        2, "t:1:capture:1", request_hash="ab12", gateway="stripe-eu", key_seconds=82_800.0
    )
    asked = money.CaptureRequested(2_000, 1, key="ship-1", key_digest="cd34", asked=2_000)
    captured = money.Captured(2, provider_id="pi_1", amount=2_000)
    assert [describe(one, 0, currency) for one in (called, asked, captured)] == [
        "attempt 2, key t:1:capture:1, gateway stripe-eu",
        "20.00 EUR, key ship-1",
        "attempt 2, 20.00 EUR, pi_1",
    ]
    assert describe(asked, 0) == "key ship-1"
    assert currency_of(e.Created("1", "shop.note", msgspec.Raw(b"{}"))) is None


@pytest.mark.parametrize(
    "resolved",
    [
        e.OutcomeResolved("executed", "provider", "it is in their list"),
        money.Resolved("executed", "lookup", "it is in their list", "capture", 1),
    ],
)
def test_an_attempt_whose_answer_was_lost_keeps_its_end_when_a_lookup_finds_the_effect(resolved):
    history = [
        (1_000, e.AttemptStarted(1, "key")),
        (
            1_005,
            e.OutcomeUnknown(
                1, "reset", "reconcile", started_at=1_000, worker="w-1", used={"shop.room/a": 2}
            ),
        ),
        (6_000, resolved),
        (6_000, money.Captured(1, provider_id="pi_1", amount=2_000)),
    ]
    metas = [e.Meta("default", "payment.card", "1", at, "1", "1") for at, _ in history]
    (one,) = attempt_representations(
        [("type", event, meta) for (_, event), meta in zip(history, metas, strict=True)]
    )
    assert (one.outcome, one.reason, one.worker) == ("unknown", "reset", "w-1")
    assert (one.duration_ms, one.ended_at) == (5, "1970-01-01T00:00:01.005Z")
    assert one.used == {"shop.room/a": 2}


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
