"""decide: a command about a request becomes the events to append.

Receives commands from intake, worker and sweeper. `DECISIONS` holds one function per command; a
lifecycle uses this table as it is, or replaces and adds entries.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    Command,
    CommandRefused,
    Create,
    Expire,
    HoldRequest,
    Lose,
    Postpone,
    Purge,
    Reconciled,
    RecordOutcome,
    Redrive,
    ReleaseRequest,
    Resolve,
    RetryNow,
    Rules,
    Start,
    Withdraw,
)
from gesta.domain.operation import Operation
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import LONGEST_WAIT_SECONDS
from gesta.domain.state import State

#: (state, command, the flow's rules, the operation of the state) → events; none: nothing changes.
Decide = Callable[[State, Any, Rules, Operation], list[e.Event]]

NOTHING_USED: Mapping[str, int] = {}
NO_FACTS: Mapping[str, Any] = {}
_FAILED_ENDS = (e.AttemptFailed, e.Failed, e.OutcomeUnknown)


def created(command: Create, operation: str) -> e.Created:
    """The first event of a request, which opens its first operation."""
    expires_at = None
    if command.ttl_ms is not None:
        expires_at = max(command.at, command.deliver_at or 0) + command.ttl_ms
    return e.Created(
        command.id,
        command.flow,
        msgspec.Raw(command.payload),
        command.operation or operation,
        1,
        "queued",
        command.key,
        command.deliver_at,
        expires_at,
        command.priority,
        command.test,
        command.external,
        command.own,
        dict(command.facts),
    )


def _start(state: State, command: Start, *_: object) -> list[e.Event]:
    if state.started is not None or state.wants != "execute" or state.cancel_requested:
        # An attempt is running or was lost, or the request has ended, is unknown or was cancelled.
        return []
    if not command.is_for(state.operation, state.intent):
        # The operation that the call is for has ended meanwhile.
        return []
    return [e.AttemptStarted(state.attempts + 1, command.key)]


def _postpone(state: State, *_: object) -> list[e.Event]:
    return [e.Updated("postponed")] if state.started is not None else []


def _hold(state: State, command: HoldRequest, *_: object) -> list[e.Event]:
    if state.wants is None or (state.held == command.by and state.started is None):
        return []
    return [e.Updated("held", held_by=command.by)]


def _release(state: State, *_: object) -> list[e.Event]:
    return [e.Updated("released")] if state.held and state.wants is not None else []


def _record(
    state: State, command: RecordOutcome, rules: Rules, operation: Operation
) -> list[e.Event]:
    if command.operation != operation.name and command.operation is not None:
        # The next operation is open, so the success of this one is already recorded.
        return []
    if isinstance(command.outcome, Done):
        return done(state, command.outcome, command.attempt, operation, command.used, command.facts)
    if state.status == operation.status:
        # A success is final: a late failure changes nothing.
        return []
    events = _not_done(state, command, command.outcome, rules)
    # With the versions of the config that the attempt used. Its facts are in its first event; a
    # second event ends the request.
    return [
        replace(one, used=dict(command.used), **({} if number else command.facts))
        if isinstance(one, _FAILED_ENDS)
        else one
        for number, one in enumerate(events)
    ]


def _not_done(
    state: State, command: RecordOutcome, outcome: Rejected | Retry | Unknown, rules: Rules
) -> list[e.Event]:
    attempt = command.attempt
    if attempt <= state.attempts or command.intent not in (None, state.intent):
        # The attempt was declared lost, or its intent was given up: its failures no longer count.
        return []
    if isinstance(outcome, Unknown):
        return _unknown_or_cancelled(state, outcome, attempt, command, rules)
    if state.is_terminal:
        return []
    return _failed_attempt(state, outcome, attempt, command, rules)


def done(
    state: State,
    outcome: Done,
    attempt: int,
    operation: Operation,
    used: Mapping[str, int] = NOTHING_USED,
    facts: Mapping[str, Any] = NO_FACTS,
) -> list[e.Event]:
    """Evidence of success is always recorded, whatever the status. A second one changes nothing."""
    if state.status == operation.status:
        return []
    kind = operation.done_late if state.is_terminal else operation.done
    number = max(attempt, state.attempts)
    return [kind(number, outcome.id, outcome.target, outcome.detail, dict(used), **facts)]


def _failed_attempt(
    state: State, outcome: Rejected | Retry, attempt: int, command: RecordOutcome, rules: Rules
) -> list[e.Event]:
    if isinstance(outcome, Rejected) and state.in_doubt and not command.called:
        # The engine can no longer execute it, and an earlier attempt may have had an effect: a
        # person has to decide.
        return [e.OutcomeUnknown(attempt, outcome.reason, rules.on_unknown, outcome.detail)]
    if isinstance(outcome, Rejected):
        # The provider's answer ends it. The record keeps that an earlier attempt may have had an
        # effect, so that a redrive keeps the key.
        return [e.Failed(outcome.reason, attempt, retryable=False, last_error=outcome.detail)]
    if state.in_doubt:
        # An earlier attempt may have had its effect: giving up must not look like a failure.
        unknown = Unknown(outcome.reason, outcome.detail, outcome.after_seconds)
        return _unknown_or_cancelled(state, unknown, attempt, command, rules)
    next_at = next_attempt_at(state, attempt, outcome.after_seconds, command, rules)
    ending = ending_of(state, attempt, next_at, outcome.reason)
    return [
        e.AttemptFailed(attempt, outcome.reason, outcome.detail, None if ending else next_at),
        *ending,
    ]


def ending_of(state: State, attempts: int, next_at: int | None, reason: str) -> list[e.Event]:
    """The end of a request whose attempts had no effect; empty if another attempt follows."""
    if state.cancel_requested:
        return [e.Cancelled(attempts)]
    if next_at is None:
        return [e.Failed("max_attempts_exceeded", attempts, retryable=True, last_error=reason)]
    if is_expired(state, next_at):
        return [e.Expired(attempts)]
    return []


def is_expired(state: State, at: int) -> bool:
    return state.expires_at is not None and at >= state.expires_at


def next_attempt_at(
    state: State,
    attempt: int,
    after_seconds: float,
    command: RecordOutcome | Lose | Reconciled,
    rules: Rules,
) -> int | None:
    delay = rules.retry.delay_seconds(
        attempt - state.attempts_before, command.chance, after_seconds
    )
    if delay is None:
        return None
    next_at = command.at + ceil(delay * 1000)
    first = max(state.first_attempt_at or command.at, state.reopened_at or 0)
    limit = rules.retry.elapsed_seconds
    return None if limit is not None and next_at > first + limit * 1000 else next_at


def _unknown_or_cancelled(
    state: State, outcome: Unknown, attempt: int, command: RecordOutcome | Lose, rules: Rules
) -> list[e.Event]:
    unknown = _unknown(state, outcome, attempt, command, rules)
    if rules.cancels_unknown and state.cancel_requested and not state.is_terminal:
        return [unknown, e.Cancelled(attempt)]
    return [unknown]


def _unknown(
    state: State, outcome: Unknown, attempt: int, command: RecordOutcome | Lose, rules: Rules
) -> e.OutcomeUnknown:
    next_at: int | None = None
    if rules.on_unknown == "resend":
        next_at = _resend_at(state, outcome, attempt, command, rules)
    elif rules.on_unknown == "reconcile":
        wait_seconds = min(
            max(rules.ask_after_seconds, outcome.after_seconds), LONGEST_WAIT_SECONDS
        )
        next_at = command.at + ceil(wait_seconds * 1000)
    return e.OutcomeUnknown(attempt, outcome.reason, rules.on_unknown, outcome.detail, next_at)


def _resend_at(
    state: State, outcome: Unknown, attempt: int, command: RecordOutcome | Lose, rules: Rules
) -> int | None:
    """When to send again under the same key; None if that could be a second effect, or if the
    request was cancelled or is over.
    """
    next_at = next_attempt_at(state, attempt, outcome.after_seconds, command, rules)
    if next_at is None or state.is_terminal or state.cancel_requested:
        return None
    if isinstance(command, Lose):
        # The lease has expired: that was the wait.
        next_at = command.at
    return (
        next_at if _key_protects(state, next_at, rules) and not is_expired(state, next_at) else None
    )


def _key_protects(state: State, at: int, rules: Rules) -> bool:
    """Whether the provider still remembers this intent's key then (S1-4: some forget after a day
    and execute again).
    """
    return (
        rules.key_protects_seconds is None
        or at <= state.attempted_from + rules.key_protects_seconds * 1000
    )


def _lose(state: State, command: Lose, rules: Rules, _: object) -> list[e.Event]:
    if state.wants != "execute":
        # The request has ended or is left to a person, or a look-up was lost, which can be
        # repeated.
        return []
    if state.started is None and state.due_at is not None and command.at < state.due_at:
        # The lost attempt has a recorded end: no attempt begins before it is due.
        return []
    lost = Unknown(command.reason, command.detail)
    return _unknown_or_cancelled(state, lost, state.attempts + 1, command, rules)


def _reconciled(
    state: State, command: Reconciled, rules: Rules, operation: Operation
) -> list[e.Event]:
    outcome: Outcome = command.outcome
    if command.operation not in (None, operation.name):
        # The next operation is open: the answer is about the one before it.
        return []
    if state.status != "unknown":
        return done(state, outcome, state.attempts, operation) if isinstance(outcome, Done) else []
    if state.started is not None and not isinstance(outcome, Done):
        # The provider was asked before the attempt that runs now: its answer is not about it.
        return []
    resolved = partial(e.OutcomeResolved, by="provider", operation=operation.name)
    match outcome:
        case Done():
            evidence = outcome.detail or "the provider has it"
            return [resolved("executed", evidence=evidence, provider_message_id=outcome.id)]
        case Retry():
            next_at = next_attempt_at(state, state.attempts, outcome.after_seconds, command, rules)
            ending = ending_of(state, state.attempts, next_at, outcome.reason)
            not_executed = resolved(
                "not_executed",
                evidence=outcome.detail or outcome.reason,
                next_attempt_at=None if ending else next_at,
            )
            return [not_executed, *ending]
        case Rejected():
            return [resolved("rejected", evidence=outcome.detail or outcome.reason)]
        case Unknown():
            return _still_unknown(state, outcome, command, rules)
        case _:
            assert_never(outcome)


def _still_unknown(
    state: State, outcome: Unknown, command: Reconciled, rules: Rules
) -> list[e.Event]:
    if rules.on_unknown != "reconcile":
        if state.wants != "reconcile":
            # An operator asked, but nothing new is known, so the plan stays.
            return []
        # The flow no longer reconciles: a person has to decide.
        return [e.OutcomeUnknown(state.attempts, outcome.reason, rules.on_unknown, outcome.detail)]
    delay = None
    if not outcome.manual:
        delay = rules.asking.delay_seconds(state.asked + 1, command.chance, outcome.after_seconds)
    next_at = (
        None if delay is None else command.at + ceil(max(delay, rules.ask_after_seconds) * 1000)
    )
    return [
        e.OutcomeUnknown(state.attempts, outcome.reason, rules.on_unknown, outcome.detail, next_at)
    ]


def _resolve(state: State, command: Resolve, _: object, operation: Operation) -> list[e.Event]:
    if not state.in_doubt or state.phase == "open":
        raise CommandRefused(
            "not_unknown", f"the request is {state.status}; only an unknown outcome can be resolved"
        )
    if state.started is not None and command.result != "executed":
        raise CommandRefused("attempt_running", "an attempt is running; wait for its outcome")
    if command.amount is not None:
        raise CommandRefused("not_supported", "only a transaction moves an amount")
    resolved = e.OutcomeResolved(
        command.result,
        command.by,
        command.evidence,
        command.provider_id,
        operation=operation.name,
    )
    if command.result != "not_executed":
        return [resolved]
    if state.status == "failed":
        # It failed for another reason and stays failed; a redrive may use a new intent now.
        return [
            resolved,
            e.Failed(state.reason, state.attempts, retryable=True, last_error=state.detail),
        ]
    if state.cancel_requested:
        return [resolved, e.Cancelled(state.attempts)]
    return [replace(resolved, new_budget=True)]


def _cancel(state: State, command: Cancel, rules: Rules, _: object) -> list[e.Event]:
    if state.status == "cancelled":
        return []
    if state.is_terminal:
        raise CommandRefused(
            "already_ended", f"the request is {state.status}; it can no longer be cancelled"
        )
    if (state.status == "unknown" or state.in_doubt) and not rules.cancels_unknown:
        advice = (
            "resolve the outcome first"
            if state.status == "unknown"
            else "gesta sends it again with the same key; wait for that outcome"
        )
        raise CommandRefused("in_doubt", f"the effect may have happened; {advice}")
    if command.active or state.started is not None:
        return [] if state.cancel_requested else [e.Updated("cancel_requested")]
    return [e.Cancelled(state.attempts, command.reason, command.detail)]


def _withdraw(state: State, command: Withdraw, *_: object) -> list[e.Event]:
    if state.version > 1:
        # The request has changed since then, and that decides.
        return []
    if command.reason == "duplicate":
        # The earlier request does the same, so this one did not fail.
        return [e.Cancelled(state.attempts, command.reason, command.detail)]
    return [e.Failed(command.reason, state.attempts, retryable=False, last_error=command.detail)]


def _expire(state: State, command: Expire, rules: Rules, _: object) -> list[e.Event]:
    if state.wants != "execute":
        return []
    expired = state.expires_at is not None if command.at is None else is_expired(state, command.at)
    # Possibly executed, and the key does not prevent a second effect: the provider forgets it, or
    # the flow no longer relies on it.
    forgotten = (
        state.in_doubt
        and command.at is not None
        and (rules.on_unknown != "resend" or not _key_protects(state, command.at, rules))
    )
    if not expired and not forgotten:
        return []
    if not state.in_doubt and state.started is None:
        return [e.Expired(state.attempts)]
    # It waits to be resent, was redriven under the same key, or was journalled and lost: the
    # effect may have happened, so it stays unknown.
    next_at = None
    if rules.on_unknown == "reconcile":
        next_at = (state.expires_at or state.updated_at) + ceil(rules.ask_after_seconds * 1000)
    reason = "expired_in_doubt" if expired else "key_forgotten"
    return [
        e.OutcomeUnknown(state.started or state.attempts, reason, rules.on_unknown, next_at=next_at)
    ]


def _retry_now(state: State, command: RetryNow, _: object, operation: Operation) -> list[e.Event]:
    if state.wants != "execute":
        again = {operation.status: "", "unknown": "; resolve the outcome first"}.get(
            state.status, "; redrive executes it again"
        )
        text = (
            f"the request is {state.status}; only a request that waits for its next attempt can be"
            f" retried{again}"
        )
        raise CommandRefused("not_waiting", text)
    if state.started is not None or state.due_at is None or state.due_at <= command.at:
        # A second job beside the first would be a second attempt at the same time.
        raise CommandRefused("already_due", "its next attempt is already due or running")
    return [e.Updated("retry", status=state.status, intent=state.intent, due_at=command.at)]


def _redrive(state: State, command: Redrive, rules: Rules, operation: Operation) -> list[e.Event]:
    if state.status not in ("failed", "expired", "cancelled", "unknown"):
        again = (
            f"; submit a new request to have it {operation.status} again"
            if state.status == operation.status
            else " (use retry for a waiting request)"
        )
        raise CommandRefused(
            "not_final",
            f"the request is {state.status}; only a failed, expired or cancelled request can be"
            f" redriven{again}",
        )
    intent = state.intent
    if command.again or not state.in_doubt:
        intent += 1
    elif rules.on_unknown != "resend" or not _key_protects(state, command.at, rules):
        text = (
            "an attempt may have had an effect, and a new key would not prevent a second one:"
            " resolve the request, or force a new intent with --again"
        )
        raise CommandRefused("in_doubt", text)
    return [
        e.Updated(
            "redrive",
            status="queued",
            intent=intent,
            due_at=command.at,
            expires_at=None if command.ttl_ms is None else command.at + command.ttl_ms,
        )
    ]


def _purge(state: State, *_: object) -> list[e.Event]:
    if state.status != "failed":
        raise CommandRefused(
            "not_dead", f"the request is {state.status}; only a dead letter can be purged"
        )
    return [] if state.purged else [e.Updated("purged")]


#: The commands that every lifecycle takes.
DECISIONS: Mapping[type[Command], Decide] = {
    Start: _start,
    RecordOutcome: _record,
    Postpone: _postpone,
    HoldRequest: _hold,
    ReleaseRequest: _release,
    Lose: _lose,
    Reconciled: _reconciled,
    Resolve: _resolve,
    Cancel: _cancel,
    Withdraw: _withdraw,
    RetryNow: _retry_now,
    Redrive: _redrive,
    Expire: _expire,
    Purge: _purge,
}
