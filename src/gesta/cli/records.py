"""Requests, events, attempts and config as JSON objects. The keys are stable: scripts build on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gesta.access import ApiKey
from gesta.config import Entity, secret_fields
from gesta.dead_letters import iso
from gesta.domain import events as e
from gesta.domain.codec import encode
from gesta.domain.operation import State
from gesta.flows.flow import Flow
from gesta.pauses import Pause
from gesta.personal import plan_of
from gesta.scrub import without_credentials
from gesta.sealed_fields import is_sealed, replace_sealed
from gesta.views import Parked

Record = dict[str, Any]
#: What `Engine.history` gives for each event.
Told = tuple[str, e.Event | None, e.Meta]

#: In place of what is sealed, and of what is personal but was stored before its field was marked so.
SEALED, PERSONAL = b'"[sealed]"', b'"(personal)"'


def request_record(state: State, pause: Pause | None = None) -> Record:
    return {
        "id": state.id,
        "flow": state.flow,
        "tenant": state.tenant,
        "status": state.status,
        "key": state.key,
        "attemptCount": state.attempts,
        "reason": state.reason,
        "detail": state.detail,
        "providerId": state.provider_id,
        "inDoubt": state.in_doubt,
        "cancelRequested": state.cancel_requested,
        "operation": state.operation,
        "intent": state.intent,
        "priority": state.priority,
        "createdAt": iso(state.created_at),
        "updatedAt": iso(state.updated_at),
        "dueAt": _iso(state.due_at),
        "expiresAt": _iso(state.expires_at),
        "correlationId": state.correlation_id,
        "version": state.version,
        "heldBy": None if pause is None else str(pause.scope),
    }


def pause_record(pause: Pause, held: int) -> Record:
    scope = pause.scope
    return {
        "scope": str(scope),
        "flow": scope.flow,
        "tenant": scope.tenant,
        "credential": scope.credential,
        "reason": pause.reason,
        "since": iso(pause.since_ms),
        "refused": pause.refusal is not None,
        "by": pause.by,
        "held": held,
    }


def key_record(key: ApiKey) -> Record:
    """A key without its text, which nobody has but its holder."""
    return {
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "scopes": key.scopes,
        "test": key.is_test,
        "createdAt": iso(key.created_ms),
        "createdBy": key.created_by,
        "expiresAt": _iso(key.expires_ms),
        "revokedAt": _iso(key.revoked_ms),
        "revokedBy": key.revoked_by or None,
    }


def payload_record(payload: bytes, flow: Flow | None) -> Record | None:
    """The payload with its personal parts masked; None where the flow is not declared, so that nobody knows which those are."""
    if flow is None:
        return None
    plan = plan_of(flow.payload)
    if plan is not None:
        payload = plan.replace(payload, "", lambda raw, _: raw if is_sealed(raw) else PERSONAL)
    fields: Record = msgspec.json.decode(replace_sealed(payload, lambda _, __: SEALED))
    return fields


def event_record(told: Told, version: int) -> Record:
    type_name, event, meta = told
    return {
        "version": version,
        "type": type_name,
        "at": iso(meta.occurred_at),
        "actor": None if meta.actor is None else meta.actor.user_id,
        "data": _event_fields(event),
    }


def attempt_records(history: Iterable[Told]) -> list[Record]:
    """What each attempt came to, gathered from the events."""
    attempts: dict[int, Record] = {}

    def attempt(number: int) -> Record:
        blank: Record = {
            "number": number,
            "startedAt": None,
            "endedAt": None,
            "outcome": None,
            "reason": "",
            "detail": "",
            "nextAt": None,
            "used": {},
        }
        return attempts.setdefault(number, blank)

    def end(number: int, at: int, outcome: str, reason: str, detail: str, used: e.Used, next_at: int | None = None) -> None:
        ending = {
            "endedAt": iso(at),
            "outcome": outcome,
            "reason": reason,
            "detail": detail,
            "nextAt": _iso(next_at),
            "used": used,
        }
        attempt(number).update(ending)

    for _, event, meta in history:
        at = meta.occurred_at
        match event:
            case e.AttemptStarted():
                attempt(event.attempt)["startedAt"] = iso(at)
            case e.Updated(change="postponed"):
                # It called nobody, so it was none: the next one has its number.
                attempts = {number: one for number, one in attempts.items() if one["outcome"] is not None}
            case e.AttemptFailed():
                end(event.attempt, at, "retry", event.reason, event.detail, event.used, event.next_attempt_at)
            case e.OutcomeUnknown() if attempts.get(event.attempt, {}).get("outcome") is None:
                # A second one for the same attempt is a question to the provider that brought no answer.
                end(event.attempt, at, "unknown", event.reason, event.detail, event.used, event.next_at)
            case e.Sent() | e.SentLate():
                end(event.attempts, at, "done", "", event.detail or event.provider_message_id, event.used)
            case e.Failed() if event.attempts and attempts.get(event.attempts, {}).get("outcome") is None:
                # Where the attempt has an end already, this is only the request's.
                end(event.attempts, at, "rejected", event.reason, event.last_error, event.used)
            case _:
                pass
    return [attempts[number] for number in sorted(attempts)]


def entity_record(entity: Entity) -> Record:
    """Config without its secrets: of those only the version is told, and of a URL neither user nor query."""
    hidden = set(secret_fields(type(entity.body)))
    fields: Record = msgspec.to_builtins(entity.body)
    return {
        "kind": entity.kind,
        "code": entity.code,
        "version": entity.version,
        "fields": {name: _shown(value) for name, value in fields.items() if name not in hidden},
        "secrets": {name: refs[0].version for name, refs in entity.secrets.items() if refs},
    }


def _shown(value: Any) -> Any:
    return without_credentials(value) if isinstance(value, str) else value


def parked_record(parked: Parked) -> Record:
    return {
        "what": parked.what,
        "tenant": parked.tenant,
        "name": parked.stream,
        "version": parked.version,
        "error": parked.error,
        "at": iso(parked.at_ms),
    }


def _event_fields(event: e.Event | None) -> Record:
    """An event's own fields, times in ISO-8601; a payload stands with its request and not here."""
    fields: Record = {} if event is None else msgspec.json.decode(encode(event))
    fields.pop("payload", None)
    return {name: iso(value) if name.endswith("At") and isinstance(value, int) else value for name, value in fields.items()}


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
