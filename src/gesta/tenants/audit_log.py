"""The audit log: who changed what of a tenant, read from the events of its config stream."""

from typing import Any

import msgspec

from gesta.domain.codec import decode_meta
from gesta.domain.stream_names import config_stream
from gesta.ports.event_store import EventStore, Recorded
from gesta.runtime.redaction import without_credentials
from gesta.tenants.config import (
    BULK_ENDED,
    BULK_STARTED,
    BULK_STOPPED,
    DELETED,
    ERASED,
    HANDLER_FORGOTTEN,
    KEY_CREATED,
    KEY_REVOKED,
    PUT,
    SUPPRESSED,
    UNSUPPRESSED,
    EntityPut,
)
from gesta.tenants.pauses import PAUSED, RESUMED

#: Event → the word for it. An event of a newer gesta appears under its own type.
WORDS = {
    PUT: "config_put",
    DELETED: "config_deleted",
    PAUSED: "paused",
    RESUMED: "resumed",
    ERASED: "subject_erased",
    KEY_CREATED: "key_created",
    KEY_REVOKED: "key_revoked",
    SUPPRESSED: "suppressed",
    UNSUPPRESSED: "unsuppressed",
    HANDLER_FORGOTTEN: "handler_forgotten",
    BULK_STARTED: "bulk_started",
    BULK_ENDED: "bulk_finished",
    BULK_STOPPED: "bulk_stopped",
}
#: The fields of an event that are shown as they are.
_COUNTS = frozenset({"matched", "run", "done", "refused"})
_SHOWN = _COUNTS | {"reason", "refusal", "name", "scopes", "test", "expiresAt", "filter"}


#: Longer values, such as the source of a template, are cut.
VALUE_LENGTH_MAX = 200


class Change(msgspec.Struct, frozen=True):
    """One change. `version` is its position in the config stream and continues a listing."""

    version: int
    at_ms: int
    what: str
    #: `kind/code`, what was paused, the digest of a subject, the id of a key, `flow/id` of an entry
    #: of the suppression list, the name of a handler.
    about: str
    #: Who decided: `gesta` with the role `engine` where the engine acted by itself; empty where
    #: the caller named no actor.
    by: str
    roles: tuple[str, ...] = ()
    details: dict[str, Any] = {}


async def trail(events: EventStore, tenant: str, before: int | None, limit: int) -> list[Change]:
    """The changes before a version, newest first."""
    stream = config_stream(tenant)
    changes = []
    for recorded in await events.read_back(stream, before, limit):
        change, position = _change_of(recorded)
        if recorded.type in (PUT, DELETED):
            earlier = await events.read_back(stream, position + 1, 1) if position else []
            change.details["changes"] = _diff(
                _fields(earlier[0]) if earlier else {},
                _fields(recorded) if recorded.type == PUT else {},
            )
        changes.append(change)
    return changes


def _fields(put: Recorded) -> dict[str, Any]:
    """Field → value as it may be shown: a secret by its version, a URL without credentials."""
    try:
        event = msgspec.json.decode(put.data, type=EntityPut)
        body = msgspec.json.decode(event.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    shown = {name: _value(value) for name, value in body.items() if name not in event.secrets}
    versions = {name: refs[0].version for name, refs in event.secrets.items() if refs}
    return shown | {name: f"[secret, version {number}]" for name, number in versions.items()}


def _value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = without_credentials(value)
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}…"


def _diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Field → its value before and after, for the fields that differ; absent values are omitted."""
    return {
        name: {
            moment: fields[name]
            for moment, fields in (("before", before), ("after", after))
            if name in fields
        }
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name) or (name in before) != (name in after)
    }


def _change_of(recorded: Recorded) -> tuple[Change, int]:
    """The change, and the position of the put that it replaced."""
    what = WORDS.get(recorded.type, recorded.type)
    try:
        meta = decode_meta(recorded.meta)
        fields = msgspec.json.decode(recorded.data, type=dict[str, Any])
    except msgspec.DecodeError:
        return Change(recorded.version, 0, what, "(cannot be read)", "", details={}), 0
    actor = meta.actor
    details = {
        name: value
        for name, value in fields.items()
        if name in _SHOWN and (value or name in _COUNTS)
    }
    if recorded.type == PUT and fields.get("secrets"):
        details["secrets"] = sorted(fields["secrets"])
    by, roles = ("", ()) if actor is None else (actor.user_id, actor.roles)
    about = _about(recorded.type, fields)
    change = Change(recorded.version, meta.occurred_at, what, about, by, roles, details)
    return change, fields.get("before", 0)


def _about(type_name: str, fields: dict[str, Any]) -> str:
    if type_name in (PUT, DELETED):
        return f"{fields.get('kind')}/{fields.get('code')}"
    if type_name in (PAUSED, RESUMED):
        parts = {name: fields.get(name) for name in ("flow", "credential")}
        return " ".join(f"{name}:{value}" for name, value in parts.items() if value) or "everything"
    if type_name in (SUPPRESSED, UNSUPPRESSED):
        return f"{fields.get('flow')}/{fields.get('id')}"
    if type_name in (BULK_STARTED, BULK_ENDED, BULK_STOPPED):
        return str(fields.get("action"))
    if type_name == HANDLER_FORGOTTEN:
        return str(fields.get("name"))
    return str(fields.get("subject") if type_name == ERASED else fields.get("id", ""))
