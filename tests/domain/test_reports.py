"""What providers report after the fact: beside the status, and evidence of what was in unknown."""

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
    life = Story(rules or Rules(on_unknown="manual"))
    for command in commands:
        life.tell(command)
    return life


def test_a_sent_request_stays_sent_whatever_is_reported():
    life = story(RecordOutcome(Done("p-1"), 1, 0))
    for kind in ("delivered", "bounced", "complained"):
        (event,) = life.tell(RecordReceipt(kind, kind, "p-1", "full"))
        assert type(event).__name__.lower() == kind
    state = life.state
    assert state.status == "sent"
    assert (state.delivered_at is None, state.bounce, state.complaint) == (False, "full", "full")


@pytest.mark.parametrize("unknown", [RecordOutcome(Unknown("timeout"), 1, 0), Lose(0)])
def test_a_report_resolves_an_unknown_outcome(unknown: Any):
    life = story(unknown)
    events = life.tell(DELIVERED)
    assert [type(event) for event in events] == [e.OutcomeResolved, e.Delivered]
    assert (life.state.status, life.state.in_doubt, life.state.provider_id) == (
        "sent",
        False,
        "p-1",
    )  # S2-11


@pytest.mark.parametrize("end", [RecordOutcome(Rejected("no"), 1, 0), Cancel()])
def test_a_report_about_what_was_given_up_is_a_late_success(end: Any):
    life = story(end)
    events = life.tell(DELIVERED)
    assert [type(event) for event in events] == [e.SentLate, e.Delivered]  # S1-7
    assert life.state.status == "sent"


def test_a_report_that_comes_before_the_outcome_is_recorded_is_the_outcome():
    life = story()
    assert [type(event) for event in life.tell(DELIVERED)] == [e.Sent, e.Delivered]
    assert life.state.attempts == 1
    assert life.tell(RecordOutcome(Done("p-1"), 1, 0)) == []


def test_a_bounce_shows_that_the_provider_had_taken_it():
    life = story(RecordOutcome(Unknown("timeout"), 1, 0))
    life.tell(RecordReceipt("bounced", "r-1", "p-1", "no_mailbox", permanent=True))
    assert (life.state.status, life.state.bounce) == ("sent", "no_mailbox")


def test_the_same_report_again_is_nothing_new():
    life = story(RecordOutcome(Done("p-1"), 1, 0), DELIVERED)
    assert life.tell(DELIVERED) == []


def test_reports_on_one_request_are_bounded():
    life = story(RecordOutcome(Done("p-1"), 1, 0))
    for number in range(REPORTS_MAX):
        life.tell(RecordReceipt("delivered", f"r-{number}"))
    assert decide(life.state, RecordReceipt("delivered", "one more"), Rules()) == []
    assert len(life.state.reports) == REPORTS_MAX
