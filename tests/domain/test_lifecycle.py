"""The life of a request as long as nothing is unknown: from asked to sent, failed, expired or
cancelled, and back by a redrive.
"""

from __future__ import annotations

import pytest
from msgspec import Raw

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    CommandRefused,
    Create,
    Expire,
    Purge,
    RecordOutcome,
    Redrive,
    Resolve,
    RetryNow,
    Start,
    Withdraw,
)
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from tests.domain.story import DAY, HOUR, ID, MINUTE, SECOND, T0, Story, meta, rules

decide, evolve = NOTIFICATION.decide, NOTIFICATION.evolve

OUTCOMES: tuple[Outcome, ...] = (
    Done("p-2"),
    Rejected("gone"),
    Retry("throttled"),
    Unknown("no_answer"),
)


def ended(how: str) -> Story:
    """A request that has come to this end."""
    story = Story(ttl_ms=HOUR)
    match how:
        case "sent":
            story.ends(Done("p-1"))
        case "failed":
            story.ends(Rejected("gone"))
        case "expired":
            story.tell(Expire(T0 + HOUR))
        case _:
            story.tell(Cancel())
    assert story.state.status == how
    return story


def test_the_statuses_are_those_of_the_message_request_and_three_more():
    # R1-28: requested|validated|queued|sent|failed; design.md section 4 adds expired, cancelled,
    # unknown
    assert NOTIFICATION.statuses == (
        "requested",
        "validated",
        "queued",
        "sent",
        "failed",
        "expired",
        "cancelled",
        "unknown",
    )
    assert frozenset({"sent", "failed", "expired", "cancelled"}) == NOTIFICATION.terminal


def test_a_created_request_is_queued_at_once_and_its_operation_open():
    story = Story()
    assert [type(event) for event, _ in story.history] == [e.Created]
    state = story.state
    assert (state.status, state.version, state.dispatch_version, state.attempts, state.wants) == (
        "queued",
        1,
        1,
        0,
        "execute",
    )
    assert (state.id, state.tenant, state.key, state.correlation_id) == (
        ID,
        "acme",
        "order-7",
        "correlation-1",
    )


def test_the_submitted_options_are_in_the_first_event_and_in_the_state():
    create = Create(
        ID, "billing.receipt", b'{"order":7}', T0, key="k", deliver_at=T0 + 1, ttl_ms=2, priority=1
    )
    (created,) = decide(None, create, rules())
    assert created == e.Created(
        ID,
        "billing.receipt",
        Raw(b'{"order":7}'),
        key="k",
        deliver_at=T0 + 1,
        expires_at=T0 + 3,
        priority=1,
    )
    state = evolve(None, created, meta(T0))
    assert (state.flow, state.priority, state.due_at, state.expires_at) == (
        "billing.receipt",
        1,
        T0 + 1,
        T0 + 3,
    )
    assert (state.created_at, state.updated_at, state.operation, state.intent) == (
        T0,
        T0,
        "send",
        1,
    )


def test_a_second_create_changes_nothing():
    story = Story()
    assert story.tell(Create("another", "notification.webhook", b"{}", T0)) == []


def test_the_happy_path_writes_two_events():
    story = Story()
    assert story.ends(Done("p-1", detail="accepted")) == [e.Sent(1, "p-1", detail="accepted")]
    assert len(story.history) == 2
    assert (
        story.state.status,
        story.state.provider_id,
        story.state.attempts,
        story.state.wants,
    ) == ("sent", "p-1", 1, None)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_nothing_is_recorded_after_a_success(outcome: Outcome):
    # R1-31: a second success, no event. R1-32, S1-7: no failure after it, no exception either.
    assert ended("sent").ends(outcome, attempt=1) == []
    assert ended("sent").ends(outcome, attempt=2) == []


@pytest.mark.parametrize("how", ["failed", "expired", "cancelled"])
def test_a_success_that_comes_after_giving_up_is_recorded_as_late(how: str):
    # S1-7: notifications record …SentLate.v1 and status sent
    story = ended(how)
    assert story.ends(Done("p-1"), attempt=1) == [e.SentLate(1, "p-1")]
    assert (story.state.status, story.state.provider_id, story.state.reason) == ("sent", "p-1", "")
    assert story.ends(Done("p-1"), attempt=1) == []


@pytest.mark.parametrize("how", ["failed", "expired", "cancelled"])
def test_a_failure_that_comes_after_giving_up_changes_nothing(how: str):
    # R1-48: idempotent on failure too
    story = ended(how)
    assert story.ends(Retry("throttled"), attempt=2) == []
    assert story.ends(Rejected("gone"), attempt=2) == []


def test_a_refusal_is_final_and_is_not_retried():
    # R1-27: stops on non-retryable
    story = Story()
    assert story.ends(Rejected("gone", "410")) == [
        e.Failed("gone", 1, retryable=False, last_error="410")
    ]
    assert (story.state.status, story.state.wants, story.state.reason, story.state.detail) == (
        "failed",
        None,
        "gone",
        "410",
    )


def test_a_failure_while_attempts_remain_is_an_attempt_that_failed_and_nothing_more():
    # S1-9: a retryable failure while attempts remain is AttemptFailed + reschedule, not
    # recordFailed
    story = Story(rules(attempts=3))
    assert story.ends(Retry("throttled", "429")) == [
        e.AttemptFailed(1, "throttled", "429", T0 + 10 * SECOND)
    ]
    assert (story.state.status, story.state.due_at, story.state.attempts) == (
        "queued",
        T0 + 10 * SECOND,
        1,
    )


def test_the_last_failure_ends_the_request_as_retryable():
    # S1-9: `retryable` only tells operators
    story = Story(rules(attempts=2))
    story.ends(Retry("throttled"))
    assert story.ends(Retry("busy", "503")) == [
        e.AttemptFailed(2, "busy", "503", None),
        e.Failed("max_attempts_exceeded", 2, retryable=True, last_error="busy"),
    ]
    assert (story.state.status, story.state.wants) == ("failed", None)


def test_the_provider_s_wish_for_a_pause_is_honoured():
    # R1-27: Retry-After honoured
    story = Story()
    story.ends(Retry("throttled", after_seconds=90.0))
    assert story.state.due_at == T0 + 90 * SECOND


def test_no_attempt_is_planned_beyond_the_elapsed_limit():
    story = Story(rules(attempts=9, elapsed_seconds=15.0))
    assert story.copy().ends(Retry("busy", after_seconds=15.0)) == [
        e.AttemptFailed(1, "busy", "", T0 + 15 * SECOND)
    ]
    assert story.ends(Retry("busy")) == [e.AttemptFailed(1, "busy", "", T0 + 10 * SECOND)]
    events = story.ends(Retry("busy"), after_ms=6 * SECOND)
    assert events[-1] == e.Failed("max_attempts_exceeded", 2, retryable=True, last_error="busy")


def test_a_wait_without_end_is_a_wait_of_a_year():
    story = Story()
    story.ends(Retry("throttled", after_seconds=float("inf")))
    assert story.state.due_at == T0 + 366 * DAY


def test_a_stale_attempt_s_failure_changes_nothing():
    story = Story()
    story.ends(Retry("busy"))
    for outcome in OUTCOMES[1:]:
        assert story.ends(outcome, attempt=1) == []


def test_a_failure_of_an_earlier_intent_does_not_count_for_the_new_one():
    story = ended("cancelled")
    story.tell(Redrive(T0))
    assert story.tell(RecordOutcome(Unknown("no_answer"), 1, T0, intent=1)) == []
    assert story.tell(RecordOutcome(Done("p-1"), 1, T0, intent=1)) == [e.Sent(1, "p-1")]


def test_an_attempt_is_journalled_once_and_under_its_key():
    story = Story()
    assert story.tell(Start(story.key)) == [e.AttemptStarted(1, f"acme:{ID}:send:1")]
    assert story.tell(Start(story.key)) == []
    assert (story.state.started, story.state.attempts) == (1, 0)
    story.ends(Retry("busy"))
    assert (story.state.started, story.state.attempts) == (None, 1)
    assert story.tell(Start(story.key)) == [e.AttemptStarted(2, f"acme:{ID}:send:1")]


@pytest.mark.parametrize("how", ["sent", "failed", "expired", "cancelled"])
def test_nothing_is_started_that_is_over(how: str):
    assert ended(how).tell(Start("key")) == []


def test_the_time_to_live_runs_from_the_later_of_created_and_deliver_at():
    assert Story(ttl_ms=MINUTE).state.expires_at == T0 + MINUTE
    assert Story(ttl_ms=MINUTE, deliver_at=T0 + HOUR).state.expires_at == T0 + HOUR + MINUTE
    assert Story(ttl_ms=MINUTE, deliver_at=T0 - HOUR).state.expires_at == T0 + MINUTE


def test_a_request_expires_when_its_time_is_over_and_not_before():
    story = Story(ttl_ms=MINUTE, deliver_at=T0 + HOUR)
    assert story.tell(Expire(T0 + HOUR)) == []
    assert story.tell(Expire(T0 + HOUR + MINUTE)) == [e.Expired(0)]
    assert (story.state.status, story.state.sweep_at) == ("expired", None)


def test_the_sweep_comes_for_what_is_due_far_away_and_for_what_can_expire():
    assert Story(ttl_ms=MINUTE, deliver_at=T0 + HOUR).state.sweep_at == T0 + HOUR
    assert Story(ttl_ms=MINUTE, deliver_at=T0 + SECOND).state.sweep_at == T0 + SECOND + MINUTE
    assert Story().state.sweep_at is None


def test_a_request_without_a_time_to_live_never_expires():
    assert Story().tell(Expire()) == []
    assert Story().tell(Expire(T0 + 1000 * DAY)) == []


def test_expiry_is_looked_at_before_a_retry_is_planned():
    # S2-2: before scheduling a retry (now+delay>expiresAt ⇒ EXPIRED now)
    story = Story(ttl_ms=12 * SECOND)
    assert story.ends(Retry("busy")) == [e.AttemptFailed(1, "busy", "", T0 + 10 * SECOND)]
    assert story.ends(Retry("busy"), after_ms=10 * SECOND) == [
        e.AttemptFailed(2, "busy"),
        e.Expired(2),
    ]
    assert story.state.status == "expired"


def test_an_attempt_that_ends_after_the_time_to_live_is_not_expired_by_that():
    # S2-2: never expire an active attempt
    story = Story(ttl_ms=SECOND)
    assert story.ends(Done("p-1"), after_ms=MINUTE) == [e.Sent(1, "p-1")]


def test_a_redrive_in_between_is_not_undone_by_a_sweep_that_meant_the_old_time():
    story = ended("expired")
    story.tell(Redrive(T0 + 2 * HOUR, ttl_ms=HOUR))
    assert story.tell(Expire(T0 + 2 * HOUR + 1)) == []


def test_a_waiting_request_is_cancelled_at_once():
    story = Story()
    assert story.tell(Cancel()) == [e.Cancelled(0)]
    assert story.tell(Cancel()) == []


def test_a_withdrawn_request_ends_before_any_attempt():
    late, foe = Story(), Story()
    assert late.tell(Withdraw("duplicate", "of 1")) == [e.Cancelled(0, "duplicate", "of 1")]
    assert (late.state.status, late.state.reason, late.state.detail) == (
        "cancelled",
        "duplicate",
        "of 1",
    )
    assert foe.tell(Withdraw("conflict", "with 1")) == [
        e.Failed("conflict", 0, last_error="with 1")
    ]
    assert (foe.state.status, foe.state.wants) == ("failed", None)


def test_nothing_is_withdrawn_once_anything_has_happened():
    story = Story()
    story.tell(Start("key"))
    assert story.tell(Withdraw("conflict", "with 1")) == []


def test_a_cancel_while_an_attempt_runs_waits_for_its_end():
    story = Story()
    assert story.tell(Cancel(active=True)) == [e.Updated("cancel_requested")]
    assert story.tell(Cancel(active=True)) == []
    assert story.copy().ends(Done("p-1")) == [e.Sent(1, "p-1")]
    assert story.copy().ends(Rejected("gone")) == [e.Failed("gone", 1)]
    assert story.ends(Retry("busy")) == [e.AttemptFailed(1, "busy"), e.Cancelled(1)]
    assert story.state.status == "cancelled"


def test_no_attempt_begins_after_a_cancel_was_asked_for():
    story = Story()
    story.tell(Cancel(active=True))
    assert story.tell(Start("key")) == []
    assert story.tell(Cancel()) == [e.Cancelled(0)]


@pytest.mark.parametrize("how", ["sent", "failed", "expired"])
def test_an_ended_request_cannot_be_cancelled(how: str):
    assert ended(how).refusal(Cancel()) == "already_ended"


def test_a_planned_retry_can_be_had_now_under_the_same_key():
    story = Story()
    story.ends(Retry("busy", after_seconds=3600.0))
    key, dispatched = story.key, story.state.dispatch_version
    assert story.state.is_far
    assert story.tell(RetryNow(T0 + SECOND)) == [e.Updated("retry", "queued", 1, T0 + SECOND)]
    assert (story.key, story.state.due_at, story.state.is_far) == (key, T0 + SECOND, False)
    assert story.state.dispatch_version == story.state.version > dispatched


def test_retry_now_is_refused_while_the_request_is_already_due():
    story = Story()
    assert story.refusal(RetryNow(T0)) == "already_due"
    story.ends(Retry("busy"))
    assert story.refusal(RetryNow(T0 + 10 * SECOND)) == "already_due"


@pytest.mark.parametrize("how", ["sent", "failed", "expired", "cancelled"])
def test_retry_now_is_refused_after_the_request_has_ended(how: str):
    assert ended(how).refusal(RetryNow(T0)) == "not_waiting"


@pytest.mark.parametrize("how", ["failed", "expired", "cancelled"])
def test_a_redrive_after_known_failures_is_a_new_intent_with_a_fresh_budget(how: str):
    # S1-2: the intent is bumped only by an explicit command
    story = ended(how)
    assert story.tell(Redrive(T0 + DAY, ttl_ms=MINUTE)) == [
        e.Updated("redrive", "queued", 2, T0 + DAY, T0 + DAY + MINUTE)
    ]
    state = story.state
    assert (state.status, state.intent, state.attempts_before, state.expires_at) == (
        "queued",
        2,
        state.attempts,
        T0 + DAY + MINUTE,
    )
    assert state.dispatch_version == state.version
    assert story.key == f"acme:{ID}:send:2"


def test_a_redriven_request_may_use_all_its_attempts_and_all_its_time_again():
    story = Story(rules(attempts=1, elapsed_seconds=60.0))
    story.ends(Retry("busy"))
    story.rules = rules(attempts=2, elapsed_seconds=60.0)
    story.tell(Redrive(T0 + DAY))
    assert story.ends(Retry("busy")) == [e.AttemptFailed(2, "busy", "", T0 + DAY + 10 * SECOND)]
    assert [type(event) for event in story.ends(Retry("busy"))] == [e.AttemptFailed, e.Failed]


def test_only_what_is_over_can_be_redriven_and_a_success_never():
    assert Story().refusal(Redrive(T0)) == "not_final"
    assert ended("sent").refusal(Redrive(T0, again=True)) == "not_final"


def test_a_dead_letter_is_purged_once_and_comes_back_with_its_next_failure():
    story = ended("failed")
    assert story.tell(Purge()) == [e.Updated("purged")]
    assert story.tell(Purge()) == []
    story.tell(Redrive(T0))
    story.ends(Rejected("gone"))
    assert not story.state.purged
    assert Story().refusal(Purge()) == "not_dead"


def test_nothing_is_due_in_the_queue_beyond_a_quarter_of_an_hour():
    assert not Story(deliver_at=T0 + 15 * MINUTE).state.is_far
    story = Story(deliver_at=T0 + 15 * MINUTE + 1)
    assert (story.state.is_far, story.state.sweep_at) == (True, T0 + 15 * MINUTE + 1)


def test_commands_need_a_request():
    with pytest.raises(CommandRefused) as refused:
        decide(None, Resolve("executed", "ann", "seen"), rules())
    assert refused.value.code == "request_not_found"


def test_a_stream_begins_with_created():
    with pytest.raises(ValueError, match="must begin with Created"):
        evolve(None, e.Sent(1), meta(T0))
