"""HMAC-SHA-256 under a key that is used again and again."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from gesta.security.hmac_key import HmacKey


@pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 200])
def test_a_digest_is_that_of_the_standard_library_for_keys_of_any_length(length: int) -> None:
    secret = bytes(range(length))
    key = HmacKey(secret)
    for message in (b"", b"v0:1:{}", b"x" * 1_000):
        assert key.digest(message) == hmac.digest(secret, message, hashlib.sha256)
