"""The checkers, checked: small bugs planted into the domain, each found by the promise it
breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.codec import encode
from gesta.domain.commands import (
    Cancel,
    Command,
    Lose,
    Reconciled,
    RecordOutcome,
    RecordReceipt,
    Redrive,
    RetryNow,
    Rules,
)
from gesta.domain.notification import receipts
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.operation import Operation
from gesta.domain.operation import decide as deciding
from gesta.domain.operation import evolve as folding
from gesta.domain.outcome import Done, Rejected, Unknown
from gesta.domain.state import State
from tests.domain import promises, story
from tests.domain.moves import random_life
from tests.domain.planting import plant
from tests.domain.promises import check_life
from tests.domain.search import finds
from tests.domain.world import live_through, random_plan

LIVES = 2000
WORLDS = 8000

# The code as it is, for bugs that change only a part of what it does.
record, failed_attempt, redrive, cancel = (
    deciding._record,
    deciding._failed_attempt,
    deciding._redrive,
    deciding._cancel,
)
next_at, ending, expire, reconciled = (
    deciding.next_attempt_at,
    deciding.ending_of,
    deciding._expire,
    deciding._reconciled,
)
lose, unknown, receipt, decide = (
    deciding._lose,
    deciding._unknown,
    receipts.decide_receipt,
    NOTIFICATION.decide,
)
folded_unknown, folded_resolved, folded_updated, evolve = (
    folding._unknown,
    folding._resolved,
    folding._updated,
    NOTIFICATION.evolve,
)

Bug = Callable[..., Any]


def a_retry_gets_a_new_key(state: State, *rest: Any) -> list[e.Event]:
    events = failed_attempt(state, *rest)
    return (
        [*events, e.Updated("redrive", intent=state.intent + 1, due_at=rest[2].at)]
        if len(events) == 1
        else events
    )


def a_failure_after_success_is_recorded(
    state: State, command: RecordOutcome, *rest: Any
) -> list[e.Event]:
    late = state.status == "sent" and isinstance(command.outcome, Rejected)
    return [e.Failed("late", state.attempts)] if late else record(state, command, *rest)


def a_receipt_received_again_is_recorded(
    state: State, command: RecordReceipt, *rest: Any
) -> list[e.Event]:
    return receipt(replace(state, reports=()), command, *rest)


def a_receipt_is_no_evidence(state: State, command: RecordReceipt, *rest: Any) -> list[e.Event]:
    return receipt(state, command, *rest)[-1:]


def a_second_success_is_recorded(
    state: State, outcome: Done, attempt: int, *_: Any
) -> list[e.Event]:
    return [(e.SentLate if state.is_terminal else e.Sent)(max(attempt, state.attempts), outcome.id)]


def a_late_success_is_dropped(state: State, outcome: Done, attempt: int, *_: Any) -> list[e.Event]:
    return [] if state.is_terminal else [e.Sent(max(attempt, state.attempts), outcome.id)]


def a_late_success_is_not_called_late(
    state: State, outcome: Done, attempt: int, *_: Any
) -> list[e.Event]:
    return [] if state.status == "sent" else [e.Sent(max(attempt, state.attempts), outcome.id)]


def a_stale_failure_counts(state: State, command: RecordOutcome, *rest: Any) -> list[e.Event]:
    return record(state, replace(command, attempt=max(command.attempt, state.attempts + 1)), *rest)


def an_older_intent_s_failure_counts(
    state: State, command: RecordOutcome, *rest: Any
) -> list[e.Event]:
    return record(state, replace(command, intent=None), *rest)


def attempts_start_again_at_one(state: State, *rest: Any) -> e.OutcomeUnknown:
    return replace(unknown(state, *rest), attempt=1)


def unknown_expires(state: State, *rest: Any) -> list[e.Event]:
    return [e.Expired(state.attempts)] if state.status == "unknown" else expire(state, *rest)


def unknown_fails_when_its_time_is_over(state: State, *rest: Any) -> list[e.Event]:
    return (
        [e.Failed("expired", state.attempts)] if state.status == "unknown" else expire(state, *rest)
    )


def a_lost_attempt_is_forgotten(state: State, *rest: Any) -> list[e.Event]:
    return lose(state, *rest) if state.started is not None else []


def a_lost_attempt_counts_as_failed(state: State, command: Lose, *rest: Any) -> list[e.Event]:
    events = lose(state, command, *rest)
    return (
        [e.AttemptFailed(state.attempts + 1, "lost", next_attempt_at=command.at)]
        if events
        else events
    )


def the_first_failure_is_final(*_: Any) -> None:
    return None


def a_wait_is_never_over(
    state: State, attempt: int, after_seconds: float, command: RecordOutcome, _: Rules
) -> int:
    return command.at + round(min(after_seconds, 1e6) * 1000)


def retry_after_is_not_heard(state: State, attempt: int, _: float, *rest: Any) -> int | None:
    return next_at(state, attempt, 0.0, *rest)


def the_key_is_remembered_for_ever(_: State, __: int, ___: Rules) -> bool:
    return True


def nothing_ever_expires(_: State, __: int) -> bool:
    return False


def a_redrive_always_takes_a_new_key(state: State, command: Redrive, *rest: Any) -> list[e.Event]:
    return redrive(state, replace(command, again=True), *rest)


def a_redrive_keeps_the_key_of_a_forgetful_provider(
    state: State, command: Redrive, rules: Rules, operation: Operation
) -> list[e.Event]:
    forgetful = replace(rules, on_unknown="resend", key_protects_seconds=None)
    return redrive(state, command, forgetful, operation)


def what_is_unknown_is_cancelled(state: State, command: Cancel, *rest: Any) -> list[e.Event]:
    known = replace(
        state, status="queued" if state.status == "unknown" else state.status, in_doubt=False
    )
    return cancel(known, command, *rest)


def what_is_journalled_is_cancelled(state: State, command: Cancel, *rest: Any) -> list[e.Event]:
    return cancel(replace(state, started=None), command, *rest)


def a_cancel_is_forgotten(state: State, *rest: Any) -> list[e.Event]:
    return ending(replace(state, cancel_requested=False), *rest)


def no_trace_is_read_as_failure(state: State, command: Reconciled, *rest: Any) -> list[e.Event]:
    vain = isinstance(command.outcome, Unknown)
    return reconciled(
        state, replace(command, outcome=Rejected("silent")) if vain else command, *rest
    )


def a_retry_is_put_beside_a_running_attempt(
    state: State, command: RetryNow, *_: Any
) -> list[e.Event]:
    return [e.Updated("retry", due_at=command.at)] if state.wants == "execute" else []


def every_start_is_journalled(state: State, command: Any, *_: Any) -> list[e.Event]:
    return [e.AttemptStarted(state.attempts + 1, command.key)]


def no_attempt_ever_starts(*_: Any) -> list[e.Event]:
    return []


def a_resend_is_never_planned(*_: Any) -> None:
    return None


def in_doubt_is_not_folded(state: State, *rest: Any) -> State:
    return replace(folded_unknown(state, *rest), in_doubt=False)


def in_doubt_ends_with_a_redrive(state: State, *rest: Any) -> State:
    return replace(folded_updated(state, *rest), in_doubt=False)


def the_key_s_age_counts_from_the_last_attempt(
    state: State, event: e.OutcomeUnknown, version: int, at: int
) -> State:
    return replace(folded_unknown(state, event, version, at), first_attempt_at=at)


def a_reopened_request_is_not_dispatched(state: State, *rest: Any) -> State:
    return replace(folded_resolved(state, *rest), dispatch_version=state.dispatch_version)


def a_decision_does_not_count(state: State, *rest: Any) -> State:
    return replace(folded_updated(state, *rest), version=state.version)


def what_is_purged_is_cancelled(state: State, event: e.Updated, *rest: Any) -> State:
    folded = folded_updated(state, event, *rest)
    return replace(folded, status="cancelled") if event.change == "purged" else folded


IN_DECIDE: list[tuple[str, Bug, str]] = [
    (
        "_failed_attempt",
        a_retry_gets_a_new_key,
        "the key changes by a redrive with a new intent only",
    ),
    (
        "_record",
        a_failure_after_success_is_recorded,
        "sent is final: no command but a report after it yields an event",
    ),
    (
        "decide_receipt",
        a_receipt_received_again_is_recorded,
        "the same report again yields no event",
    ),
    ("decide_receipt", a_receipt_is_no_evidence, "a report shows that it was sent"),
    ("done", a_second_success_is_recorded, "a second success yields no event"),
    ("done", a_late_success_is_dropped, "evidence of success always ends in sent"),
    ("done", a_late_success_is_not_called_late, "success after giving up is recorded as late"),
    ("_record", a_stale_failure_counts, "a stale attempt's failure changes nothing"),
    ("_record", an_older_intent_s_failure_counts, "a stale attempt's failure changes nothing"),
    ("_unknown", attempts_start_again_at_one, "attempts never decrease"),
    ("_expire", unknown_expires, "nothing unknown expires or is cancelled"),
    ("_expire", unknown_fails_when_its_time_is_over, "unknown never fails or expires by itself"),
    ("_lose", a_lost_attempt_counts_as_failed, "a lost attempt is counted as one and unknown"),
    (
        "next_attempt_at",
        the_first_failure_is_final,
        "a retry while attempts remain is AttemptFailed and not Failed",
    ),
    ("next_attempt_at", a_wait_is_never_over, "a spent budget ends it"),
    ("next_attempt_at", retry_after_is_not_heard, "nothing is due before Retry-After"),
    (
        "_key_protects",
        the_key_is_remembered_for_ever,
        "nothing unknown is resent when the key is forgotten",
    ),
    ("is_expired", nothing_ever_expires, "nothing is planned beyond its time to live"),
    ("_redrive", a_redrive_always_takes_a_new_key, "no new intent while unknown unless forced"),
    (
        "_redrive",
        a_redrive_keeps_the_key_of_a_forgetful_provider,
        "the same intent is redriven only under a key that protects",
    ),
    ("_cancel", what_is_unknown_is_cancelled, "nothing unknown expires or is cancelled"),
    (
        "_cancel",
        what_is_journalled_is_cancelled,
        "a journalled attempt without an end is neither expired nor cancelled",
    ),
    ("ending_of", a_cancel_is_forgotten, "what was cancelled is not tried again"),
    ("_start", every_start_is_journalled, "only an open operation is started"),
    ("_resend_at", a_resend_is_never_planned, "under resend it is resent while it may be"),
]
IN_FOLD: list[tuple[str, Bug, str]] = [
    ("_unknown", in_doubt_is_not_folded, "unknown is remembered until it is resolved"),
    ("_updated", in_doubt_ends_with_a_redrive, "unknown is remembered until it is resolved"),
    (
        "_unknown",
        the_key_s_age_counts_from_the_last_attempt,
        "nothing unknown is resent when the key is forgotten",
    ),
    ("_resolved", a_reopened_request_is_not_dispatched, "each opening is a dispatch of its own"),
    ("_updated", a_decision_does_not_count, "version counts events"),
    (
        "_updated",
        what_is_purged_is_cancelled,
        "each event leads from one status to another as the lifecycle has it",
    ),
]
IN_THE_WORLD: list[tuple[str, Bug, str]] = [
    ("_lose", a_lost_attempt_is_forgotten, "two effects under one key"),
    ("_lose", a_lost_attempt_counts_as_failed, "two effects under one key"),
    ("_key_protects", the_key_is_remembered_for_ever, "two effects under one key"),
    ("_redrive", a_redrive_always_takes_a_new_key, "two effects without force"),
    ("_cancel", what_is_unknown_is_cancelled, "cancelled as not executed, and yet it happened"),
    ("_expire", unknown_expires, "expired as not executed, and yet it happened"),
    ("_reconciled", no_trace_is_read_as_failure, "failed as not executed, and yet it happened"),
    ("_lose", a_lost_attempt_is_forgotten, "failed as not executed, and yet it happened"),
    ("_retry_now", a_retry_is_put_beside_a_running_attempt, "two effects under one key"),
    ("done", a_late_success_is_dropped, "a success was reported and is not on record"),
    ("_start", no_attempt_ever_starts, "never comes to rest"),
]


def ids(bugs: list[tuple[str, Bug, str]]) -> list[str]:
    return [bug.__name__ for _, bug, _ in bugs]


@pytest.mark.parametrize(("place", "bug", "promise"), IN_DECIDE, ids=ids(IN_DECIDE))
def test_a_bug_planted_in_decide_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, bug: Bug, promise: str
):
    plant(monkeypatch, deciding if hasattr(deciding, place) else receipts, place, bug)
    assert finds(promise, random_life, check_life, LIVES)


@pytest.mark.parametrize(("place", "bug", "promise"), IN_FOLD, ids=ids(IN_FOLD))
def test_a_bug_planted_in_evolve_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, bug: Bug, promise: str
):
    plant(monkeypatch, folding, place, bug)
    assert finds(promise, random_life, check_life, LIVES)


@pytest.mark.parametrize(("place", "bug", "promise"), IN_THE_WORLD, ids=ids(IN_THE_WORLD))
def test_a_bug_that_doubles_loses_or_lies_is_found_by_counting_effects(
    monkeypatch: pytest.MonkeyPatch, place: str, bug: Bug, promise: str
):
    plant(monkeypatch, deciding if hasattr(deciding, place) else receipts, place, bug)
    assert finds(promise, random_plan, live_through, WORLDS)


def test_a_decision_by_chance_is_found(monkeypatch: pytest.MonkeyPatch):
    ticks = count()

    def by_chance(state: State | None, command: Command, rules: Rules) -> list[e.Event]:
        return decide(state, command, rules) if next(ticks) % 7 else []

    monkeypatch.setattr(promises, "decide", by_chance)
    assert finds("the same command gives the same events", random_life, check_life, LIVES)


def test_a_state_without_a_job_or_a_sweep_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(State, "wants", property(lambda _: None))
    assert finds(
        "what is neither over nor left to a person wants a job", random_life, check_life, LIVES
    )


def test_a_sweep_that_is_blind_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(State, "sweep_at", property(lambda _: None))
    assert finds("what can expire is found by the sweep", random_life, check_life, LIVES)
    assert finds("what is due far away is found by the sweep", random_life, check_life, LIVES)


def test_an_event_that_is_not_read_back_as_it_was_is_found(monkeypatch: pytest.MonkeyPatch):
    def forgetful(event: object) -> bytes:
        return encode(replace(event, reason="") if isinstance(event, e.Failed) else event)

    monkeypatch.setattr(promises, "encode", forgetful)
    assert finds("what is stored and read again is the same", random_life, check_life, LIVES)


def test_a_fold_that_depends_on_more_than_the_events_is_found(monkeypatch: pytest.MonkeyPatch):
    ticks = count()

    def moody(state: State | None, event: e.Event | None, meta: e.Meta) -> State:
        return replace(evolve(state, event, meta), priority=1 + next(ticks) % 9)

    monkeypatch.setattr(story, "evolve", moody)
    assert finds("the fold of all events is the state", random_life, check_life, LIVES)
