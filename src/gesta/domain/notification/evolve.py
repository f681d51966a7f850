"""evolve: one event into a state.

The same fold for projector, worker and rebuild, so that views are disposable.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.state import State


def created(event: e.Created, meta: e.Meta) -> State:
    """The state after the first event."""
    return State(
        id=event.id,
        tenant=meta.tenant,
        flow=event.flow,
        status="queued",
        version=1,
        created_at=meta.occurred_at,
        updated_at=meta.occurred_at,
        operation=event.operation,
        intent=event.intent,
        dispatch_version=1,
        due_at=event.deliver_at,
        expires_at=event.expires_at,
        priority=event.priority,
        key=event.key,
        correlation_id=meta.correlation_id,
        test=event.test,
        external=event.external,
        own=event.own,
        source=meta.source,
    )


def evolve(state: State | None, event: e.Event | None, meta: e.Meta) -> State:
    """The state after an event; None stands for an event of a type this code does not know, which
    only counts.
    """
    if state is None:
        if not isinstance(event, e.Created):
            raise ValueError(f"a stream must begin with Created, not {type(event).__name__}")
        return created(event, meta)
    version, at = state.version + 1, meta.occurred_at
    match event:
        case e.Sent() | e.SentLate():
            return replace(
                state,
                version=version,
                updated_at=at,
                status="sent",
                attempts=event.attempts,
                provider_id=event.provider_message_id,
                target_id=event.target_id,
                detail=event.detail,
                due_at=None,
                started=None,
                in_doubt=False,
                reason="",
                first_attempt_at=state.first_attempt_at or at,
            )
        case e.AttemptStarted():
            return replace(
                state,
                version=version,
                updated_at=at,
                started=event.attempt,
                first_attempt_at=state.first_attempt_at or at,
            )
        case e.AttemptFailed():
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
        case e.Failed():
            return replace(
                state,
                version=version,
                updated_at=at,
                status="failed",
                attempts=event.attempts,
                started=None,
                due_at=None,
                reason=event.reason,
                detail=event.last_error,
                purged=False,
            )
        case e.OutcomeUnknown():
            return _unknown(state, event, version, at)
        case e.OutcomeResolved():
            return _resolved(state, event, version, at)
        case e.Updated():
            return _updated(state, event, version, at)
        case e.Expired():
            return replace(
                state, version=version, updated_at=at, status="expired", started=None, due_at=None
            )
        case e.Cancelled():
            return replace(
                state,
                version=version,
                updated_at=at,
                status="cancelled",
                started=None,
                due_at=None,
                reason=event.reason or state.reason,
                detail=event.detail or state.detail,
            )
        case e.Delivered() | e.Bounced() | e.Complained():
            return _reported(
                replace(
                    state, version=version, updated_at=at, reports=(*state.reports, event.report)
                ),
                event,
                at,
            )
        case _:
            return replace(state, version=version)


def _reported(state: State, event: e.Delivered | e.Bounced | e.Complained, at: int) -> State:
    """Facts beside the status.

    The first of each kind stays: a letter to several people has several reports.
    """
    moment = event.reported_at or at
    match event:
        case e.Delivered():
            return state if state.delivered_at is not None else replace(state, delivered_at=moment)
        case e.Bounced():
            return (
                state
                if state.bounced_at is not None
                else replace(state, bounced_at=moment, bounce=event.reason)
            )
        case e.Complained():
            return (
                state
                if state.complained_at is not None
                else replace(state, complained_at=moment, complaint=event.reason)
            )


def _unknown(state: State, event: e.OutcomeUnknown, version: int, at: int) -> State:
    asks = event.policy == "ask" and event.next_at is not None
    return replace(
        state,
        version=version,
        updated_at=at,
        status="unknown",
        attempts=event.attempt,
        started=None,
        due_at=event.next_at,
        in_doubt=True,
        policy=event.policy,
        reason=event.reason,
        detail=event.detail,
        first_attempt_at=min(at, state.attempted_from),
        # Whatever comes out, what was called back is not tried again.
        cancel_requested=state.cancel_requested or state.status == "cancelled",
        # A question to the provider is an opening of its own: it needs a job of its own.
        dispatch_version=version if asks else state.dispatch_version,
        asked=state.asked + 1 if state.status == "unknown" and asks else 0,
    )


def _resolved(state: State, event: e.OutcomeResolved, version: int, at: int) -> State:
    common = replace(
        state,
        version=version,
        updated_at=at,
        in_doubt=False,
        started=None,
        due_at=None,
        policy="",
        reason="",
        detail=event.evidence,
        asked=0,
    )
    match event.result:
        case "executed":
            return replace(common, status="sent", provider_id=event.provider_message_id)
        case "rejected":
            return replace(common, status="failed", reason="rejected", purged=False)
        case _:
            return replace(
                common,
                status="queued",
                due_at=event.next_attempt_at or at,
                dispatch_version=version,
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
        case "retry":
            return replace(common, due_at=event.due_at, dispatch_version=version)
        case _:
            new_intent = event.intent is not None and event.intent != state.intent
            return replace(
                common,
                status="queued",
                intent=event.intent or state.intent,
                due_at=event.due_at,
                expires_at=event.expires_at,
                dispatch_version=version,
                attempts_before=state.attempts,
                reopened_at=at,
                cancel_requested=False,
                purged=False,
                reason="",
                detail="",
                in_doubt=state.in_doubt and not new_intent,
                started=None if new_intent else state.started,
                first_attempt_at=None if new_intent else state.first_attempt_at,
            )


def fold(
    history: Iterable[tuple[e.Event | None, e.Meta]], state: State | None = None
) -> State | None:
    """All events onto a state, oldest first."""
    for event, meta in history:
        state = evolve(state, event, meta)
    return state
