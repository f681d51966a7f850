"""The text of an API key: `gesta_live_<id>_<secret>`, or `gesta_test_…` for one that reaches
nothing but the sandbox.

The id is no secret. It ends in a checksum under a secret of the installation, so that ids which
somebody made up are told from real ones
without a look into the vault.
"""

from __future__ import annotations

import hashlib
import re
import string
from hmac import compare_digest
from typing import Final

from gesta.runtime.clock import Runtime

HASH_BYTES: Final = 32

_SECRET_LETTERS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
#: 62 to this power is just above 2 to the power of 256.
_SECRET_LENGTH: Final = 43
_SECRET_BYTES: Final = 32
_ID_LETTERS: Final = string.digits + string.ascii_lowercase
_DRAWN_LENGTH: Final = 12
_CHECK_LENGTH: Final = 6
_ID: Final = re.compile(rf"[0-9a-z]{{{_DRAWN_LENGTH + _CHECK_LENGTH}}}")
_TEXT: Final = re.compile(rf"gesta_(?:live|test)_({_ID.pattern})_[0-9A-Za-z]{{{_SECRET_LENGTH}}}")
_LENGTH: Final = len("gesta_live__") + _DRAWN_LENGTH + _CHECK_LENGTH + _SECRET_LENGTH


class KeyTexts:
    def __init__(self, secret: bytes, runtime: Runtime) -> None:
        self._runtime = runtime
        # Keyed once and copied: setting up a key costs as much as the digest itself.
        self._hash = hashlib.blake2b(key=secret, digest_size=HASH_BYTES, person=b"gesta api key")
        self._check = hashlib.blake2b(key=secret, digest_size=8, person=b"gesta key id")

    def new(self, *, test: bool) -> tuple[str, str]:
        """The id of a new key, and its text."""
        drawn = self._letters(_ID_LETTERS, _DRAWN_LENGTH)
        key_id = drawn + self._checksum(drawn)
        return (
            key_id,
            (
                f"gesta_{'test' if test else 'live'}_{key_id}_{self._letters(_SECRET_LETTERS, _SECRET_LENGTH)}"
            ),
        )

    def id_in(self, text: str) -> str | None:
        """The id in a text, whoever made it; None where no key can look so."""
        match = _TEXT.fullmatch(text) if len(text) == _LENGTH else None
        return None if match is None else match[1]

    def is_id(self, text: str) -> bool:
        """Whether this installation made that id."""
        if _ID.fullmatch(text) is None:
            return False
        return compare_digest(self._checksum(text[:_DRAWN_LENGTH]), text[_DRAWN_LENGTH:])

    def digest(self, text: str) -> bytes:
        """What is kept of a text."""
        keyed = self._hash.copy()
        keyed.update(text.encode())
        return keyed.digest()

    def _checksum(self, drawn: str) -> str:
        keyed = self._check.copy()
        keyed.update(drawn.encode())
        return _written(int.from_bytes(keyed.digest(), "big"), _ID_LETTERS, _CHECK_LENGTH)

    def _letters(self, letters: str, length: int) -> str:
        return _written(
            int.from_bytes(self._runtime.random_bytes(_SECRET_BYTES), "big"), letters, length
        )


def _written(number: int, letters: str, length: int) -> str:
    """The lowest digits of a number, in a fixed length."""
    drawn = []
    for _ in range(length):
        number, digit = divmod(number, len(letters))
        drawn.append(letters[digit])
    return "".join(drawn)
