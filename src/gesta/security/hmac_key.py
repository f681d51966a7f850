"""A key of HMAC-SHA-256 that many messages are authenticated with."""

import hashlib

#: The paddings of the inner and the outer digest, and the block size of SHA-256 (RFC 2104).
INNER, OUTER, BLOCK_BYTES = 0x36, 0x5C, 64


class HmacKey:
    """Keyed once and copied: the key setup costs as much as a digest.

    Objects of the hmac module cost twice as much per call, and `hmac.digest` gives up the
    interpreter lock and then waits for the thread that writes.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        if len(secret) > BLOCK_BYTES:
            secret = hashlib.sha256(secret).digest()
        block = secret.ljust(BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ INNER for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ OUTER for byte in block))

    def digest(self, message: bytes) -> bytes:
        inner = self._inner.copy()
        inner.update(message)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()
