"""Keyed digests of keys, contents, data subjects and secrets.

Encrypted content never compares equal, so a digest shows whether the same was submitted before.
"""

import hashlib
from collections.abc import Iterable

from gesta.security.hmac_key import HmacKey

#: Enough to distinguish two contents under one key. The index of keys is random, so each byte
#: costs.
CONTENT_BYTES = 8
NAME_BYTES = 16
SUBJECT_BYTES = 16
SECRET_BYTES = 16
TICKET_BYTES = 16


class KeyedDigests:
    """Digests under a secret of this installation: they reveal neither keys nor contents."""

    __slots__ = ("_content", "_name", "_secret", "_subject", "_ticket")

    def __init__(self, secret: bytes) -> None:
        # Keyed once and copied: the key setup costs as much as the digest itself.
        self._name = hashlib.blake2b(key=secret, digest_size=NAME_BYTES, person=b"gesta key")
        self._subject = hashlib.blake2b(
            key=secret, digest_size=SUBJECT_BYTES, person=b"gesta subject"
        )
        self._secret = hashlib.blake2b(key=secret, digest_size=SECRET_BYTES, person=b"gesta secret")
        self._ticket = hashlib.blake2b(key=secret, digest_size=TICKET_BYTES, person=b"gesta ticket")
        self._content = HmacKey(secret)

    def name(self, tenant: str, flow: str, key: str) -> bytes:
        """The digest of a caller's key, scoped by tenant and flow."""
        # Tenants and flows contain no zero byte, so no two triples give the same text.
        keyed = self._name.copy()
        keyed.update(f"{tenant}\0{flow}\0{key}".encode())
        return keyed.digest()

    def name_of(self, tenant: str, flow: str, key: str, *, test: bool) -> bytes:
        """The same, with separate names for test requests: a test and a real request with the same
        key must not become duplicates of each other.
        """
        return self.name(tenant, f"{flow}~test" if test else flow, key)

    def subject(self, tenant: str, text: str) -> bytes:
        """The digest of a data subject, scoped by tenant: the name of its encryption key."""
        keyed = self._subject.copy()
        keyed.update(f"{tenant}\0{text}".encode())
        return keyed.digest()

    def secret(self, texts: Iterable[str]) -> str:
        """The digest of a credential, which shows whether it has changed."""
        keyed = self._secret.copy()
        keyed.update("\0".join(texts).encode())
        return keyed.hexdigest()

    def lease_token(self, texts: Iterable[str]) -> bytes:
        """The signature of a lease token. No text may contain a zero byte."""
        keyed = self._ticket.copy()
        keyed.update("\0".join(texts).encode())
        return keyed.digest()

    def content(self, canonical: bytes) -> bytes:
        """The digest of a payload, in the encoding of `canonical`."""
        return self._content.digest(canonical)[:CONTENT_BYTES]
