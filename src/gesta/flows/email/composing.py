"""Composes an e-mail: MIME with a text and an HTML part.

An e-mail has the same Message-ID and parts at every attempt.
"""

import hashlib
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, EmailPolicy
from email.utils import format_datetime
from typing import Any

import msgspec

from gesta.flows.email.message import Message, ascii_address, has_controls

#: RFC 5322, CRLF not counted.
_LINE_BYTES_MAX = 998


class EmailContent(msgspec.Struct, frozen=True):
    """Without HTML it is text only."""

    subject: str
    html: str
    text: str


class ComposedEmail(msgspec.Struct, frozen=True):
    """A complete e-mail and its Message-ID."""

    message_id: str
    message: bytes

    def __repr__(self) -> str:
        return f"ComposedEmail({self.message_id})"


#: Headers that the library folds correctly.
_FOLDED = frozenset({"from", "to", "cc", "reply-to", "subject", "content-type"})


class _Policy(EmailPolicy):
    """Keeps ASCII headers on one line: folded, a long URL in List-Unsubscribe would be split into
    encoded words.
    """

    def fold(self, name: str, value: Any) -> str:
        line = f"{name}: {value}"
        if has_controls(str(value)):
            # The library decodes encoded words (=?utf-8?q?=0D=0A?=) when a header is set, so one
            # line may have become two.
            raise ValueError("a header with control characters in it")
        if name.lower() not in _FOLDED and line.isascii() and len(line) <= _LINE_BYTES_MAX:
            return f"{line}\r\n"
        return str(super().fold(name, value))

    def fold_binary(self, name: str, value: Any) -> bytes:
        return self.fold(name, value).encode("ascii", "surrogateescape")


#: 7 bit, which every server accepts.
_POLICY = _Policy(linesep=SMTP.linesep, cte_type="7bit", max_line_length=78)


def message_id(key: str, from_address: str) -> str:
    """Without angle brackets; the same for every attempt of an intent."""
    domain = ascii_address(from_address).rpartition("@")[2]
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}"


def compose(
    message: Message,
    content: EmailContent,
    *,
    key: str,
    outbox_id: str,
    from_address: str,
    from_name: str,
    cc: list[str],
    sent_at_ms: int,
) -> ComposedEmail:
    """Raises ValueError when a header cannot be written safely."""
    email = EmailMessage(_POLICY)
    known_as = message_id(key, from_address)
    email["Message-ID"] = f"<{known_as}>"
    email["Date"] = format_datetime(datetime.fromtimestamp(sent_at_ms / 1000, UTC))
    email["From"] = Address(from_name, addr_spec=ascii_address(from_address))
    email["To"] = Address(addr_spec=ascii_address(message.to))
    if cc:
        email["Cc"] = [Address(addr_spec=ascii_address(address)) for address in cc]
    if message.reply_to is not None:
        email["Reply-To"] = Address(addr_spec=ascii_address(message.reply_to))
    email["Subject"] = content.subject
    # To find the request from the provider's records.
    email["X-Outbox-Id"] = outbox_id
    if message.tags:
        email["X-Tags"] = ", ".join(message.tags)
    _unsubscribe(email, message)
    for name, value in message.headers.items():
        email[name] = value
    email.set_content(content.text, subtype="plain", charset="utf-8")
    if content.html:
        email.add_alternative(content.html, subtype="html", charset="utf-8")
        # A generated boundary would differ at every attempt.
        email.set_boundary(f"=_{hashlib.sha256(known_as.encode()).hexdigest()[:40]}")
    return ComposedEmail(known_as, email.as_bytes(policy=_POLICY))


def _unsubscribe(email: EmailMessage, message: Message) -> None:
    """RFC 8058: one click, where the URL is https. The caller's own headers take precedence."""
    given = {name.lower() for name in message.headers}
    if message.unsubscribe is None or "list-unsubscribe" in given:
        return
    email["List-Unsubscribe"] = f"<{message.unsubscribe}>"
    if message.unsubscribe.startswith("https://") and "list-unsubscribe-post" not in given:
        email["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
