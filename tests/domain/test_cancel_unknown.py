"""Work that may run any number of times: a cancel ends it although an attempt is unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import Cancel, Lose, Start
from gesta.domain.outcome import Done, Retry, Unknown
from tests.domain.story import MINUTE, T0, Story, rules

RULES = replace(rules("resend"), cancels_unknown=True)


def test_a_request_cancelled_while_it_runs_ends_cancelled_when_its_worker_is_lost():
    story = Story(RULES)
    story.tell(Start(story.key))
    assert story.tell(Cancel()) == [e.Updated("cancel_requested")]
    unknown, cancelled = story.tell(Lose(T0 + MINUTE))
    assert isinstance(unknown, e.OutcomeUnknown)
    assert cancelled == e.Cancelled(1)
    # That it may have run stays on record.
    assert (story.state.status, story.state.in_doubt) == ("cancelled", True)


@pytest.mark.parametrize("outcome", [Unknown("no_answer"), Retry("busy")])
def test_a_resend_that_was_cancelled_ends_cancelled_unless_it_succeeds(outcome):
    story = Story(RULES)
    story.ends(Unknown("no_answer"))
    story.tell(Start(story.key))
    assert story.tell(Cancel()) == [e.Updated("cancel_requested")]
    other = story.copy()
    story.ends(outcome)
    assert story.state.status == "cancelled"
    other.ends(Done("p-1"))
    assert other.state.status == "sent"


def test_a_request_that_waits_for_its_resend_is_cancelled_at_once():
    story = Story(RULES)
    story.ends(Unknown("no_answer"))
    assert story.tell(Cancel()) == [e.Cancelled(1)]
    assert story.tell(Lose(T0 + MINUTE)) == []
    assert story.tell(Cancel()) == []
