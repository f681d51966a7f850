"""Content identity: whether the same was asked before, by keyed digests, because sealed content
never compares equal.
"""

import hashlib
from collections.abc import Iterable

#: Enough to tell two contents under one key apart; the index of keys is random, so every byte of it
#: is paid for.
CONTENT_BYTES = 8
NAME_BYTES = 16
SUBJECT_BYTES = 16
SECRET_BYTES = 16
TICKET_BYTES = 16
#: What HMAC mixes into its key for the inner and the outer digest, and how long a block of SHA-256
#: is (RFC 2104).
INNER, OUTER, BLOCK_BYTES = 0x36, 0x5C, 64


class KeyedDigests:
    """Digests under a secret of this installation, so that the index of keys gives away neither
    keys nor contents.
    """

    __slots__ = ("_inner", "_name", "_outer", "_secret", "_subject", "_ticket")

    def __init__(self, secret: bytes) -> None:
        # Keyed once and copied: setting up a key costs as much as the digest itself.
        self._name = hashlib.blake2b(key=secret, digest_size=NAME_BYTES, person=b"gesta key")
        self._subject = hashlib.blake2b(
            key=secret, digest_size=SUBJECT_BYTES, person=b"gesta subject"
        )
        self._secret = hashlib.blake2b(key=secret, digest_size=SECRET_BYTES, person=b"gesta secret")
        self._ticket = hashlib.blake2b(key=secret, digest_size=TICKET_BYTES, person=b"gesta ticket")
        # HMAC-SHA-256, its two digests by hand: the module's own objects cost as much again for
        # each call.
        block = secret.ljust(BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ INNER for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ OUTER for byte in block))

    def name(self, tenant: str, flow: str, key: str) -> bytes:
        """The digest of a caller's key, scoped by tenant and flow."""
        # Neither tenant nor flow can contain a zero byte, so no two triples give the same text.
        keyed = self._name.copy()
        keyed.update(f"{tenant}\0{flow}\0{key}".encode())
        return keyed.digest()

    def name_of(self, tenant: str, flow: str, key: str, *, test: bool) -> bytes:
        """The same where tests have names of their own: a trial must neither swallow the real thing
        nor be swallowed by it.
        """
        return self.name(tenant, f"{flow}~test" if test else flow, key)

    def subject(self, tenant: str, text: str) -> bytes:
        """The digest of whom personal data is about, scoped by tenant: the name of the key that
        seals it.
        """
        keyed = self._subject.copy()
        keyed.update(f"{tenant}\0{text}".encode())
        return keyed.digest()

    def secret(self, texts: Iterable[str]) -> str:
        """The digest of a credential, to tell whether it is still the same."""
        keyed = self._secret.copy()
        keyed.update("\0".join(texts).encode())
        return keyed.hexdigest()

    def lease_token(self, texts: Iterable[str]) -> bytes:
        """The digest that only this installation can put on what it hands out.

        No text may contain a zero byte.
        """
        keyed = self._ticket.copy()
        keyed.update("\0".join(texts).encode())
        return keyed.digest()

    def content(self, canonical: bytes) -> bytes:
        """The digest of what is asked, as `canonical` wrote it."""
        inner = self._inner.copy()
        inner.update(canonical)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()[:CONTENT_BYTES]
