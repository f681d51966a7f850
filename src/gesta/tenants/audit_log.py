"""Who changed what of a tenant: the events of its config stream, read as a trail.

Nothing is kept for it beside them.
"""

from typing import Any

import msgspec

from gesta.domain.codec import decode_meta
from gesta.ports.event_store import Recorded
from gesta.tenants.config import (
    BULK_STARTED,
    DELETED,
    ERASED,
    HANDLER_FORGOTTEN,
    KEY_CREATED,
    KEY_REVOKED,
    PUT,
    SUPPRESSED,
    UNSUPPRESSED,
)
from gesta.tenants.pauses import PAUSED, RESUMED

#: Event → the word for it. What a newer gesta has written stands under its own type.
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
}
#: What is told of an event beside what it is about. Never a body: it may hold what only its owner
#: should read.
_TOLD = frozenset({"reason", "refusal", "name", "scopes", "test", "expiresAt", "filter", "matched"})


class Change(msgspec.Struct, frozen=True):
    """One change on record.

    `version` is its place in the tenant's config stream, and where a listing goes on.
    """

    version: int
    at_ms: int
    what: str
    #: `kind/code`, what was paused, the digest of a subject, the id of a key, `flow/id` of an entry
    #: of the suppression list, the name of a handler.
    about: str
    #: Who decided; empty where it was the engine itself.
    by: str
    roles: tuple[str, ...] = ()
    details: dict[str, Any] = {}


def change_of(recorded: Recorded) -> Change:
    """What an event says; one that cannot be read still says that something was changed."""
    what = WORDS.get(recorded.type, recorded.type)
    try:
        meta = decode_meta(recorded.meta)
        fields = msgspec.json.decode(recorded.data, type=dict[str, Any])
    except msgspec.DecodeError:
        return Change(recorded.version, 0, what, "(cannot be read)", "")
    actor = meta.actor
    details = {name: value for name, value in fields.items() if name in _TOLD and value}
    if recorded.type == PUT and fields.get("secrets"):
        details["secrets"] = sorted(fields["secrets"])
    by, roles = ("", ()) if actor is None else (actor.user_id, actor.roles)
    return Change(
        recorded.version, meta.occurred_at, what, _about(recorded.type, fields), by, roles, details
    )


def _about(type_name: str, fields: dict[str, Any]) -> str:
    if type_name in (PUT, DELETED):
        return f"{fields.get('kind')}/{fields.get('code')}"
    if type_name in (PAUSED, RESUMED):
        parts = {name: fields.get(name) for name in ("flow", "credential")}
        return " ".join(f"{name}:{value}" for name, value in parts.items() if value) or "everything"
    if type_name in (SUPPRESSED, UNSUPPRESSED):
        return f"{fields.get('flow')}/{fields.get('id')}"
    if type_name == BULK_STARTED:
        return str(fields.get("action"))
    if type_name == HANDLER_FORGOTTEN:
        return str(fields.get("name"))
    return str(fields.get("subject") if type_name == ERASED else fields.get("id", ""))
