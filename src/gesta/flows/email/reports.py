"""Reports of Amazon SES through SNS: delivered, bounced, complained.

The e-mail itself names its request: in the tag `outboxId` (events of a configuration set), or in
the header X-Outbox-Id (notifications of an identity, with original headers). SNS signs both. A
permanent bounce and a complaint put the address on the suppression list.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from gesta.domain.commands import RecordReceipt
from gesta.domain.ids import REQUEST_ID
from gesta.errors import InvalidSignature
from gesta.flows.email.sender import SENDER, Sender
from gesta.flows.email.sns import Certificates, confirm, open_message
from gesta.intake.provider_reports import Incoming, ProviderReport, ReportContext, Reporting
from gesta.tenants.config import Entity

PROVIDER: Final = "ses"
_WORD: Final = re.compile(r"[^a-z0-9-]+")
#: The recipient corrects a spam report.
_NO_COMPLAINT: Final = "not-spam"
#: An e-mail has at most eleven recipients; SES allows fifty.
PEOPLE_MAX: Final = 50


class MailHeader(msgspec.Struct, frozen=True):
    name: str
    value: str


class ReportedMail(msgspec.Struct, frozen=True, rename="camel"):
    message_id: str = ""
    tags: dict[str, list[str]] = {}
    headers: list[MailHeader] = []


class ReportedPerson(msgspec.Struct, frozen=True, rename="camel"):
    email_address: str

    def __repr__(self) -> str:
        return "ReportedPerson()"


class Bounce(msgspec.Struct, frozen=True, rename="camel"):
    bounce_type: str = ""
    bounce_sub_type: str = ""
    bounced_recipients: list[ReportedPerson] = []
    feedback_id: str = ""
    timestamp: str = ""


class Complaint(msgspec.Struct, frozen=True, rename="camel"):
    complaint_feedback_type: str | None = None
    complained_recipients: list[ReportedPerson] = []
    feedback_id: str = ""
    timestamp: str = ""


class Delivery(msgspec.Struct, frozen=True, rename="camel"):
    timestamp: str = ""


class SesEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An event of a configuration set or a notification of an identity; they differ in the name of
    the type.
    """

    mail: ReportedMail = ReportedMail()
    event_type: str = ""
    notification_type: str = ""
    bounce: Bounce | None = None
    complaint: Complaint | None = None
    delivery: Delivery | None = None


def reporting() -> Reporting:
    certificates = Certificates()

    async def read(incoming: Incoming, context: ReportContext) -> Sequence[ProviderReport]:
        if incoming.parts:
            raise InvalidSignature
        topics = frozenset(
            topic
            for one in context.config.entities()
            if one.kind == SENDER and isinstance(one, Entity) and isinstance(one.body, Sender)
            for topic in one.body.report_topics
        )
        posted = await open_message(incoming.body, topics, certificates, context)
        if posted.type == "SubscriptionConfirmation":
            await confirm(posted, context)
        if posted.type != "Notification":
            return []
        report = report_of(posted.message)
        return [] if report is None else [report]

    return Reporting(PROVIDER, read)


def report_of(message: str) -> ProviderReport | None:
    """The report in a verified message; None when it is not about one of our requests, or of a kind
    that is not recorded.
    """
    try:
        content = msgspec.json.decode(message, type=SesEvent)
    except (msgspec.MsgspecError, RecursionError):
        # Valid but not JSON: greetings of SNS, and messages of other publishers on the topic.
        return None
    request_id = _request_id(content.mail)
    if request_id is None:
        return None
    provider_id, kind = (
        content.mail.message_id[:128],
        content.event_type or content.notification_type,
    )
    if kind == "Bounce" and content.bounce is not None:
        bounce = content.bounce
        permanent = bounce.bounce_type == "Permanent"
        reason = (
            "_".join(filter(None, (_word(bounce.bounce_type), _word(bounce.bounce_sub_type))))
            or "bounced"
        )
        name, at = (
            _name(bounce.feedback_id or f"{provider_id}/bounce/{bounce.timestamp}"),
            _moment(bounce.timestamp),
        )
        people = _people(bounce.bounced_recipients) if permanent else ()
        return ProviderReport(
            request_id, RecordReceipt("bounced", name, provider_id, reason, permanent, at), people
        )
    if kind == "Complaint" and content.complaint is not None:
        complaint = content.complaint
        if complaint.complaint_feedback_type == _NO_COMPLAINT:
            return None
        name, at = (
            _name(complaint.feedback_id or f"{provider_id}/complaint/{complaint.timestamp}"),
            _moment(complaint.timestamp),
        )
        reason = _word(complaint.complaint_feedback_type or "")
        return ProviderReport(
            request_id,
            RecordReceipt("complained", name, provider_id, reason, reported_at=at),
            _people(complaint.complained_recipients),
        )
    if kind == "Delivery" and content.delivery is not None:
        moment = content.delivery.timestamp
        return ProviderReport(
            request_id,
            RecordReceipt(
                "delivered",
                _name(f"{provider_id}/delivery/{moment}"),
                provider_id,
                reported_at=_moment(moment),
            ),
        )
    return None


def _request_id(mail: ReportedMail) -> str | None:
    tagged = mail.tags.get("outboxId", [])
    found = tagged or [
        header.value for header in mail.headers if header.name.lower() == "x-outbox-id"
    ]
    return found[0] if len(found) == 1 and REQUEST_ID.fullmatch(found[0]) else None


def _name(text: str) -> str:
    """The id of the report; a long one is replaced by its digest."""
    name = f"ses/{text}"
    if len(name) <= 100 and name.isascii() and name.isprintable():
        return name
    return f"ses/{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"


def _word(text: str) -> str:
    """Amazon's term as a reason: `NoEmail` → `noemail`. Bounded, because it goes into events and
    metrics.
    """
    return _WORD.sub("", text.lower())[:40]


def _moment(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _people(recipients: Sequence[ReportedPerson]) -> tuple[str, ...]:
    return tuple(one.email_address for one in recipients[:PEOPLE_MAX])
