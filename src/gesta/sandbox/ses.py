"""A fake of Amazon SES v2, and of SNS for its reports.

SendEmail takes a raw e-mail, gives each an id, and like SES removes no duplicates.
`next(error="SendingPausedException")`, `next(error="TooManyRequestsException")`,
`next(status=500)`; `on("AKIA…", error=…)` matches one account. Effects are counted by Message-ID:
several receipts are several e-mails.

SNS signs with a certificate that the fake serves. An engine accepts it if its setting `sns_url`
names the fake. In a test without sockets it answers for every host.
"""

import base64
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gesta.domain.durations import iso
from gesta.outbound.http import HttpRequest
from gesta.outbound.smtp import Envelope
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply, retry_after_header
from gesta.sandbox.smtp import call_of

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


class FakeSns:
    """Signs reports. `url` serves its certificate."""

    def __init__(self, url: str = "https://sns.eu-central-1.amazonaws.com") -> None:
        self.url = url
        #: Tokens of the subscriptions that were confirmed.
        self.confirmed: list[str] = []

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        # Generated on first use, because it takes a moment.
        return rsa.generate_private_key(65_537, 2_048)

    def certificate(self, now_ms: int) -> bytes:
        """A certificate in PEM that is valid for a day before and after `now_ms`."""
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
        fields = {
            "Type": "Notification",
            "MessageId": message_id,
            "TopicArn": topic,
            "Message": message,
            "Timestamp": iso(now_ms),
        } | more
        text = "".join(f"{name}\n{fields[name]}\n" for name in _SIGNED if name in fields).encode()
        algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()  # noqa: S303 -- version 1
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
    """The event of a configuration set about an e-mail."""
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


_PATH: Final = "/v2/email/outbound-emails"
_STATUS: Final = {
    "TooManyRequestsException": 429,
    "NotFoundException": 404,
    "AccessDeniedException": 403,
    "UnrecognizedClientException": 403,
}


class FakeSes(Receiver):
    name = "ses"

    def __init__(self) -> None:
        super().__init__()
        self.sns = FakeSns()

    def serves(self, request: HttpRequest) -> bool:
        parts = urlsplit(request.url)
        return parts.path.endswith((_PATH, CERTIFICATE)) or CONFIRM in parts.query

    def report(
        self,
        kind: Kind,
        topic: str,
        *,
        permanent: bool = True,
        effect: Effect | None = None,
        people: list[str] | None = None,
        version: str = "2",
        number: int = 1,
    ) -> bytes:
        """The body that SNS would post to `/v1/reports/ses/{tenant}` about an e-mail, by default
        the latest.

        `number` distinguishes reports of one kind; the same number is the same report again.
        """
        email = effect or self.effects[-1]
        outbox_id, at_ms = email.data["tags"]["outboxId"], self.now_ms + number
        event = ses_event(
            kind,
            outbox_id,
            f"sandbox-{self.effects.index(email) + 1:06d}",
            people or [email.data["to"]],
            iso(at_ms),
            f"feedback-{kind}-{number}",
            permanent=permanent,
        )
        return msgspec.json.encode(
            self.sns.envelope(event, topic, f"sns-{kind}-{number}", at_ms, version=version)
        )

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        parts = urlsplit(request.url)
        if parts.path.endswith(CERTIFICATE):
            return Reply(200, self.sns.certificate(now_ms))
        if CONFIRM in parts.query:
            self.sns.confirmed += parse_qs(parts.query).get("Token", [])
            return Reply(200)
        headers = {name.lower(): value for name, value in request.headers.items()}
        account = headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        if not account:
            return _error("MissingAuthenticationTokenException", 403)
        try:
            asked: dict[str, Any] = msgspec.json.decode(request.body or b"")
            raw = base64.b64decode(asked["Content"]["Raw"]["Data"], validate=True)
            to = asked["Destination"]
            copies = (*to.get("CcAddresses", ()), *to.get("BccAddresses", ()))
            call = call_of(Envelope(asked["FromEmailAddress"], to["ToAddresses"][0], copies, raw))
        except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError):
            return _error("BadRequestException", 400)
        tags = {tag["Name"]: tag["Value"] for tag in asked.get("EmailTags", ())}
        data = call.data | {"tags": tags, "configurationSet": asked.get("ConfigurationSetName", "")}
        return Call(call.key, call.type, data, call.headers, b"", call.text, (account, *call.names))

    def refusal(self, fault: Fault) -> Reply:
        name, _, text = (fault.error or "").partition(": ")
        status = fault.status or _STATUS.get(name, 400)
        return _error(
            name or ("TooManyRequestsException" if status == 429 else "InternalFailure"),
            status,
            text,
            retry_after_header(fault),
        )

    def success(self, effect: Effect) -> Reply:
        body = msgspec.json.encode({"MessageId": f"sandbox-{self.performed:06d}"})
        return Reply(200, body, {"content-type": "application/json"})


def _error(name: str, status: int, text: str = "", headers: dict[str, str] | None = None) -> Reply:
    body = msgspec.json.encode({"message": text or f"{name} of the sandbox"})
    return Reply(
        status,
        body,
        {"content-type": "application/json", "x-amzn-errortype": name} | (headers or {}),
    )
