"""Opaque cursors: positions in lists and in the log, encrypted.

A cursor of one tenant must not show how many events other tenants have.
"""

import base64
import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gesta.errors import BadCursor

_NUMBER_BYTES = 8
_LENGTH = 22


class Cursors:
    """A cursor is one AES block: eight bytes for the number, eight for its owner and purpose.

    A changed cursor is refused.
    """

    def __init__(self, secret: bytes) -> None:
        # One block, and no two positions give the same one, so no chaining mode is needed.
        key = hashlib.sha256(b"cursors" + secret).digest()
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305 -- see above

    def encrypt(self, number: int, whose: str) -> str:
        encryptor = self._cipher.encryptor()
        block = (
            encryptor.update(number.to_bytes(_NUMBER_BYTES, "big") + _mark(whose))
            + encryptor.finalize()
        )
        return base64.urlsafe_b64encode(block).rstrip(b"=").decode()

    def open(self, text: str, whose: str) -> int:
        """The number; raises BadCursor for any other text, or for a cursor of another owner."""
        try:
            if len(text) != _LENGTH:
                raise ValueError
            block = base64.b64decode(text + "==", altchars=b"-_", validate=True)
            decryptor = self._cipher.decryptor()
            clear = decryptor.update(block) + decryptor.finalize()
        except ValueError:
            raise BadCursor from None
        if clear[_NUMBER_BYTES:] != _mark(whose):
            raise BadCursor
        return int.from_bytes(clear[:_NUMBER_BYTES], "big")


def _mark(whose: str) -> bytes:
    return hashlib.sha256(whose.encode()).digest()[:_NUMBER_BYTES]
