"""Content identity: whether the same was asked before, by keyed digests, because sealed content never compares equal."""

from __future__ import annotations

import hmac

import msgspec

_canonical = msgspec.json.Encoder(order="deterministic")


class Identity:
    """Digests under a secret of this installation, so that neither keys nor contents can be guessed from the store."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def name(self, tenant: str, flow: str, key: str) -> bytes:
        """The digest of a caller's key, scoped by tenant and flow."""
        # Neither tenant nor flow can contain a zero byte, so no two triples give the same text.
        return hmac.digest(self._secret, f"key\0{tenant}\0{flow}\0{key}".encode(), "sha256")[:16]

    def content(self, payload: msgspec.Struct) -> bytes:
        """The digest of what is asked, whatever the order of its keys."""
        return hmac.digest(self._secret, b"content\0" + _canonical.encode(payload), "sha256")[:16]
