"""A double of Amazon SNS for SES's reports: it signs with a certificate of its own, which it also
hands out.

An engine that is to believe it must be told so: `sns_url` of its settings. In a test without
sockets the face answers for every host.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

Kind = Literal["delivery", "bounce", "complaint"]
CERTIFICATE: Final = "/SimpleNotificationService-sandbox.pem"
CONFIRM: Final = "Action=ConfirmSubscription"
_SIGNED: Final = (
    "Message",
    "MessageId",
    "Subject",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)


class SnsSandbox:
    """Who signs. `url` is where its certificate is had."""

    def __init__(self, url: str = "https://sns.eu-central-1.amazonaws.com") -> None:
        self.url = url
        #: Tokens of the subscriptions that were confirmed.
        self.confirmed: list[str] = []

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        # Made when it is needed: it takes a moment.
        return rsa.generate_private_key(65_537, 2_048)

    def certificate(self, now_ms: int) -> bytes:
        """Its certificate in PEM, good for a day around that moment."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.sandbox")])
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(self._key, hashes.SHA256())
        )
        return built.public_bytes(Encoding.PEM)

    def envelope(
        self,
        message: str,
        topic: str,
        message_id: str,
        now_ms: int,
        *,
        version: str = "2",
        **more: str,
    ) -> dict[str, str]:
        """What SNS posts, signed. `more`: other fields of the envelope, e.g. Type."""
        moment = (
            datetime.fromtimestamp(now_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        fields = {
            "Type": "Notification",
            "MessageId": message_id,
            "TopicArn": topic,
            "Message": message,
            "Timestamp": moment,
        } | more
        text = "".join(f"{name}\n{fields[name]}\n" for name in _SIGNED if name in fields).encode()
        algorithm: hashes.HashAlgorithm = hashes.SHA1() if version == "1" else hashes.SHA256()  # noqa: S303 -- what version 1 is
        signature = base64.b64encode(self._key.sign(text, PKCS1v15(), algorithm)).decode()
        return (
            {"SigningCertURL": self.url + CERTIFICATE}
            | fields
            | {"SignatureVersion": version, "Signature": signature}
        )


def ses_event(
    kind: Kind,
    outbox_id: str,
    message_id: str,
    people: list[str],
    moment: str,
    feedback_id: str,
    *,
    permanent: bool,
) -> str:
    """What SES says of a letter, as an event of a configuration set."""
    content: dict[str, Any] = {
        "eventType": kind.capitalize(),
        "mail": {"messageId": message_id, "tags": {"outboxId": [outbox_id]}},
    }
    recipients = [{"emailAddress": address} for address in people]
    if kind == "bounce":
        words = ("Permanent", "NoEmail") if permanent else ("Transient", "MailboxFull")
        content["bounce"] = {
            "bounceType": words[0],
            "bounceSubType": words[1],
            "bouncedRecipients": recipients,
            "feedbackId": feedback_id,
            "timestamp": moment,
        }
    elif kind == "complaint":
        content["complaint"] = {
            "complaintFeedbackType": "abuse",
            "complainedRecipients": recipients,
            "feedbackId": feedback_id,
            "timestamp": moment,
        }
    else:
        content["delivery"] = {"timestamp": moment, "recipients": people}
    return msgspec.json.encode(content).decode()
