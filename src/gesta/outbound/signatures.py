"""Standard Webhooks signatures (scheme v1, HMAC-SHA256), on raw bytes: sign before sending, verify
before parsing.

The signed text is `{id}.{timestamp}.{body}`; the header lists one signature for each active secret,
so that a receiver may
change its secret at any time while two are active.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Literal

SECRET_PREFIX = "whsec_"  # noqa: S105 -- the public prefix of every secret
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
#: How far a sender's clock may be off, and how long a captured message can be replayed.
TOLERANCE_SECONDS = 300

_SCHEME = "v1"
#: No dot: it separates the parts of the signed text, and an id that had one could move the border.
_MESSAGE_ID = re.compile(r"[^\s.]{1,256}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class BadSignature(Exception):
    """The message is not from the holder of a secret, or not from now.

    `reason` is one of a closed set.
    """

    def __init__(
        self, reason: Literal["missing_header", "bad_header", "too_old", "too_new", "no_match"]
    ) -> None:
        super().__init__(reason)
        self.reason = reason


def secret_bytes(secret: str) -> bytes:
    """The key inside `whsec_…`. Raises ValueError, whose text does not show the secret."""
    encoded = secret.removeprefix(SECRET_PREFIX)
    if encoded == secret:
        raise ValueError(f"a webhook secret starts with {SECRET_PREFIX}")
    try:
        # Secrets are handed around with and without padding.
        key = base64.b64decode(
            encoded.rstrip("=") + "=" * (-len(encoded.rstrip("=")) % 4), validate=True
        )
    except (binascii.Error, ValueError):
        raise ValueError(f"a webhook secret is {SECRET_PREFIX} and base64") from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(
            f"a webhook secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, this one has"
            f" {len(key)}"
        )
    return key


def sign(secrets: Sequence[str], message_id: str, timestamp_seconds: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each secret, the current one first."""
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError("a message id must not contain a dot or a space")
    signatures = (
        _signature(secret_bytes(secret), message_id, str(timestamp_seconds), body)
        for secret in secrets
    )
    return " ".join(f"{_SCHEME},{base64.b64encode(signature).decode()}" for signature in signatures)


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now_seconds: float,
    tolerance_seconds: int = TOLERANCE_SECONDS,
) -> str:
    """The message's id, once one of its signatures is shown to be by one of the secrets.

    Raises BadSignature.
    """
    found = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, listed = (
            found[f"webhook-{part}"] for part in ("id", "timestamp", "signature")
        )
    except KeyError:
        raise BadSignature("missing_header") from None
    if not _MESSAGE_ID.fullmatch(message_id) or not _TIMESTAMP.fullmatch(timestamp):
        raise BadSignature("bad_header")
    given = [
        base64_text
        for scheme, _, base64_text in (entry.partition(",") for entry in listed.split())
        if scheme == _SCHEME
    ]
    expected = [
        base64.b64encode(_signature(secret_bytes(secret), message_id, timestamp, body))
        for secret in secrets
    ]
    # Every pair is compared, each in constant time, before anything is concluded.
    matches = [hmac.compare_digest(ours, theirs.encode()) for ours in expected for theirs in given]
    if not any(matches):
        raise BadSignature("no_match")
    age = now_seconds - int(timestamp)
    if abs(age) > tolerance_seconds:
        raise BadSignature("too_old" if age > 0 else "too_new")
    return message_id


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
