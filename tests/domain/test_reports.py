"""What providers report after the fact: beside the status, and evidence of what was in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from gesta.domain import events as e
from gesta.domain.commands import Cancel, Lose, RecordOutcome, RecordReceipt, Rules
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.notification.receipts import REPORTS_MAX
from gesta.domain.outcome import Done, Rejected, Unknown
from tests.domain.story import Story

decide = NOTIFICATION.decide

DELIVERED = RecordReceipt("delivered", "r-1", "p-1")


def story(*commands: Any, rules: Rules | None = None) -> Story:
    told = Story(rules or Rules(on_unknown="manual"))
    for command in commands:
        told.tell(command)
    return told


def test_what_was_sent_stays_sent_whatever_is_reported():
    told = story(RecordOutcome(Done("p-1"), 1, 0))
    for kind in ("delivered", "bounced", "complained"):
        (event,) = told.tell(RecordReceipt(kind, kind, "p-1", "full"))
        assert type(event).__name__.lower() == kind
    state = told.state
    assert state.status == "sent"
    assert (state.delivered_at is None, state.bounce, state.complaint) == (False, "full", "full")


@pytest.mark.parametrize("doubt", [RecordOutcome(Unknown("timeout"), 1, 0), Lose(0)])
def test_a_report_resolves_an_unknown_outcome(doubt: Any):
    told = story(doubt)
    events = told.tell(DELIVERED)
    assert [type(event) for event in events] == [e.OutcomeResolved, e.Delivered]
    assert (told.state.status, told.state.in_doubt, told.state.provider_id) == (
        "sent",
        False,
        "p-1",
    )  # S2-11


@pytest.mark.parametrize("end", [RecordOutcome(Rejected("no"), 1, 0), Cancel()])
def test_a_report_about_what_was_given_up_is_a_late_success(end: Any):
    told = story(end)
    events = told.tell(DELIVERED)
    assert [type(event) for event in events] == [e.SentLate, e.Delivered]  # S1-7
    assert told.state.status == "sent"


def test_a_report_that_comes_before_the_outcome_is_recorded_is_the_outcome():
    told = story()
    assert [type(event) for event in told.tell(DELIVERED)] == [e.Sent, e.Delivered]
    assert told.state.attempts == 1
    assert told.tell(RecordOutcome(Done("p-1"), 1, 0)) == []


def test_a_bounce_shows_that_the_provider_had_taken_it():
    told = story(RecordOutcome(Unknown("timeout"), 1, 0))
    told.tell(RecordReceipt("bounced", "r-1", "p-1", "no_mailbox", permanent=True))
    assert (told.state.status, told.state.bounce) == ("sent", "no_mailbox")


def test_the_same_report_again_is_nothing_new():
    told = story(RecordOutcome(Done("p-1"), 1, 0), DELIVERED)
    assert told.tell(DELIVERED) == []


def test_reports_on_one_request_are_bounded():
    told = story(RecordOutcome(Done("p-1"), 1, 0))
    for number in range(REPORTS_MAX):
        told.tell(RecordReceipt("delivered", f"r-{number}"))
    assert decide(told.state, RecordReceipt("delivered", "one more"), Rules()) == []
    assert len(told.state.reports) == REPORTS_MAX
