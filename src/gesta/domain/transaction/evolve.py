"""evolve: how each event changes the amounts of a transaction, and so its status."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.operation.evolve import FOLDS, Fold, known
from gesta.domain.state import State
from gesta.domain.transaction import events as t
from gesta.domain.transaction.funds import (
    SINGLE,
    STORED,
    Asked,
    Funds,
    funds_of,
    status_of,
    with_funds,
)
from gesta.domain.transaction.postings import Leg, legs, posted, undo

#: Webhooks that are remembered by name. An older one that comes again is recorded again: it moves
#: no money, and at most the gateway is asked once more.
REPORTS_MAX = 200
#: The route by which the money of a transaction reached its end, by its first operation.
_ROUTE = {"authorization": "sale", "reservation": "transfer"}


def movement(funds: Funds, operation: str, amount: int) -> tuple[Leg, ...]:
    """The posting of an operation that succeeded."""
    match _effect(funds, operation):
        case "void":
            return legs("release", amount)
        case "refund":
            return undo(_ROUTE.get(funds.first, funds.first), amount)
        case "capture" | "posting":
            rest = funds.capturable - amount if funds.is_final else 0
            return legs(operation, amount) + legs("release", rest)
        case other:
            return legs(other, amount)


def _effect(funds: Funds, operation: str) -> str:
    return funds.undoes if operation == "reversal" else operation


def moved(
    funds: Funds, operation: str, intent: int, amount: int, posting: tuple[Leg, ...]
) -> Funds:
    """The amounts after an operation moved `amount`."""
    authorized, captured, refunded, released = 0, 0, 0, 0
    match _effect(funds, operation):
        case first if first in SINGLE:
            authorized = captured = amount
        case "void":
            released = amount
        case "refund":
            refunded = amount
        case "capture" | "posting":
            captured, released = amount, funds.capturable - amount if funds.is_final else 0
        case _:
            authorized = amount
    return replace(
        funds,
        authorized=funds.authorized + authorized,
        captured=funds.captured + captured,
        refunded=funds.refunded + refunded,
        released=funds.released + released,
        moved={**funds.moved, f"{operation}:{intent}": amount},
        balances=posted(funds.balances, posting),
    )


def _at_rest(state: State, funds: Funds, otherwise: str) -> State:
    """No operation is open: the status follows from the amounts."""
    has_more = funds.authorized != funds.captured + funds.released
    return replace(
        state,
        facts=funds,
        status=status_of(funds) or otherwise,
        phase="idle" if has_more else "ended",
        expires_at=funds.capture_before if has_more else None,
        due_at=None,
        started=None,
        in_doubt=False,
        policy="",
        asked=0,
        journal=0,
        cancel_requested=False,
    )


def _call_started(state: State, event: t.CallStarted, version: int, at: int) -> State:
    # An attempt that failed before it was journalled sent nothing: the journal decides, not the
    # number of the attempt.
    if state.journal:
        return FOLDS[e.AttemptStarted](state, event, version, at)
    before = funds_of(state)
    funds = replace(
        before,
        gateway=event.gateway or before.gateway,
        key_seconds=event.key_seconds,
        can_look_up=event.can_look_up,
        visible_seconds=event.visible_seconds,
        multiple_captures=event.multiple_captures,
    )
    return replace(
        state,
        facts=funds,
        version=version,
        updated_at=at,
        started=event.attempt,
        first_attempt_at=state.first_attempt_at or at,
        journal=version if event.call else 0,
    )


def succeeded(operation: str) -> Fold:
    """The fold of a success; empty: of the first operation, whichever it is."""

    def fold(state: State, event: t.Moved, version: int, at: int) -> State:
        before = funds_of(state)
        name = operation or before.first
        funds = moved(before, name, event.intent, event.amount, event.legs)
        if name in ("authorization", "reservation"):
            funds = replace(funds, capture_before=event.capture_before)
        if event.provider_id and (name == before.first or not before.payment_id):
            funds = replace(funds, payment_id=event.provider_id)
        state = replace(
            state,
            version=version,
            updated_at=at,
            attempts=event.attempts,
            provider_id=event.provider_id or state.provider_id,
            target_id=event.target_id,
            reason="",
            detail=event.detail,
            first_attempt_at=state.first_attempt_at or at,
        )
        return _at_rest(state, funds, "completed")

    return fold


def requested(operation: str) -> Fold:
    """A command opened a further operation. It has a key, a job and attempts of its own."""

    def fold(state: State, event: t.OperationRequested, version: int, at: int) -> State:
        funds = funds_of(state)
        keys = funds.keys
        if event.key_digest:
            keys = {**keys, event.key_digest: Asked(operation, event.asked, event.is_final)}
        funds = replace(
            funds,
            pending=event.amount,
            is_final=event.is_final,
            undoes=getattr(event, "undoes", ""),
            intents={**funds.intents, operation: event.intent},
            keys=keys,
            absent=0,
            is_stored=False,
        )
        state = replace(
            state,
            version=version,
            updated_at=at,
            status="queued",
            phase="open",
            operation=operation,
            intent=event.intent,
            dispatch_version=version,
            attempts_before=state.attempts,
            first_attempt_at=None,
            reopened_at=at,
            due_at=at,
            expires_at=None,
            reason="",
            detail="",
            journal=0,
            cancel_requested=False,
        )
        return with_funds(state, funds)

    return fold


def _resolved(state: State, event: t.Resolved, version: int, at: int) -> State:
    state = known(state, event, version, at)
    return with_funds(state, replace(funds_of(state), absent=0))


def _failed(state: State, event: e.Failed, version: int, at: int) -> State:
    """The operation failed: what succeeded before stays."""
    return _at_rest(FOLDS[e.Failed](state, event, version, at), funds_of(state), "failed")


def _cancelled(state: State, event: e.Cancelled, version: int, at: int) -> State:
    after = FOLDS[e.Cancelled](state, event, version, at)
    after = replace(after, reason=event.reason or "cancelled", detail=event.detail)
    return _at_rest(after, funds_of(state), "cancelled")


def _expired(state: State, event: e.Expired, version: int, at: int) -> State:
    after = replace(FOLDS[e.Expired](state, event, version, at), reason="expired")
    return _at_rest(after, funds_of(state), "expired")


def _lapsed(state: State, event: t.Lapsed, version: int, at: int) -> State:
    funds = funds_of(state)
    funds = replace(
        funds,
        released=funds.released + event.amount,
        lapsed=True,
        balances=posted(funds.balances, event.legs),
    )
    return _at_rest(replace(state, version=version, updated_at=at), funds, "expired")


def _unknown(state: State, event: e.OutcomeUnknown, version: int, at: int) -> State:
    funds, was_unknown = funds_of(state), state.phase == "unknown"
    called = not was_unknown or state.started is not None
    is_absent = event.reason == "not_found" and at >= funds.visible_at
    funds = replace(
        funds,
        absent=funds.absent + 1 if is_absent else 0,
        is_stored=funds.is_stored or event.reason == STORED,
        doubt_at=at if called else funds.doubt_at,
    )
    state = replace(
        FOLDS[e.OutcomeUnknown](state, event, version, at),
        # A resend and a look-up alternate, so each has a job of its own.
        dispatch_version=version,
        asked=state.asked + 1 if was_unknown else 0,
    )
    return with_funds(state, funds)


def _updated(state: State, event: e.Updated, version: int, at: int) -> State:
    after = FOLDS[e.Updated](state, event, version, at)
    if event.change != "redrive" or after.intent == state.intent:
        return after
    funds = funds_of(after)
    intents = {**funds.intents, after.operation: after.intent}
    # A new intent is a new payment at the gateway.
    funds = replace(funds, intents=intents, absent=0, is_stored=False, payment_id="")
    return with_funds(replace(after, journal=0), funds)


def _notified(state: State, event: t.GatewayNotified, version: int, at: int) -> State:
    reports = (*state.reports, event.report)[-REPORTS_MAX:]
    state = replace(state, version=version, updated_at=at, reports=reports)
    funds = funds_of(state)
    if not funds.payment_id and event.provider_id:
        state = with_funds(state, replace(funds, payment_id=event.provider_id))
    if state.phase != "unknown" or state.started is not None or not funds.can_look_up:
        return state
    return replace(state, due_at=at, policy="reconcile", dispatch_version=version)


def in_ledger(funds: Funds) -> Funds:
    """The amounts with which a row of the gateway's ledger is read: a void moves no money there,
    so what reverses a transaction is a refund.
    """
    return replace(funds, undoes="refund")


def _corrected(state: State, event: t.Corrected, version: int, at: int) -> State:
    state = _conflicted(state, event, version, at)
    before = funds_of(state)
    funds = moved(in_ledger(before), event.operation, event.intent, event.amount, event.legs)
    funds = replace(funds, undoes=before.undoes)
    if not funds.payment_id:
        funds = replace(funds, payment_id=event.provider_id)
    if state.phase in ("open", "unknown"):
        # Another operation is open and continues.
        return with_funds(state, funds)
    return _at_rest(replace(state, reason=""), funds, "completed")


def _conflicted(state: State, event: t.Corrected | t.Conflicted, version: int, at: int) -> State:
    funds = funds_of(state)
    funds = replace(funds, rows=(*funds.rows, event.row))
    return with_funds(state, funds, version=version, updated_at=at)


TRANSACTION_FOLDS: Mapping[type[e.Event], Any] = {
    **FOLDS,
    t.CallStarted: _call_started,
    t.Resolved: _resolved,
    t.Lapsed: _lapsed,
    t.GatewayNotified: _notified,
    t.Corrected: _corrected,
    t.Conflicted: _conflicted,
    e.Failed: _failed,
    e.Cancelled: _cancelled,
    e.Expired: _expired,
    e.OutcomeUnknown: _unknown,
    e.Updated: _updated,
}
