"""Content identity: whether the same was asked before, by keyed digests, because sealed content never compares equal."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

#: Enough to tell two contents under one key apart; the index of keys is random, so every byte of it is paid for.
CONTENT_BYTES = 8
NAME_BYTES = 16

#: A payload as JSON, the same bytes for the same content whatever the order of its keys.
canonical = msgspec.json.Encoder(order="deterministic").encode


class Identity:
    """Digests under a secret of this installation, so that the index of keys gives away neither keys nor contents."""

    __slots__ = ("_content", "_name")

    def __init__(self, secret: bytes) -> None:
        # Keyed once and copied: setting up a key costs as much as the digest itself.
        self._name = hashlib.blake2b(key=secret, digest_size=NAME_BYTES, person=b"gesta key")
        self._content = hmac.new(secret, digestmod="sha256")

    def name(self, tenant: str, flow: str, key: str) -> bytes:
        """The digest of a caller's key, scoped by tenant and flow."""
        # Neither tenant nor flow can contain a zero byte, so no two triples give the same text.
        keyed = self._name.copy()
        keyed.update(f"{tenant}\0{flow}\0{key}".encode())
        return keyed.digest()

    def content(self, canonical: bytes) -> bytes:
        """The digest of what is asked, as `canonical` wrote it."""
        keyed = self._content.copy()
        keyed.update(canonical)
        return keyed.digest()[:CONTENT_BYTES]
