"""What happens when it is unknown whether the effect happened. X-8's third value, and how it
ends.
"""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    Expire,
    Lose,
    Reconciled,
    Redrive,
    Resolve,
    RetryNow,
    Start,
)
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown, UnknownPolicy
from tests.domain.story import DAY, HOUR, MINUTE, SECOND, T0, Story, rules

POLICIES: tuple[UnknownPolicy, ...] = ("resend", "reconcile", "manual")
EXECUTED = Resolve("executed", "ann", "in the provider's log", "p-9")
NOT_EXECUTED = Resolve("not_executed", "ann", "not in the provider's log")


def unknown_story(policy: UnknownPolicy, *, ttl_ms: int | None = None) -> Story:
    story = Story(rules(policy), ttl_ms=ttl_ms)
    story.ends(Unknown("no_answer"))
    assert (story.state.status, story.state.in_doubt) == ("unknown", True)
    return story


def test_an_attempt_ends_in_one_of_four_ways():
    # ok | rejected(permanent) | retryable(not executed) | unknown(may have executed)
    assert get_args(Outcome) == (Done, Rejected, Retry, Unknown)


def test_the_policy_says_what_follows_an_unknown_outcome():
    # retried only when the provider dedupes by our key, else reconciled, else left to a
    # person
    planned = {
        policy: (unknown_story(policy).state.wants, unknown_story(policy).state.due_at)
        for policy in POLICIES
    }
    assert planned == {
        "resend": ("execute", T0 + 10 * SECOND),
        "reconcile": ("reconcile", T0 + 5 * SECOND),
        "manual": (None, None),
    }


def test_a_resend_has_the_same_key_and_its_success_resolves_the_outcome():
    # S1-2: no attempt, version or retry moves the key
    story = unknown_story("resend")
    assert story.key.endswith(":send:1")
    assert story.ends(Done("p-1")) == [e.Sent(2, "p-1")]
    assert (story.state.status, story.state.in_doubt, story.key[-7:]) == ("sent", False, ":send:1")


def test_a_resend_that_fails_leaves_the_outcome_unknown():
    story = unknown_story("resend")
    assert story.ends(Retry("busy", "503", 60.0)) == [
        e.OutcomeUnknown(2, "busy", "resend", "503", T0 + 60 * SECOND)
    ]


def test_after_the_last_resend_the_request_stays_unknown_and_does_not_fail():
    story = unknown_story("resend")
    story.ends(Retry("busy"))
    assert story.ends(Retry("busy")) == [e.OutcomeUnknown(3, "busy", "resend")]
    assert (story.state.status, story.state.wants, story.state.reason) == ("unknown", None, "busy")


def test_a_refused_resend_fails_and_keeps_on_record_that_the_first_is_unknown():
    story = unknown_story("resend")
    story.ends(Rejected("unauthorized"))
    assert (story.state.status, story.state.in_doubt) == ("failed", True)
    story.tell(Redrive(T0))
    assert story.key.endswith(":send:1")


def test_the_unknown_outcome_of_a_failed_request_can_be_resolved_without_opening_it():
    story = unknown_story("resend")
    story.ends(Rejected("unauthorized", "401"))
    assert story.copy().tell(EXECUTED)[0] == e.OutcomeResolved(
        "executed", "ann", "in the provider's log", "p-9"
    )
    assert story.tell(NOT_EXECUTED)[1:] == [
        e.Failed("unauthorized", 2, retryable=True, last_error="401")
    ]
    assert (story.state.status, story.state.in_doubt) == ("failed", False)
    story.tell(Redrive(T0))
    assert story.key.endswith(":send:2")


def test_nothing_is_resent_once_the_provider_may_have_forgotten_the_key():
    # S1-4: firstAttemptAt is kept; after that time no blind retry
    day = rules("resend", key_protects_seconds=23 * 3600)
    story = Story(day)
    story.ends(Unknown("no_answer"))
    assert story.state.first_attempt_at == T0
    late = story.copy().ends(Unknown("no_answer"), after_ms=23 * HOUR - 10 * SECOND)
    assert (
        late[0].next_at  # type: ignore[attr-defined]
        == T0 + 23 * HOUR
    )
    story.ends(Unknown("no_answer"), after_ms=23 * HOUR - 9 * SECOND)
    assert (story.state.status, story.state.wants) == ("unknown", None)
    assert story.refusal(Redrive(T0 + 24 * HOUR)) == "in_doubt"


def test_the_key_s_age_counts_from_when_a_lost_attempt_may_have_begun():
    # S1-4: everything was down for a day; the attempt that died may have been seen by the provider
    # a day ago
    story = Story(rules("resend", key_protects_seconds=23 * 3600))
    assert story.tell(Lose(T0 + DAY)) == [e.OutcomeUnknown(1, "lease_lost", "resend")]
    assert story.state.wants is None


def test_a_resend_that_waited_too_long_in_the_queue_is_left_to_a_person():
    # S1-4: looked at again before the attempt, not only when it was planned
    story = Story(rules("resend", key_protects_seconds=60))
    story.ends(Unknown("no_answer"))
    assert story.tell(Expire(T0 + MINUTE)) == []
    assert story.tell(Expire(T0 + MINUTE + 1)) == [e.OutcomeUnknown(1, "key_forgotten", "resend")]
    assert (story.state.status, story.state.wants) == ("unknown", None)


def test_a_lost_attempt_counts_as_one_and_is_repeated_at_once_under_its_key():
    story = Story(rules("resend"))
    assert story.tell(Lose(T0 + MINUTE)) == [
        e.OutcomeUnknown(1, "lease_lost", "resend", next_at=T0 + MINUTE)
    ]
    assert (story.state.attempts, story.state.wants) == (1, "execute")
    assert story.ends(Unknown("late"), attempt=1) == []


def test_a_lost_journalled_attempt_ends_with_its_own_number():
    story = Story(rules("manual"))
    story.tell(Start(story.key))
    assert story.tell(Lose(T0 + MINUTE)) == [e.OutcomeUnknown(1, "lease_lost", "manual")]
    assert (story.state.started, story.state.attempts, story.state.status) == (None, 1, "unknown")


def test_a_job_that_was_not_released_after_its_recorded_end_has_lost_nothing():
    # K-17: the next call is not before nextAttemptAt
    story = Story()
    story.ends(Retry("busy", after_seconds=60.0))
    assert story.tell(Lose(T0 + 60 * SECOND - 1)) == []
    assert story.state.due_at == T0 + 60 * SECOND
    assert story.tell(Lose(T0 + 60 * SECOND)) == [e.OutcomeUnknown(2, "lease_lost", "manual")]


def test_a_lost_look_up_is_not_a_lost_attempt():
    story = unknown_story("reconcile")
    assert story.tell(Lose(T0 + MINUTE)) == []
    assert story.state.wants == "reconcile"


def test_the_answer_of_the_provider_resolves_the_outcome():
    resolved = {
        outcome: unknown_story("reconcile").tell(Reconciled(outcome, T0 + 5 * SECOND))
        for outcome in (Done("p-1", detail="found"), Rejected("declined"), Retry("no_trace"))
    }
    assert list(resolved.values()) == [
        [e.OutcomeResolved("executed", "provider", "found", "p-1")],
        [e.OutcomeResolved("rejected", "provider", "declined")],
        [
            e.OutcomeResolved(
                "not_executed", "provider", "no_trace", next_attempt_at=T0 + 15 * SECOND
            )
        ],
    ]


def test_an_effect_that_the_provider_has_no_trace_of_is_tried_again_under_the_same_key():
    story = unknown_story("reconcile")
    story.tell(Reconciled(Retry("no_trace", after_seconds=60.0), T0 + 5 * SECOND))
    state = story.state
    assert (state.status, state.in_doubt, state.due_at, state.wants) == (
        "queued",
        False,
        T0 + 65 * SECOND,
        "execute",
    )
    assert state.dispatch_version == state.version
    assert story.key.endswith(":send:1")


def test_asking_does_not_multiply_the_attempts():
    story = unknown_story("reconcile")
    for _ in range(2):
        story.tell(Reconciled(Retry("no_trace"), story.now))
        story.ends(Unknown("no_answer"))
    assert story.tell(Reconciled(Retry("no_trace"), story.now))[1:] == [
        e.Failed("max_attempts_exceeded", 3, retryable=True, last_error="no_trace")
    ]


def test_a_provider_without_an_answer_is_asked_again_and_finally_a_person():
    story = unknown_story("reconcile")
    # 30 questions in all, the first one not counted as a repeat.
    for asked in range(1, 30):
        story.tell(Reconciled(Unknown("not_yet", after_seconds=60.0), story.now))
        assert (story.state.wants, story.state.due_at, story.state.asked) == (
            "reconcile",
            story.now + 60 * SECOND,
            asked,
        )
        assert story.state.dispatch_version == story.state.version
    story.tell(Reconciled(Unknown("not_yet"), story.now))
    assert (story.state.status, story.state.wants, story.state.attempts) == ("unknown", None, 1)


def test_an_answer_that_comes_after_a_person_s_word_counts_only_if_it_is_a_success():
    story = unknown_story("reconcile")
    story.tell(NOT_EXECUTED)
    for outcome in (Retry("no_trace"), Rejected("declined"), Unknown("not_yet")):
        assert story.tell(Reconciled(outcome, T0)) == []
    assert story.tell(Reconciled(Done("p-1"), T0)) == [e.Sent(1, "p-1")]


def test_an_answer_that_comes_after_giving_up_is_a_late_success():
    # S1-7: late Success after Failed must be recordable
    story = unknown_story("reconcile")
    story.tell(Resolve("rejected", "ann", "declined"))
    assert story.tell(Reconciled(Done("p-1"), T0)) == [e.SentLate(1, "p-1")]


@pytest.mark.parametrize(
    ("result", "status"), [("executed", "sent"), ("rejected", "failed"), ("not_executed", "queued")]
)
def test_a_person_resolves_an_unknown_outcome(result: str, status: str):
    story = unknown_story("manual")
    again = result == "not_executed"
    assert story.tell(Resolve(result, "ann", "looked it up")) == [  # type: ignore[arg-type]
        e.OutcomeResolved(result, "ann", "looked it up", new_budget=again)  # type: ignore[arg-type]
    ]
    assert (story.state.status, story.state.in_doubt) == (status, False)
    assert story.refusal(EXECUTED) == "not_unknown"


@pytest.mark.parametrize(("attempts", "elapsed_seconds"), [(3, None), (9, 60.0)])
def test_what_a_person_found_not_executed_has_a_new_budget(attempts, elapsed_seconds):
    """Its attempts or its time were used up before a person looked: the next failure was final."""
    story = Story(rules("manual", attempts=attempts, elapsed_seconds=elapsed_seconds))
    story.ends(Retry("busy"))
    story.ends(Retry("busy"))
    story.ends(Unknown("no_answer"))
    story.now += DAY
    assert story.tell(replace(NOT_EXECUTED, at=story.now)) == [
        e.OutcomeResolved("not_executed", "ann", NOT_EXECUTED.evidence, new_budget=True)
    ]
    assert story.ends(Retry("busy")) == [
        e.AttemptFailed(4, "busy", next_attempt_at=story.now + 10 * SECOND)
    ]
    story.ends(Retry("busy"))
    (_, *end) = story.ends(Retry("busy"), after_ms=HOUR)
    assert end == [e.Failed("max_attempts_exceeded", 6, retryable=True, last_error="busy")]


def test_what_the_provider_has_not_executed_keeps_its_budget():
    """Otherwise a provider that never answers would be called for ever."""
    story = Story(rules("reconcile", attempts=2))
    story.ends(Retry("busy"))
    story.ends(Unknown("no_answer"))
    (_, end) = story.tell(Reconciled(Retry("no_trace"), story.now))
    assert isinstance(end, e.Failed)


def test_a_running_attempt_cannot_be_resolved_as_not_executed():
    story = unknown_story("resend")
    story.tell(Start(story.key))
    assert story.refusal(NOT_EXECUTED) == "attempt_running"
    assert story.tell(Reconciled(Retry("no_trace"), T0)) == []
    assert story.tell(EXECUTED)
    assert (story.state.status, story.state.started) == ("sent", None)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unknown_outcome_neither_expires_nor_is_cancelled(policy: UnknownPolicy):
    story = unknown_story(policy, ttl_ms=MINUTE)
    assert story.refusal(Cancel()) == "in_doubt"
    story.tell(Expire(T0 + HOUR))
    assert (story.state.status, story.state.in_doubt) == ("unknown", True)


def test_nothing_is_resent_after_its_time_to_live():
    # S2-2: the check before a retry is also one before a resend; it stays unknown
    story = Story(rules("resend"), ttl_ms=5 * SECOND)
    story.ends(Unknown("no_answer"))
    assert (story.state.status, story.state.wants) == ("unknown", None)
    waited = unknown_story("resend", ttl_ms=MINUTE)
    assert waited.tell(Expire(T0 + MINUTE)) == [e.OutcomeUnknown(1, "expired_in_doubt", "resend")]


def test_a_journalled_attempt_without_an_end_does_not_expire_into_nothing():
    story = Story(rules("reconcile"), ttl_ms=MINUTE)
    story.tell(Start(story.key))
    assert story.tell(Expire(T0 + MINUTE)) == [
        e.OutcomeUnknown(1, "expired_in_doubt", "reconcile", next_at=T0 + 65 * SECOND)
    ]
    assert story.tell(Reconciled(Retry("no_trace"), T0 + 65 * SECOND))[1:] == [e.Expired(1)]


def test_a_journalled_attempt_without_an_end_is_not_cancelled_but_asked_to_end():
    story = Story(rules("manual"))
    story.tell(Start(story.key))
    assert story.tell(Cancel()) == [e.Updated("cancel_requested")]
    story.tell(Lose(T0 + MINUTE))
    assert story.state.status == "unknown"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cancelled_request_is_not_sent_again_after_its_outcome_is_resolved(policy: UnknownPolicy):
    story = Story(rules(policy))
    story.tell(Cancel(active=True))
    story.ends(Unknown("no_answer"))
    assert story.state.wants in (None, "reconcile")
    assert story.copy().tell(Reconciled(Retry("no_trace"), T0))[1:] == [e.Cancelled(1)]
    assert story.tell(NOT_EXECUTED)[1:] == [e.Cancelled(1)]
    assert story.state.status == "cancelled"


def test_an_outcome_unknown_after_the_cancel_is_shown_and_never_resent():
    story = Story(rules("resend"))
    story.tell(Cancel())
    story.ends(Unknown("no_answer"))
    assert (story.state.status, story.state.wants) == ("unknown", None)
    story.tell(NOT_EXECUTED)
    assert story.state.status == "cancelled"


def test_a_waiting_resend_can_be_had_now():
    story = unknown_story("resend")
    story.tell(RetryNow(T0 + SECOND))
    assert (story.state.status, story.state.due_at, story.key[-2:]) == (
        "unknown",
        T0 + SECOND,
        ":1",
    )
    assert unknown_story("reconcile").refusal(RetryNow(T0)) == "not_waiting"
    assert unknown_story("manual").refusal(RetryNow(T0)) == "not_waiting"


def test_a_redrive_of_an_unknown_outcome_keeps_a_protecting_key_or_is_refused():
    # S1-2: a new intent would be a second effect
    story = unknown_story("resend")
    assert story.tell(Redrive(T0 + HOUR, MINUTE)) == [
        e.Updated("redrive", "queued", 1, T0 + HOUR, T0 + HOUR + MINUTE)
    ]
    assert (story.state.status, story.state.in_doubt, story.key[-2:]) == ("queued", True, ":1")
    assert unknown_story("reconcile").refusal(Redrive(T0)) == "in_doubt"
    assert unknown_story("manual").refusal(Redrive(T0)) == "in_doubt"


def test_a_request_redriven_while_unknown_never_ends_as_certainly_not_executed():
    story = unknown_story("resend")
    story.tell(Redrive(T0, ttl_ms=MINUTE))
    assert story.refusal(Cancel()) == "in_doubt"
    assert story.copy().tell(Expire(T0 + MINUTE)) == [
        e.OutcomeUnknown(1, "expired_in_doubt", "resend")
    ]
    story.ends(Retry("busy"))
    assert story.state.status == "unknown"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_person_can_force_a_new_intent(policy: UnknownPolicy):
    story = unknown_story(policy)
    story.tell(Redrive(T0 + HOUR, again=True))
    assert (story.state.status, story.state.in_doubt, story.key[-2:]) == ("queued", False, ":2")
    assert (story.state.first_attempt_at, story.state.started) == (None, None)


def test_an_unplanned_question_to_the_provider_plans_no_wait():
    for policy in ("resend", "manual"):
        story = unknown_story(policy)
        due = story.state.due_at
        assert story.tell(Reconciled(Unknown("not_yet"), T0)) == []
        assert story.state.due_at == due
