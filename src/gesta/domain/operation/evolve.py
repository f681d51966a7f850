"""evolve: an event changes the state of a request.

Projector, worker and rebuild use the same folds, so that views are disposable. `FOLDS` holds one
function per event; a lifecycle uses this table as it is, or replaces and adds entries.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.operation import Operation
from gesta.domain.state import State

#: (state, event, the version of the event, when it occurred) → the state after it.
Fold = Callable[[State, Any, int, int], State]


class Resolution(Protocol):
    """The fields of every event that resolves an unknown outcome."""

    @property
    def evidence(self) -> str: ...
    @property
    def next_attempt_at(self) -> int | None: ...


def created(event: e.Created, meta: e.Meta, facts: Any) -> State:
    """The state after the first event."""
    # By position: so many keywords would cost three times as much as the value itself.
    return State(
        event.id,
        meta.tenant,
        event.flow,
        "queued",
        1,
        meta.occurred_at,
        meta.occurred_at,
        "open",
        event.operation,
        event.intent,
        1,
        event.deliver_at,
        event.expires_at,
        event.priority,
        event.key,
        meta.correlation_id,
        event.test,
        event.external,
        event.own,
        meta.source,
        facts,
    )


def succeeded(operation: Operation) -> Fold:
    """The fold of events that record the success of an operation."""
    status, phase = operation.status, "ended" if operation.is_last else "idle"

    def fold(state: State, event: e.Succeeded, version: int, at: int) -> State:
        return replace(
            state,
            version=version,
            updated_at=at,
            status=status,
            phase=phase,
            attempts=event.attempts,
            provider_id=event.provider_id,
            target_id=event.target_id,
            detail=event.detail,
            due_at=None,
            started=None,
            in_doubt=False,
            reason="",
            first_attempt_at=state.first_attempt_at or at,
        )

    return fold


def resolved(operations: Mapping[str, Operation]) -> Fold:
    """The fold of OutcomeResolved, of whichever operation it was."""

    def fold(state: State, event: e.OutcomeResolved, version: int, at: int) -> State:
        return _resolved(state, event, version, at, operations[event.operation])

    return fold


def known(state: State, event: Resolution, version: int, at: int) -> State:
    """An unknown outcome is now known, and the operation is due again. If the operation has ended,
    the event of its end follows.
    """
    return replace(
        state,
        version=version,
        updated_at=at,
        status="queued",
        phase="open",
        in_doubt=False,
        started=None,
        due_at=event.next_attempt_at or at,
        policy="",
        asked=0,
        reason="",
        detail=event.evidence,
        dispatch_version=version,
    )


def _resolved(
    state: State, event: e.OutcomeResolved, version: int, at: int, operation: Operation
) -> State:
    again = known(state, event, version, at)
    if event.result == "not_executed" and event.new_budget:
        return replace(again, attempts_before=state.attempts, reopened_at=at)
    if event.result == "not_executed":
        return again
    over = replace(again, phase="ended", due_at=None, dispatch_version=state.dispatch_version)
    if event.result == "rejected":
        return replace(over, status="failed", reason="rejected", purged=False)
    return replace(
        over,
        status=operation.status,
        phase="ended" if operation.is_last else "idle",
        provider_id=event.provider_message_id,
    )


def _started(state: State, event: e.AttemptStarted, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        started=event.attempt,
        first_attempt_at=state.first_attempt_at or at,
    )


def _attempt_failed(state: State, event: e.AttemptFailed, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        attempts=event.attempt,
        started=None,
        due_at=event.next_attempt_at,
        reason=event.reason,
        detail=event.detail,
        first_attempt_at=state.first_attempt_at or at,
    )


def _failed(state: State, event: e.Failed, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        status="failed",
        phase="ended",
        attempts=event.attempts,
        started=None,
        due_at=None,
        reason=event.reason,
        detail=event.last_error,
        purged=False,
    )


def _expired(state: State, _: e.Expired, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        status="expired",
        phase="ended",
        started=None,
        due_at=None,
    )


def _cancelled(state: State, event: e.Cancelled, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        status="cancelled",
        phase="ended",
        started=None,
        due_at=None,
        reason=event.reason or state.reason,
        detail=event.detail or state.detail,
    )


def _unknown(state: State, event: e.OutcomeUnknown, version: int, at: int) -> State:
    asks = event.policy == "reconcile" and event.next_at is not None
    return replace(
        state,
        version=version,
        updated_at=at,
        status="unknown",
        phase="unknown",
        attempts=event.attempt,
        started=None,
        due_at=event.next_at,
        in_doubt=True,
        policy=event.policy,
        reason=event.reason,
        detail=event.detail,
        first_attempt_at=min(at, state.attempted_from),
        # A cancelled request is not tried again, whatever its outcome is.
        cancel_requested=state.cancel_requested or state.status == "cancelled",
        # A look-up at the provider needs a job of its own.
        dispatch_version=version if asks else state.dispatch_version,
        asked=state.asked + 1 if state.status == "unknown" and asks else 0,
    )


def _updated(state: State, event: e.Updated, version: int, at: int) -> State:
    common = replace(state, version=version, updated_at=at)
    match event.change:
        case "cancel_requested":
            return replace(common, cancel_requested=True)
        case "purged":
            return replace(common, purged=True)
        case "postponed":
            return replace(common, started=None)
        case "held":
            return replace(common, started=None, held=event.held_by)
        case "released":
            return replace(common, held="")
        case "retry":
            return replace(common, due_at=event.due_at, dispatch_version=version)
        case _:
            new_intent = event.intent is not None and event.intent != state.intent
            return replace(
                common,
                status="queued",
                phase="open",
                intent=event.intent or state.intent,
                due_at=event.due_at,
                expires_at=event.expires_at,
                dispatch_version=version,
                attempts_before=state.attempts,
                reopened_at=at,
                cancel_requested=False,
                held="",
                purged=False,
                reason="",
                detail="",
                in_doubt=state.in_doubt and not new_intent,
                started=None if new_intent else state.started,
                first_attempt_at=None if new_intent else state.first_attempt_at,
            )


#: The folds of the events that every lifecycle has. Those of success and of OutcomeResolved depend
#: on its operations.
FOLDS: Mapping[type[e.Event], Fold] = {
    e.AttemptStarted: _started,
    e.AttemptFailed: _attempt_failed,
    e.Failed: _failed,
    e.OutcomeUnknown: _unknown,
    e.Updated: _updated,
    e.Expired: _expired,
    e.Cancelled: _cancelled,
}
