"""Requests, events, attempts, config and pauses as the API and the command line show them.

The names are stable, because programs and scripts depend on them. There are no secrets in them,
and personal data is masked.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from gesta.api_types.admin import PauseRepresentation, QuarantinedRepresentation
from gesta.api_types.config import EntityRepresentation
from gesta.api_types.keys import KeyRepresentation
from gesta.api_types.requests import (
    AttemptRepresentation,
    EventRepresentation,
    RequestRepresentation,
)
from gesta.domain import events as e
from gesta.domain.codec import encode
from gesta.domain.durations import iso
from gesta.domain.state import State
from gesta.domain.transaction import events as money
from gesta.flows.flow import Flow, secret_fields
from gesta.flows.personal_fields import plan_of
from gesta.ports.read_model import Quarantined
from gesta.runtime.redaction import without_credentials
from gesta.security.field_encryption import is_encrypted, replace_encrypted
from gesta.tenants.api_keys import ApiKey
from gesta.tenants.config import Entity
from gesta.tenants.pauses import Pause

#: What `Engine.history` gives for each event.
HistoryEntry = tuple[str, e.Event | None, e.Meta]

#: In place of encrypted and erased values, and of personal values stored before their field was
#: declared personal.
ENCRYPTED, ERASED, PERSONAL = b'"[encrypted]"', b'"[erased]"', b'"(personal)"'


def request_representation(state: State, pause: Pause | None = None) -> RequestRepresentation:
    return RequestRepresentation(
        id=state.id,
        flow=state.flow,
        tenant=state.tenant,
        status=state.status,
        key=state.key,
        attempt_count=state.attempts,
        reason=state.reason or None,
        detail=state.detail or None,
        provider_id=state.provider_id or None,
        target_id=state.target_id or None,
        in_doubt=state.in_doubt,
        cancel_requested=state.cancel_requested,
        operation=state.operation,
        intent=state.intent,
        priority=state.priority,
        created_at=iso(state.created_at),
        updated_at=iso(state.updated_at),
        due_at=_iso(state.due_at),
        expires_at=_iso(state.expires_at),
        correlation_id=state.correlation_id,
        version=state.version,
        held_by=None if pause is None else pause.held_by,
        test=state.test,
        delivered_at=_iso(state.delivered_at),
        bounced_at=_iso(state.bounced_at),
        bounce=state.bounce or None,
        complained_at=_iso(state.complained_at),
        complaint=state.complaint or None,
    )


def pause_representation(pause: Pause, held: int) -> PauseRepresentation:
    scope = pause.scope
    return PauseRepresentation(
        scope=str(scope),
        flow=scope.flow,
        tenant=scope.tenant,
        credential=scope.credential,
        reason=pause.reason or None,
        since=iso(pause.since_ms),
        refused=pause.refusal is not None,
        by=pause.by or None,
        held=held,
    )


def key_representation(key: ApiKey) -> KeyRepresentation:
    return KeyRepresentation(
        id=key.id,
        tenant=key.tenant,
        name=key.name,
        scopes=key.scopes,
        test=key.is_test,
        created_at=iso(key.created_ms),
        created_by=key.created_by or None,
        expires_at=_iso(key.expires_ms),
        revoked_at=_iso(key.revoked_ms),
        revoked_by=key.revoked_by or None,
    )


def payload_representation(
    payload: bytes, flow: Flow | None, erased: Collection[str] = ()
) -> dict[str, Any] | None:
    """The payload with personal fields masked; None: this process does not declare the flow.

    `erased`: the paths of the fields whose key was destroyed.
    """
    if flow is None:
        return None
    plan = plan_of(flow.payload)
    if plan is not None:
        payload = plan.replace(payload, "", lambda raw, _: raw if is_encrypted(raw) else PERSONAL)
    fields: dict[str, Any] = msgspec.json.decode(
        replace_encrypted(payload, lambda _, path: ERASED if path in erased else ENCRYPTED)
    )
    return fields


def event_representation(entry: HistoryEntry, version: int) -> EventRepresentation:
    type_name, event, meta = entry
    return EventRepresentation(
        version, type_name, iso(meta.occurred_at), _actor(meta.actor), _event_fields(event)
    )


def _actor(actor: e.Actor | None) -> str | None:
    """Who decided, with the API key: the holder of a key may give any name."""
    if actor is None:
        return None
    keys = [role for role in actor.roles if role.startswith("key:")]
    return f"{actor.user_id} ({', '.join(keys)})" if keys else actor.user_id


def attempt_representations(history: Iterable[HistoryEntry]) -> list[AttemptRepresentation]:
    attempts: dict[int, AttemptRepresentation] = {}
    is_resolved = False

    def attempt(number: int) -> AttemptRepresentation:
        return attempts.setdefault(number, AttemptRepresentation(number))

    def end(
        number: int,
        at: int,
        outcome: Any,
        event: e.AttemptFailed | e.OutcomeUnknown | e.Succeeded | e.Failed,
        texts: tuple[str, str],
        next_at: int | None = None,
    ) -> None:
        one = attempt(number)
        one.ended_at, one.outcome = iso(at), outcome
        one.reason, one.detail = (text or None for text in texts)
        one.next_at, one.used = _iso(next_at), event.used
        if event.started_at is not None:
            one.started_at, one.duration_ms = iso(event.started_at), max(0, at - event.started_at)
        one.worker, one.host = event.worker or None, event.host or None
        one.http_status, one.provider_code = event.http_status, event.provider_code or None
        one.answer, one.traceback = event.answer or None, event.traceback or None

    def has_ended(number: int) -> bool:
        return number in attempts and attempts[number].outcome is not None

    for _, event, meta in history:
        at = meta.occurred_at
        match event:
            case e.AttemptStarted():
                attempt(event.attempt).started_at = iso(at)
            case e.Updated(change="postponed" | "held"):
                # The attempt sent nothing and does not count; the next one gets its number.
                attempts = {
                    number: one for number, one in attempts.items() if one.outcome is not None
                }
            case e.AttemptFailed():
                texts = event.reason, event.detail
                end(event.attempt, at, "retry", event, texts, event.next_attempt_at)
            case e.OutcomeUnknown() if not has_ended(event.attempt):
                # A second one for the same attempt means that reconciling brought no answer.
                texts = event.reason, event.detail
                end(event.attempt, at, "unknown", event, texts, event.next_at)
            case e.OutcomeResolved() | money.Resolved():
                is_resolved = event.result == "executed"
            case e.Succeeded():
                # A look-up or a person found the effect: the attempt itself ended without it.
                if not (is_resolved and has_ended(event.attempts)):
                    texts = "", event.detail or event.provider_id
                    end(event.attempts, at, "done", event, texts)
                is_resolved = False
            case e.Failed() if event.attempts and not has_ended(event.attempts):
                # If the attempt has ended before, this is the end of the request only.
                texts = event.reason, event.last_error
                end(event.attempts, at, "rejected", event, texts)
            case _:
                pass
    return [attempts[number] for number in sorted(attempts)]


def entity_representation(entity: Entity) -> EntityRepresentation:
    hidden = set(secret_fields(type(entity.body)))
    fields: dict[str, Any] = msgspec.to_builtins(entity.body)
    shown = {name: _shown(value) for name, value in fields.items() if name not in hidden}
    secrets = {name: refs[0].version for name, refs in entity.secrets.items() if refs}
    return EntityRepresentation(
        entity.kind, entity.code, entity.version, shown, secrets, list(entity.warnings)
    )


def quarantined_representation(quarantined: Quarantined) -> QuarantinedRepresentation:
    return QuarantinedRepresentation(
        quarantined.what,
        quarantined.tenant or None,
        quarantined.stream,
        quarantined.version,
        quarantined.error,
        iso(quarantined.at_ms),
    )


def _shown(value: Any) -> Any:
    return without_credentials(value) if isinstance(value, str) else value


def _event_fields(event: e.Event | None) -> dict[str, Any]:
    """An event's own fields, times in ISO-8601, without the payload."""
    fields: dict[str, Any] = {} if event is None else msgspec.json.decode(encode(event))
    for hidden in ("payload", "own", "call"):
        fields.pop(hidden, None)
    return {
        name: iso(value) if name.endswith("At") and isinstance(value, int) else value
        for name, value in fields.items()
    }


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
