"""The lifecycle of a notification: requested → validated → queued → sent | failed, plus expired,
cancelled, unknown.

Receives commands from intake, worker and sweep; gives back the events to append. The only place
with rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import assert_never

import msgspec
from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    Command,
    CommandRefused,
    Create,
    Expire,
    Lose,
    Postpone,
    Purge,
    Reconciled,
    RecordOutcome,
    RecordReceipt,
    Redrive,
    Resolve,
    RetryNow,
    Rules,
    Start,
    Withdraw,
)
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import LONGEST_WAIT_SECONDS
from gesta.domain.state import State

#: A letter goes to eleven people at most, and each of them is reported on a few times at most.
REPORTS_MAX = 50
NOTHING_USED: Mapping[str, int] = {}
_FAILED_ENDS = (e.AttemptFailed, e.Failed, e.OutcomeUnknown)


def decide(state: State | None, command: Command, rules: Rules) -> list[e.Event]:
    """The events that follow from a command; none when it changes nothing.

    Raises Refused when a person asks for the impossible.
    """
    if isinstance(command, Create):
        # A second Create of the same stream is answered by the event store: its expected version is
        # 0.
        return [] if state is not None else [_created(command)]
    if state is None:
        raise CommandRefused("request_not_found", "no such request")
    match command:
        case RecordOutcome():
            return _record(state, command, rules)
        case Start():
            return _start(state, command)
        case Postpone():
            return [e.Updated("postponed")] if state.started is not None else []
        case Lose():
            return _lose(state, command, rules)
        case Reconciled():
            return _reconciled(state, command, rules)
        case Resolve():
            return _resolve(state, command)
        case Cancel():
            return _cancel(state, command)
        case Withdraw():
            return _withdraw(state, command)
        case RetryNow():
            return _retry_now(state, command)
        case Redrive():
            return _redrive(state, command, rules)
        case Expire():
            return _expire(state, command, rules)
        case Purge() | RecordReceipt():
            return _purge(state) if isinstance(command, Purge) else _report(state, command)
        case _:
            assert_never(command)


def _created(command: Create) -> e.Created:
    starts_at = max(command.at, command.deliver_at or 0)
    return e.Created(
        id=command.id,
        flow=command.flow,
        payload=msgspec.Raw(command.payload),
        key=command.key,
        deliver_at=command.deliver_at,
        expires_at=None if command.ttl_ms is None else starts_at + command.ttl_ms,
        priority=command.priority,
        test=command.test,
        own=command.own,
        external=command.external,
    )


def _start(state: State, command: Start) -> list[e.Event]:
    if state.started is not None or state.wants != "execute" or state.cancel_requested:
        # Running already or lost, done, in doubt, called back: nobody may call the provider now.
        return []
    return [e.AttemptStarted(state.attempts + 1, command.key)]


def _record(state: State, command: RecordOutcome, rules: Rules) -> list[e.Event]:
    if isinstance(command.outcome, Done):
        return _done(state, command.outcome, command.attempt, command.used)
    events = _not_done(state, command, command.outcome, rules)
    # With the versions of the config that the attempt went by.
    return [
        replace(one, used=dict(command.used)) if isinstance(one, _FAILED_ENDS) else one
        for one in events
    ]


def _not_done(
    state: State, command: RecordOutcome, outcome: Rejected | Retry | Unknown, rules: Rules
) -> list[e.Event]:
    attempt = command.attempt
    if state.status == "sent":
        # A success is final: a late failure changes nothing.
        return []
    if attempt <= state.attempts or command.intent not in (None, state.intent):
        # This attempt was declared lost, or its intent given up, and a newer one has taken over:
        # its failures no longer count.
        return []
    if isinstance(outcome, Unknown):
        return [_unknown(state, outcome, attempt, command, rules)]
    if state.is_terminal:
        return []
    return _failed_attempt(state, outcome, attempt, command, rules)


def _done(
    state: State, outcome: Done, attempt: int, used: Mapping[str, int] = NOTHING_USED
) -> list[e.Event]:
    """Evidence of success is always recorded, whatever was believed before and whoever brings it; a
    second one changes nothing.
    """
    if state.status == "sent":
        return []
    kind = e.SentLate if state.is_terminal else e.Sent
    return [
        kind(max(attempt, state.attempts), outcome.id, outcome.target, outcome.detail, dict(used))
    ]


def _failed_attempt(
    state: State, outcome: Rejected | Retry, attempt: int, command: RecordOutcome, rules: Rules
) -> list[e.Event]:
    if isinstance(outcome, Rejected) and state.in_doubt and not command.called:
        # Nobody can send it any more, and an earlier attempt may have had its effect: a person has
        # to tell.
        return [e.OutcomeUnknown(attempt, outcome.reason, rules.on_unknown, outcome.detail)]
    if isinstance(outcome, Rejected):
        # The provider's own word ends it. A doubt about an earlier attempt stays on record, so that
        # a redrive keeps the key.
        return [e.Failed(outcome.reason, attempt, retryable=False, last_error=outcome.detail)]
    if state.in_doubt:
        # An earlier attempt may have had its effect: giving up must not look like a failure.
        return [
            _unknown(
                state,
                Unknown(outcome.reason, outcome.detail, outcome.after_seconds),
                attempt,
                command,
                rules,
            )
        ]
    next_at = _next_at(state, attempt, outcome.after_seconds, command, rules)
    ending = _ending(state, attempt, next_at, outcome.reason)
    return [
        e.AttemptFailed(attempt, outcome.reason, outcome.detail, None if ending else next_at),
        *ending,
    ]


def _ending(state: State, attempts: int, next_at: int | None, reason: str) -> list[e.Event]:
    """How a request ends whose attempts surely had no effect; empty when another attempt is to
    come.
    """
    if state.cancel_requested:
        return [e.Cancelled(attempts)]
    if next_at is None:
        return [e.Failed("max_attempts_exceeded", attempts, retryable=True, last_error=reason)]
    if _is_expired(state, next_at):
        return [e.Expired(attempts)]
    return []


def _is_expired(state: State, at: int) -> bool:
    return state.expires_at is not None and at >= state.expires_at


def _next_at(
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


def _unknown(
    state: State, outcome: Unknown, attempt: int, command: RecordOutcome | Lose, rules: Rules
) -> e.OutcomeUnknown:
    next_at: int | None = None
    if rules.on_unknown == "same_key":
        next_at = _resend_at(state, outcome, attempt, command, rules)
    elif rules.on_unknown == "ask":
        wait_seconds = min(
            max(rules.ask_after_seconds, outcome.after_seconds), LONGEST_WAIT_SECONDS
        )
        next_at = command.at + ceil(wait_seconds * 1000)
    return e.OutcomeUnknown(attempt, outcome.reason, rules.on_unknown, outcome.detail, next_at)


def _resend_at(
    state: State, outcome: Unknown, attempt: int, command: RecordOutcome | Lose, rules: Rules
) -> int | None:
    """When to send again under the same key; None when that could be a second effect, or one that
    nobody wants any more.
    """
    next_at = _next_at(state, attempt, outcome.after_seconds, command, rules)
    if next_at is None or state.is_terminal or state.cancel_requested:
        return None
    if isinstance(command, Lose):
        # The lease has run out already: that was the wait.
        next_at = command.at
    return (
        next_at
        if _key_protects(state, next_at, rules) and not _is_expired(state, next_at)
        else None
    )


def _key_protects(state: State, at: int, rules: Rules) -> bool:
    """Whether the provider still remembers this intent's key then (S1-4: some forget after a day
    and execute again).
    """
    return (
        rules.key_protects_seconds is None
        or at <= state.attempted_from + rules.key_protects_seconds * 1000
    )


def _lose(state: State, command: Lose, rules: Rules) -> list[e.Event]:
    if state.wants != "execute":
        # Over, left to a person, or only a question to the provider got lost: that can be asked
        # again.
        return []
    if state.started is None and state.due_at is not None and command.at < state.due_at:
        # The attempt that is missed has a recorded end, and no attempt begins before it is due.
        return []
    return [_unknown(state, Unknown(command.reason), state.attempts + 1, command, rules)]


def _reconciled(state: State, command: Reconciled, rules: Rules) -> list[e.Event]:
    outcome: Outcome = command.outcome
    if state.status != "unknown":
        return _done(state, outcome, state.attempts) if isinstance(outcome, Done) else []
    if state.started is not None and not isinstance(outcome, Done):
        # Asked before the attempt that is running now: the answer does not speak of it.
        return []
    match outcome:
        case Done():
            return [
                e.OutcomeResolved(
                    "executed", "provider", outcome.detail or "the provider has it", outcome.id
                )
            ]
        case Retry():
            next_at = _next_at(state, state.attempts, outcome.after_seconds, command, rules)
            ending = _ending(state, state.attempts, next_at, outcome.reason)
            resolved = e.OutcomeResolved(
                "not_executed", "provider", outcome.detail or outcome.reason
            )
            return [resolved, *ending] if ending else [replace(resolved, next_attempt_at=next_at)]
        case Rejected():
            return [e.OutcomeResolved("rejected", "provider", outcome.detail or outcome.reason)]
        case Unknown():
            return _asked_in_vain(state, outcome, command, rules)
        case _:
            assert_never(outcome)


def _asked_in_vain(
    state: State, outcome: Unknown, command: Reconciled, rules: Rules
) -> list[e.Event]:
    if rules.on_unknown != "ask":
        if state.wants != "reconcile":
            # Asked by hand: nothing new is known, and what was planned stays planned.
            return []
        # The flow used to ask and does so no longer: a person has to decide.
        return [e.OutcomeUnknown(state.attempts, outcome.reason, rules.on_unknown, outcome.detail)]
    delay = rules.asking.delay_seconds(state.asked + 1, command.chance, outcome.after_seconds)
    next_at = (
        None if delay is None else command.at + ceil(max(delay, rules.ask_after_seconds) * 1000)
    )
    return [
        e.OutcomeUnknown(state.attempts, outcome.reason, rules.on_unknown, outcome.detail, next_at)
    ]


def _resolve(state: State, command: Resolve) -> list[e.Event]:
    if not state.in_doubt or state.status == "queued":
        raise CommandRefused(
            "not_unknown", f"the request is {state.status}; only an unknown outcome can be resolved"
        )
    if state.started is not None and command.result != "executed":
        raise CommandRefused("attempt_running", "an attempt is running: its end decides")
    resolved = e.OutcomeResolved(command.result, command.by, command.evidence, command.provider_id)
    if command.result != "not_executed":
        return [resolved]
    if state.status == "failed":
        # It failed for another reason and stays so; without the doubt a redrive may use a new
        # intent.
        return [
            resolved,
            e.Failed(state.reason, state.attempts, retryable=True, last_error=state.detail),
        ]
    return [resolved, e.Cancelled(state.attempts)] if state.cancel_requested else [resolved]


def _cancel(state: State, command: Cancel) -> list[e.Event]:
    if state.status == "cancelled":
        return []
    if state.is_terminal:
        raise CommandRefused(
            "already_ended", f"the request is {state.status}; it can no longer be cancelled"
        )
    if state.status == "unknown" or state.in_doubt:
        told = (
            "resolve the outcome first"
            if state.status == "unknown"
            else "it is sent again under the same key, and that end decides"
        )
        raise CommandRefused("in_doubt", f"the effect may have happened; {told}")
    if command.active or state.started is not None:
        return [] if state.cancel_requested else [e.Updated("cancel_requested")]
    return [e.Cancelled(state.attempts)]


def _withdraw(state: State, command: Withdraw) -> list[e.Event]:
    if state.version > 1:
        # Whatever has happened since speaks for itself.
        return []
    if command.reason == "duplicate":
        # The earlier request does what was asked, so this one is no failure.
        return [e.Cancelled(state.attempts, command.reason, command.detail)]
    return [e.Failed(command.reason, state.attempts, retryable=False, last_error=command.detail)]


def _expire(state: State, command: Expire, rules: Rules) -> list[e.Event]:
    if state.wants != "execute":
        return []
    expired = state.expires_at is not None if command.at is None else _is_expired(state, command.at)
    # In doubt, and the key does not protect: the provider forgets it, or the flow no longer relies
    # on it.
    forgotten = (
        state.in_doubt
        and command.at is not None
        and (rules.on_unknown != "same_key" or not _key_protects(state, command.at, rules))
    )
    if not expired and not forgotten:
        return []
    if not state.in_doubt and state.started is None:
        return [e.Expired(state.attempts)]
    # Waiting to be resent, redriven under the same key, or journalled and lost: the effect may have
    # happened, so it stays unknown.
    next_at = None
    if rules.on_unknown == "ask":
        next_at = (state.expires_at or state.updated_at) + ceil(rules.ask_after_seconds * 1000)
    reason = "expired_in_doubt" if expired else "key_forgotten"
    return [
        e.OutcomeUnknown(state.started or state.attempts, reason, rules.on_unknown, next_at=next_at)
    ]


def _retry_now(state: State, command: RetryNow) -> list[e.Event]:
    if state.wants != "execute":
        again = {"sent": "", "unknown": "; resolve ends the doubt"}.get(
            state.status, "; redrive executes it again"
        )
        text = (
            f"the request is {state.status}; only one that waits for its next attempt can be"
            f" retried{again}"
        )
        raise CommandRefused("not_waiting", text)
    if state.started is not None or state.due_at is None or state.due_at <= command.at:
        # A second job beside the first would be a second attempt at the same time.
        raise CommandRefused("already_due", "its next attempt is due already, or running")
    return [e.Updated("retry", status=state.status, intent=state.intent, due_at=command.at)]


def _redrive(state: State, command: Redrive, rules: Rules) -> list[e.Event]:
    if state.status not in ("failed", "expired", "cancelled", "unknown"):
        again = (
            "; what was sent is sent again by a new request"
            if state.status == "sent"
            else " (one that waits: retry)"
        )
        raise CommandRefused(
            "not_final",
            f"the request is {state.status}; only what failed, expired or was cancelled can be"
            f" redriven{again}",
        )
    expires_at = None if command.ttl_ms is None else command.at + command.ttl_ms
    if command.again or not state.in_doubt:
        return [
            e.Updated(
                "redrive",
                status="queued",
                intent=state.intent + 1,
                due_at=command.at,
                expires_at=expires_at,
            )
        ]
    if rules.on_unknown != "same_key" or not _key_protects(state, command.at, rules):
        text = (
            "an attempt may have had its effect and its key does not protect: resolve it, or force"
            " a new intent with --again"
        )
        raise CommandRefused("in_doubt", text)
    return [
        e.Updated(
            "redrive",
            status="queued",
            intent=state.intent,
            due_at=command.at,
            expires_at=expires_at,
        )
    ]


def _purge(state: State) -> list[e.Event]:
    if state.status != "failed":
        raise CommandRefused(
            "not_dead", f"the request is {state.status}; only a dead letter can be purged"
        )
    return [] if state.purged else [e.Updated("purged")]


def _report(state: State, command: RecordReceipt) -> list[e.Event]:
    """Beside the status; and evidence that it was sent, where that is not on record yet.

    Told twice, it is one report.
    """
    if command.report in state.reports or len(state.reports) >= REPORTS_MAX:
        return []
    told, provider_id, at = command.report, command.provider_id, command.reported_at
    report: e.Event
    match command.kind:
        case "delivered":
            report = e.Delivered(told, provider_id, at)
        case "bounced":
            report = e.Bounced(told, command.reason, command.permanent, provider_id, at)
        case "complained":
            report = e.Complained(told, command.reason, provider_id, at)
    detail = f"the provider reported on it: {command.kind}"
    if state.status == "unknown":
        return [e.OutcomeResolved("executed", "provider", detail, provider_id), report]
    # One that nobody counted yet is at work right now, or was lost.
    attempt = state.attempts if state.is_terminal or state.in_doubt else state.attempts + 1
    return [*_done(state, Done(provider_id, detail=detail), attempt), report]
