"""What the events of a config stream carry about entities and people.

Pauses and keys have theirs in pauses.py and key_notes.py.
"""

from __future__ import annotations

import msgspec


class SecretRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version of a secret in the vault; `until` ends its overlap with a newer one."""

    name: str
    version: int
    until: int | None = None


class EntityPut(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: str
    code: str
    body: msgspec.Raw
    secrets: dict[str, tuple[SecretRef, ...]] = {}


class EntityDeleted(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    code: str


SUPPRESSED, UNSUPPRESSED = "config.AddressSuppressed.v1", "config.AddressUnsuppressed.v1"
HANDLER_FORGOTTEN = "config.HandlerForgotten.v1"
#: What is only put on record: no entity, pause or key is another for it.
NOTES = frozenset({SUPPRESSED, UNSUPPRESSED, HANDLER_FORGOTTEN})


class AddressSuppressed(msgspec.Struct, frozen=True, rename="camel"):
    """Somebody decided that an address gets no more messages of a flow.

    `id` is what its entry is called, a digest; the list has the reason.
    """

    flow: str
    id: str


class AddressUnsuppressed(msgspec.Struct, frozen=True, rename="camel"):
    """Messages of a flow may go to an address again.

    `id` is what its entry was called, a digest; the metadata says when and who decided.
    """

    flow: str
    id: str


class HandlerForgotten(msgspec.Struct, frozen=True, rename="camel"):
    """The place in the log of a handler that no program declares any more was forgotten."""

    name: str


class SubjectErased(msgspec.Struct, frozen=True, rename="camel"):
    """The keys of a subject were destroyed.

    `subject` is its digest; the metadata says when and who decided.
    """

    subject: str
