"""API keys, and the trail of changes."""

from typing import Any, Literal

from gesta.api_types.structs import ListOf, Representation

Scope = Literal["read", "submit", "execute", "operate", "admin"]


class KeyRepresentation(Representation, frozen=True):
    """A key without its text, which nobody has but its holder."""

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
    """`key` is what callers send. It is shown this once."""

    key: str


class KeyList(ListOf[KeyRepresentation], frozen=True):
    """Newest first, including revoked and expired keys."""


class Myself(Representation, frozen=True):
    """The key that was sent."""

    key_id: str
    name: str
    tenant: str
    scopes: list[str]
    test: bool
    expires_at: str | None


class ChangeRepresentation(Representation, frozen=True):
    """`about` is `kind/code`, what was paused, the digest of a person, the id of a key, `flow/id`
    of an entry of the suppression list, or the name of a handler.

    `by` is null where gesta itself decided.
    """

    version: int
    at: str
    what: str
    about: str
    by: str | None
    roles: tuple[str, ...]
    details: dict[str, Any]


class Trail(ListOf[ChangeRepresentation], frozen=True):
    """Newest first."""
