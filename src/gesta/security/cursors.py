"""Places in lists and in the log, as texts that tell nothing: one tenant's place must not show how
much the others do.
"""

import base64
import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gesta.errors import BadCursor

_NUMBER_BYTES = 8
_LENGTH = 22


class Cursors:
    """A place is one block of AES: eight bytes for the number, eight that say whose it is and what
    for.

    What was changed does not open.
    """

    def __init__(self, secret: bytes) -> None:
        # One block and never two alike for different places, so that no mode is needed.
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
        """The number; raises BadCursor where the text is none of ours, or another's."""
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
