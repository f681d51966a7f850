"""decide: what happens to the open operation of a transaction.

An unknown outcome is never guessed. It is looked up, or the same call is sent again under the same
key while the gateway remembers that key, and after that only looked up; then a person decides.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any, assert_never, cast

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    Command,
    CommandRefused,
    Expire,
    Lose,
    Reconciled,
    RecordOutcome,
    Redrive,
    Resolve,
    Rules,
    Start,
)
from gesta.domain.operation import Operation
from gesta.domain.operation.decide import (
    DECISIONS,
    Decide,
    ending_of,
    is_expired,
    next_attempt_at,
)
from gesta.domain.outcome import Done, Movement, Rejected, Retry, Unknown
from gesta.domain.state import State
from gesta.domain.transaction import commands as c
from gesta.domain.transaction import events as t
from gesta.domain.transaction.evolve import in_ledger, movement
from gesta.domain.transaction.funds import STORED, Funds, funds_of
from gesta.domain.transaction.opening import OPENINGS, amount_of
from gesta.domain.transaction.postings import legs

_FAILED_ENDS = (e.AttemptFailed, e.Failed, e.OutcomeUnknown)
#: A look-up that found nothing counts once a second one gives the same answer.
ABSENT_TIMES = 2


def _key_protects(state: State, funds: Funds, at: int) -> bool:
    """Whether the gateway still remembers the key of this intent then."""
    if funds.key_seconds is None:
        return True
    return at < state.attempted_from + funds.key_seconds * 1000


def _resends(state: State, funds: Funds, at: int) -> bool:
    """Whether the same call may be sent then, and could have another outcome than before."""
    return not funds.is_stored and _key_protects(state, funds, at)


def _start(state: State, command: Start, *_: object) -> list[e.Event]:
    if state.started is not None or state.wants != "execute" or state.cancel_requested:
        return []
    if not command.is_for(state.operation, state.intent):
        # The call was made for an operation that has ended meanwhile: for this one it is wrong.
        return []
    # Only the first call of an intent is journalled: the ones after it must be the same.
    facts = {} if state.journal else command.facts
    return [t.CallStarted(state.attempts + 1, command.key, state.intent, **facts)]


def _record(
    state: State, command: RecordOutcome, rules: Rules, operation: Operation
) -> list[e.Event]:
    name, intent = command.operation or state.operation, command.intent or state.intent
    if isinstance(command.outcome, Done):
        return _succeeded(state, command.outcome, operation, (name, intent), command, by="retry")
    if (name, intent) != (state.operation, state.intent) or command.attempt <= state.attempts:
        # A later operation is open, or the attempt was declared lost: its failure proves nothing.
        return []
    if state.phase not in ("open", "unknown"):
        return []
    events = _not_done(state, command, command.outcome, rules)
    first = next((at for at, one in enumerate(events) if isinstance(one, _FAILED_ENDS)), None)
    if first is not None:
        events[first] = replace(events[first], used=dict(command.used), **command.facts)
    return events


def _succeeded(
    state: State,
    outcome: Done,
    operation: Operation,
    whose: tuple[str, int],
    command: Command,
    *,
    by: str,
) -> list[e.Event]:
    """Evidence of success is recorded once. Evidence that contradicts the record is noted, never
    applied.
    """
    funds, row = funds_of(state), f"{whose[0]}:{whose[1]}"
    found = outcome.movement or Movement()
    if row in funds.moved:
        if found.amount in (None, funds.moved[row]) or row in funds.rows:
            return []
        return [t.Conflicted(row, "amount", _evidence(outcome), found.amount, *whose)]
    amount = funds.pending if found.amount is None else found.amount
    is_current = whose == (state.operation, state.intent)
    # What a person saw at the gateway is the truth, within what `_seen` allows.
    is_asked = amount == funds.pending or isinstance(command, Resolve)
    if is_current and not is_asked and state.phase in ("open", "unknown"):
        text = f"the gateway moved {amount} instead of {funds.pending} (smallest unit)"
        number = state.started or max(state.attempts, getattr(command, "attempt", 0))
        return [e.OutcomeUnknown(number, "amount_mismatch", "manual", text)]
    if not is_current or not is_asked:
        if row in funds.rows:
            return []
        return [t.Conflicted(row, "late_success", _evidence(outcome), amount, *whose)]
    facts = command.facts if isinstance(command, RecordOutcome) else {}
    used = dict(command.used) if isinstance(command, RecordOutcome) else {}
    number = max(getattr(command, "attempt", 0), state.attempts)
    # Every operation of a transaction moves money. By position: keywords would cost as much as all
    # the rest here.
    event = cast(type[t.Moved], operation.done)(
        number,
        outcome.id,
        outcome.target,
        outcome.detail,
        used,
        amount,
        state.intent,
        found.movement_id,
        movement(funds, operation.name, amount),
        found.capture_before,
        **facts,
    )
    if not state.in_doubt:
        return [event]
    evidence = _evidence(outcome)
    resolved = t.Resolved("executed", by, evidence, operation.name, state.intent, outcome.id)
    return [resolved, event]


def _evidence(outcome: Done) -> str:
    return outcome.detail or f"the gateway reports it as {outcome.id}"


def _not_done(
    state: State, command: RecordOutcome, outcome: Rejected | Retry | Unknown, rules: Rules
) -> list[e.Event]:
    attempt = command.attempt
    match outcome:
        case Unknown():
            return [_unknown(state, outcome, attempt, command, rules)]
        case Rejected() if state.in_doubt and not command.called:
            # The engine can make no further call, and an earlier call may have moved money. With a
            # journaled call that can be read, the gateway can still be asked.
            has_call = state.journal and outcome.reason != "bad_journal"
            can_ask = has_call and funds_of(state).can_look_up
            unknown = Unknown(outcome.reason, outcome.detail, manual=not can_ask)
            event = _unknown(state, unknown, attempt, command, rules)
            if event.policy == "resend":
                event = replace(event, policy="reconcile")
            return [event]
        case Rejected():
            failed = e.Failed(outcome.reason, attempt, retryable=False, last_error=outcome.detail)
            return [*_found(state, "rejected", "retry", outcome.detail or outcome.reason), failed]
        case Retry() if state.in_doubt:
            unknown = Unknown(outcome.reason, outcome.detail, outcome.after_seconds)
            return [_unknown(state, unknown, attempt, command, rules)]
        case Retry():
            next_at = next_attempt_at(state, attempt, outcome.after_seconds, command, rules)
            ending = ending_of(state, attempt, next_at, outcome.reason)
            planned = None if ending else next_at
            failed_now = e.AttemptFailed(attempt, outcome.reason, outcome.detail, planned)
            return [failed_now, *ending]
        case _:
            assert_never(outcome)


def _found(
    state: State, result: Any, by: str, evidence: str, provider_id: str = ""
) -> list[e.Event]:
    """The event that an unknown outcome is now known; none if it was not unknown."""
    if not state.in_doubt:
        return []
    return [t.Resolved(result, by, evidence, state.operation, state.intent, provider_id)]


def _unknown(
    state: State,
    outcome: Unknown,
    attempt: int,
    command: RecordOutcome | Lose | Reconciled,
    rules: Rules,
) -> e.OutcomeUnknown:
    """What follows: a look-up, or the same call again under the same key, or a person."""
    funds = funds_of(state)
    policy, next_at = "manual", None
    if not outcome.manual and not (state.external and rules.on_unknown == "manual"):
        at = _next_round(state, outcome, command, rules)
        asked = isinstance(command, Reconciled)
        if at is not None:
            funds = replace(funds, is_stored=funds.is_stored or outcome.reason == STORED)
            policy = _way(state, funds, at, asked=asked, pending=outcome.reason == "pending")
            next_at = at if policy != "manual" else None
    return e.OutcomeUnknown(attempt, outcome.reason, policy, outcome.detail, next_at)


def _next_round(
    state: State, outcome: Unknown, command: RecordOutcome | Lose | Reconciled, rules: Rules
) -> int | None:
    if state.phase != "unknown":
        seconds: float | None = max(rules.ask_after_seconds, outcome.after_seconds)
    else:
        seconds = rules.asking.delay_seconds(state.asked + 1, command.chance, outcome.after_seconds)
    return None if seconds is None else command.at + ceil(seconds * 1000)


def _way(state: State, funds: Funds, at: int, *, asked: bool, pending: bool) -> str:
    """While the gateway remembers the key, look-ups and resends alternate; after that there are
    only look-ups.
    """
    may_resend = _resends(state, funds, at) and not pending and not state.cancel_requested
    # After one look-up that found nothing, the second one follows.
    if may_resend and (not funds.can_look_up or (asked and funds.absent == 0)):
        return "resend"
    return "reconcile" if funds.can_look_up else "manual"


def _lose(state: State, command: Lose, rules: Rules, _: object) -> list[e.Event]:
    if state.wants != "execute" or (state.started is None and not state.external):
        # Without a journalled call nothing was sent: gesta journals first, then calls.
        return []
    attempt = state.started or state.attempts + 1
    return [_unknown(state, Unknown(command.reason, command.detail), attempt, command, rules)]


def _reconciled(
    state: State, command: Reconciled, rules: Rules, operation: Operation
) -> list[e.Event]:
    whose = (command.operation or state.operation, command.intent or state.intent)
    outcome = command.outcome
    if isinstance(outcome, Done):
        return _succeeded(state, outcome, operation, whose, command, by="lookup")
    if (
        whose != (state.operation, state.intent)
        or state.phase != "unknown"
        or state.started is not None
    ):
        # The look-up was about an earlier operation, or about a call before the running one.
        return []
    match outcome:
        case Rejected():
            failed = e.Failed(outcome.reason, state.attempts, last_error=outcome.detail)
            return [*_found(state, "rejected", "lookup", outcome.detail or outcome.reason), failed]
        case Retry():
            return _absent(state, outcome, command, rules)
        case Unknown():
            if state.wants != "reconcile" and not outcome.manual:
                # An operator asked, and nothing new is known: the plan stays.
                return []
            return [_unknown(state, outcome, state.attempts, command, rules)]
        case _:
            assert_never(outcome)


def _absent(state: State, outcome: Retry, command: Reconciled, rules: Rules) -> list[e.Event]:
    """The gateway does not know the call. This counts twice, both after the visibility delay.

    Until then the same call is sent again while the gateway remembers its key, because that decides
    sooner than waiting.
    """
    funds = funds_of(state)
    if funds.absent + 1 >= ABSENT_TIMES and command.at >= funds.visible_at:
        evidence = outcome.detail or "the gateway has no record of the call"
        return _not_executed(state, "lookup", evidence, command.at)
    not_found = Unknown("not_found", outcome.detail, outcome.after_seconds)
    event = _unknown(state, not_found, state.attempts, command, rules)
    if event.policy == "reconcile" and event.next_at is not None:
        event = replace(event, next_at=max(event.next_at, funds.visible_at))
    return [event]


def _not_executed(state: State, by: str, evidence: str, at: int) -> list[e.Event]:
    """Send the same call again if that can help and its key protects; else the operation failed.

    The gateway would only repeat a failure that it stored with the key.
    """
    funds = funds_of(state)
    (resolved,) = _found(state, "not_executed", by, evidence)
    if state.cancel_requested:
        return [resolved, e.Cancelled(state.attempts)]
    if _resends(state, funds, at):
        return [replace(resolved, next_attempt_at=at)]
    return [resolved, e.Failed("not_executed", state.attempts, retryable=True, last_error=evidence)]


def _resolve(state: State, command: Resolve, _: object, operation: Operation) -> list[e.Event]:
    if state.phase != "unknown":
        raise CommandRefused(
            "not_unknown",
            f"the transaction is {state.status}; only an unknown outcome can be resolved",
        )
    if state.started is not None and command.result != "executed":
        raise CommandRefused("attempt_running", "a call is running; wait for its outcome")
    if not command.evidence.strip():
        raise CommandRefused("no_evidence", "evidence is required: say what you saw, and where")
    by, evidence, amount = command.by, command.evidence, _seen(state, command)
    match command.result:
        case "executed":
            outcome = Done(command.provider_id, detail=evidence, movement=Movement(amount))
            whose = (state.operation, state.intent)
            return _succeeded(state, outcome, operation, whose, command, by=by)
        case "rejected":
            failed = e.Failed("rejected", state.attempts, last_error=evidence)
            return [*_found(state, "rejected", by, evidence), failed]
        case "not_executed":
            return _not_executed(state, by, evidence, command.at)


def _seen(state: State, command: Resolve) -> int | None:
    """The amount that a person saw at the gateway; None: what was asked for.

    It may differ from that, and never makes the amounts impossible: captured ≤ authorized ≤
    requested, refunded ≤ captured.
    """
    if command.amount is None:
        return None
    if command.result != "executed":
        raise CommandRefused("invalid_amount", "an amount belongs to an operation that succeeded")
    funds = funds_of(state)
    match funds.undoes if state.operation == "reversal" else state.operation:
        case "capture" | "posting":
            left, code, of = funds.capturable, "beyond_authorization", "is still authorized"
        case "refund":
            left, code, of = funds.refundable, "beyond_capture", "can be refunded"
        case "void":
            left, code, of = funds.capturable, "partial_void", "is still authorized"
            if command.amount != left:
                raise CommandRefused(code, "a void releases all that is not captured")
        case _:
            left, code, of = funds.requested, "beyond_request", "was asked for"
    return amount_of(command, funds, left, code, of)


def _cancel(state: State, command: Cancel, rules: Rules, operation: Operation) -> list[e.Event]:
    if state.phase == "idle":
        raise CommandRefused(
            "already_moved", f"the transaction is {state.status}; void or reverse it instead"
        )
    return DECISIONS[Cancel](state, command, rules, operation)


def _redrive(state: State, command: Redrive, *_: object) -> list[e.Event]:
    if state.phase == "unknown" or state.in_doubt:
        # Never a new key while money may have moved, not even for a person.
        raise CommandRefused("in_doubt", "the outcome is unknown: resolve it first")
    funds = funds_of(state)
    if state.status not in ("failed", "expired", "cancelled") or funds.authorized:
        raise CommandRefused(
            "not_final",
            f"the transaction is {state.status}; only a transaction that moved no money can be"
            " redriven",
        )
    expires_at = None if command.ttl_ms is None else command.at + command.ttl_ms
    return [e.Updated("redrive", "queued", state.intent + 1, command.at, expires_at)]


def _expire(state: State, command: Expire, rules: Rules, operation: Operation) -> list[e.Event]:
    funds = funds_of(state)
    if state.phase == "idle":
        if command.at is None or not is_expired(state, command.at):
            return []
        return [t.Lapsed(funds.capturable, legs("release", funds.capturable))]
    if state.wants != "execute" or state.started is not None:
        return []
    if state.first_attempt_at is None:
        return DECISIONS[Expire](state, command, rules, operation)
    if command.at is None or (
        _key_protects(state, funds, command.at) and not is_expired(state, command.at)
    ):
        return []
    if state.in_doubt:
        # From here on nothing is sent under this key: only look-ups, then a person.
        policy = "reconcile" if funds.can_look_up else "manual"
        next_at = command.at if funds.can_look_up else None
        return [e.OutcomeUnknown(state.attempts, "key_forgotten", policy, next_at=next_at)]
    if is_expired(state, command.at):
        return [e.Expired(state.attempts)]
    return [e.Failed("key_forgotten", state.attempts, retryable=True)]


def _note_webhook(state: State, command: c.NoteWebhook, *_: object) -> list[e.Event]:
    if command.report in state.reports:
        return []
    funds = funds_of(state)
    # A redriven payment is another one at the gateway: a webhook of the earlier one names its id.
    is_ours = (command.operation, command.intent) == (funds.first, funds.intents.get(funds.first))
    payment_id = command.payment_id if is_ours else ""
    return [t.GatewayNotified(command.report, command.kind, payment_id, command.movement_id)]


def _correct(state: State, command: c.Correct, _: object, operation: Operation) -> list[e.Event]:
    funds, intent = funds_of(state), command.intent
    if command.row in funds.rows:
        return []
    row = f"{command.operation}:{intent}"
    amount = funds.moved.get(row, command.amount)
    conflict = t.Conflicted(
        command.row, command.finding, command.evidence, command.amount, command.operation, intent
    )
    if command.result == "conflict" or amount is None or amount != command.amount:
        return [conflict]
    if row in funds.moved:
        return []
    whose = (state.operation, state.intent)
    if state.phase in ("open", "unknown") and (command.operation, intent) == whose:
        found = Movement(amount, command.movement_id)
        outcome = Done(command.payment_id, detail=command.evidence, movement=found)
        events = _succeeded(state, outcome, operation, whose, command, by="ledger")
        # Another amount is left to a person. The row is noted, so that it is recorded once.
        return events if amount == funds.pending else [conflict, *events]
    if not _fits(funds, command.operation, amount):
        return [conflict]
    return [
        t.Corrected(
            command.row,
            command.finding,
            command.operation,
            intent,
            amount,
            command.evidence,
            command.payment_id,
            command.movement_id,
            movement(in_ledger(funds), command.operation, amount),
        )
    ]


def _fits(funds: Funds, operation: str, amount: int) -> bool:
    """Whether the amounts stay possible: captured ≤ authorized, refunded ≤ captured."""
    match operation:
        case "capture" | "posting" | "void":
            return amount <= funds.capturable
        case "refund" | "reversal":
            return amount <= funds.refundable
        case first:
            return first == funds.first and not funds.authorized and amount == funds.requested


TRANSACTION_DECISIONS: Mapping[type, Decide] = {
    Start: _start,
    RecordOutcome: _record,
    Lose: _lose,
    Reconciled: _reconciled,
    Resolve: _resolve,
    Cancel: _cancel,
    Redrive: _redrive,
    Expire: _expire,
    c.NoteWebhook: _note_webhook,
    c.Correct: _correct,
    **OPENINGS,
}
