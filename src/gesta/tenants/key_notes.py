"""What a config stream tells of the tenant's API keys: that one was made, that one was revoked.

Never a key, nor its hash.
"""

from __future__ import annotations

import msgspec

from gesta.ports.event_store import Recorded

KEY_CREATED, KEY_REVOKED = "config.KeyCreated.v1", "config.KeyRevoked.v1"


class KeyCreated(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Somebody was about to be given a key; the metadata says when and who decided.

    The vault alone says whether it was made.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    test: bool = False
    expires_at: int | None = None


class KeyRevoked(msgspec.Struct, frozen=True, rename="camel"):
    """From then on the key opened nothing."""

    id: str


class KeyNotes:
    """Which keys the streams that were read tell of, tenant by tenant."""

    def __init__(self) -> None:
        self._created: dict[str, list[str]] = {}
        self._revoked: dict[str, set[str]] = {}

    def fold(self, tenant: str, recorded: Recorded) -> None:
        if recorded.type == KEY_CREATED:
            self._created.setdefault(tenant, []).append(
                msgspec.json.decode(recorded.data, type=KeyCreated).id
            )
        else:
            self._revoked.setdefault(tenant, set()).add(
                msgspec.json.decode(recorded.data, type=KeyRevoked).id
            )

    def created(self, tenant: str) -> list[str]:
        """The ids of all that were ever made, oldest first."""
        return list(self._created.get(tenant, ()))

    def is_revoked(self, tenant: str, key_id: str) -> bool:
        """Whether that is on record."""
        return key_id in self._revoked.get(tenant, ())
