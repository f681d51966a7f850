"""API keys and the audit log."""

from typing import Any, Literal

from gesta.api_types.structs import Representation

Scope = Literal["read", "submit", "execute", "operate", "admin"]


class KeyRepresentation(Representation, frozen=True):
    """A key without its text. Only its holder has that."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    test: bool
    created_at: str
    created_by: str | None
    expires_at: str | None
    revoked_at: str | None
    revoked_by: str | None


class MadeKey(KeyRepresentation, frozen=True):
    """`key` is the text that callers send. It is shown only once."""

    key: str


class Myself(Representation, frozen=True):
    """The key that was sent."""

    key_id: str
    name: str
    tenant: str
    scopes: list[str]
    test: bool
    expires_at: str | None


class ChangeRepresentation(Representation, frozen=True):
    """`about` names the subject of the change: the `kind/code` of config, a pause, the digest of a
    person, the id of a key, `flow/id` of a suppression entry, or a handler.

    `by` is null where gesta itself decided.
    """

    version: int
    at: str
    what: str
    about: str
    by: str | None
    roles: tuple[str, ...]
    details: dict[str, Any]
