"""Verifies messages of Amazon SNS: signed by a certificate from Amazon's hosts, on a topic that the
tenant has named.

Signature versions 1 (SHA-1) and 2 (SHA-256), as SNS specifies them. A few certificates are fetched
through the guard and cached for a day.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from cryptography import exceptions as crypto_errors
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import load_pem_x509_certificate

from gesta.errors import InvalidSignature, StoreError
from gesta.intake.provider_reports import ReportContext
from gesta.outbound.http import TransportError

#: Must be a region, like us-gov-west-1: `sns.s3.amazonaws.com` and `sns.s3-eu-west-1.amazonaws.com`
#: are buckets that anybody can own.
HOST: Final = re.compile(r"sns\.[a-z]{2}(-[a-z]+){1,2}-[0-9]{1,2}\.amazonaws\.com(\.cn)?")
CERTIFICATES_MAX: Final = 50
KEPT_MS: Final = 86_400_000
#: Certificates that may be fetched per minute in total.
FETCHES_MAX: Final = 20
MINUTE_MS: Final = 60_000
#: SNS repeats a message for at most an hour, so much older ones are refused as replays.
AGE_MS: Final = 86_400_000

#: The signed fields of each type, in order.
_SIGNED: Final[dict[str, tuple[str, ...]]] = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": (
        "Message",
        "MessageId",
        "SubscribeURL",
        "Timestamp",
        "Token",
        "TopicArn",
        "Type",
    ),
    "UnsubscribeConfirmation": (
        "Message",
        "MessageId",
        "SubscribeURL",
        "Timestamp",
        "Token",
        "TopicArn",
        "Type",
    ),
}


class SnsMessage(
    msgspec.Struct,
    frozen=True,
    rename={
        "topic": "TopicArn",
        "certificate": "SigningCertURL",
        "version": "SignatureVersion",
        "type": "Type",
        "id": "MessageId",
        "message": "Message",
        "timestamp": "Timestamp",
        "signature": "Signature",
        "subject": "Subject",
        "token": "Token",
        "subscribe_url": "SubscribeURL",
    },
):
    type: Literal["Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation"]
    id: str
    topic: str
    message: str
    timestamp: str
    signature: str
    certificate: str
    version: Literal["1", "2"] = "1"
    subject: str | None = None
    token: str | None = None
    subscribe_url: str | None = None

    def __repr__(self) -> str:
        return f"SnsMessage({self.type} {self.id})"

    def signed(self) -> bytes:
        values = {
            "Message": self.message,
            "MessageId": self.id,
            "Subject": self.subject,
            "SubscribeURL": self.subscribe_url,
            "Timestamp": self.timestamp,
            "Token": self.token,
            "TopicArn": self.topic,
            "Type": self.type,
        }
        return "".join(
            f"{name}\n{value}\n"
            for name in _SIGNED[self.type]
            if (value := values[name]) is not None
        ).encode()


class Certificates:
    """The cache of public keys."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[RSAPublicKey, int]] = {}
        self._fetched_at: list[int] = []

    async def key(self, url: str, context: ReportContext) -> RSAPublicKey:
        """The public key of a certificate. Raises InvalidSignature for a bad URL, StoreError where
        it cannot be fetched now.
        """
        # Without a query: the API of the same host could echo what an attacker stored there.
        if (
            not is_amazons(url, context.scratch_url)
            or not url.endswith(".pem")
            or "?" in url
            or "#" in url
        ):
            raise InvalidSignature
        known = self._keys.get(url)
        if known is not None and context.now_ms - known[1] < KEPT_MS:
            return known[0]
        self._fetched_at = [at for at in self._fetched_at if context.now_ms - at < MINUTE_MS]
        if known is None and len(self._fetched_at) >= FETCHES_MAX:
            # Invented names cannot evict or block a certificate that was valid before.
            raise StoreError(
                "too many SNS certificates were needed within a minute; gesta will try again"
            )
        self._fetched_at.append(context.now_ms)
        try:
            answer = await context.fetch(url)
        except TransportError as error:
            raise StoreError(
                f"a certificate of SNS cannot be fetched ({error.reason}); gesta will try again"
            ) from None
        if answer.status >= 500:
            raise StoreError(
                f"a certificate of SNS cannot be fetched (answered {answer.status}); gesta will"
                " try again"
            )
        if answer.status != 200:
            raise InvalidSignature
        key = _key_of(answer.body, context.now_ms)
        if len(self._keys) >= CERTIFICATES_MAX:
            self._keys.clear()
        self._keys[url] = key, context.now_ms
        return key


def is_amazons(url: str, scratch_url: str) -> bool:
    """Whether a URL leads to a host of SNS, or to the one in the settings for tests."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    if scratch_url and url.startswith(f"{scratch_url}/"):
        return True
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme == "https"
        and port in (None, 443)
        and "@" not in parts.netloc
        and HOST.fullmatch(parts.hostname or "") is not None
    )


def _key_of(pem: bytes, now_ms: int) -> RSAPublicKey:
    try:
        certificate = load_pem_x509_certificate(pem)
        key = certificate.public_key()
    except Exception:  # noqa: BLE001 -- whatever is wrong with it, it is no certificate of SNS
        raise InvalidSignature from None
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if (
        not isinstance(key, RSAPublicKey)
        or not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    ):
        raise InvalidSignature
    return key


async def open_message(
    body: bytes, topics: frozenset[str], certificates: Certificates, context: ReportContext
) -> SnsMessage:
    """The verified message: signed by SNS, on one of these topics, and recent. Raises
    InvalidSignature.
    """
    try:
        posted = msgspec.json.decode(body, type=SnsMessage)
        signature = base64.b64decode(posted.signature, validate=True)
        moment_ms = datetime.fromisoformat(posted.timestamp).timestamp() * 1000
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        binascii.Error,
        ValueError,
        OverflowError,
    ):
        raise InvalidSignature from None
    if posted.topic not in topics:
        # Before anything is fetched, so that strangers cannot make us call Amazon.
        raise InvalidSignature
    key = await certificates.key(posted.certificate, context)
    try:
        # Version 1 is SHA-1 and still SNS's default.
        algorithm = hashes.SHA1() if posted.version == "1" else hashes.SHA256()  # noqa: S303
        key.verify(signature, posted.signed(), PKCS1v15(), algorithm)
    except crypto_errors.InvalidSignature:
        raise InvalidSignature from None
    if abs(context.now_ms - moment_ms) > AGE_MS:
        raise InvalidSignature
    return posted


async def confirm(posted: SnsMessage, context: ReportContext) -> None:
    """Confirm a subscription by its signed URL."""
    url = posted.subscribe_url or ""
    if not is_amazons(url, context.scratch_url):
        raise InvalidSignature
    try:
        answer = await context.fetch(url)
    except TransportError as error:
        raise StoreError(
            f"a subscription of SNS cannot be confirmed ({error.reason}); gesta will try again"
        ) from None
    if not 200 <= answer.status < 300:
        raise StoreError(
            f"a subscription of SNS cannot be confirmed (answered {answer.status}); gesta will try"
            " again"
        )
