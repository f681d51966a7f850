"""A letter as bytes: MIME with a text and an HTML part.

The same letter gets the same Message-ID and the same parts at every attempt.
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
    """What a letter says; without HTML it is a text alone."""

    subject: str
    html: str
    text: str


class ComposedEmail(msgspec.Struct, frozen=True):
    """A letter ready to be handed in: its bytes and what it is known by."""

    message_id: str
    message: bytes

    def __repr__(self) -> str:
        return f"ComposedEmail({self.message_id})"


#: Headers that the library knows how to fold: by words and by addresses.
_FOLDED = frozenset({"from", "to", "cc", "reply-to", "subject", "content-type"})


class _Policy(EmailPolicy):
    """ASCII headers stay on one line: folded, a long URL in List-Unsubscribe would be taken apart
    into encoded words.
    """

    def fold(self, name: str, value: Any) -> str:
        line = f"{name}: {value}"
        if has_controls(str(value)):
            # The library reads encoded words (=?utf-8?q?=0D=0A?=) when a header is set: what was
            # one line may be two by now.
            raise ValueError("a header with control characters in it")
        if name.lower() not in _FOLDED and line.isascii() and len(line) <= _LINE_BYTES_MAX:
            return f"{line}\r\n"
        return str(super().fold(name, value))

    def fold_binary(self, name: str, value: Any) -> bytes:
        return self.fold(name, value).encode("ascii", "surrogateescape")


#: Seven bits: whatever a server can do, it takes that.
_POLICY = _Policy(linesep=SMTP.linesep, cte_type="7bit", max_line_length=78)


def message_id(key: str, from_address: str) -> str:
    """Without the angle brackets; the same for every attempt of an intent, so that a mailbox that
    looks at it shows the letter once.
    """
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
    """The letter.

    Raises ValueError when a header cannot be written: nothing of it would be safe to send.
    """
    letter = EmailMessage(_POLICY)
    known_as = message_id(key, from_address)
    letter["Message-ID"] = f"<{known_as}>"
    letter["Date"] = format_datetime(datetime.fromtimestamp(sent_at_ms / 1000, UTC))
    letter["From"] = Address(from_name, addr_spec=ascii_address(from_address))
    letter["To"] = Address(addr_spec=ascii_address(message.to))
    if cc:
        letter["Cc"] = [Address(addr_spec=ascii_address(address)) for address in cc]
    if message.reply_to is not None:
        letter["Reply-To"] = Address(addr_spec=ascii_address(message.reply_to))
    letter["Subject"] = content.subject
    # The request, for whoever has to find it in the provider's records.
    letter["X-Outbox-Id"] = outbox_id
    if message.tags:
        letter["X-Tags"] = ", ".join(message.tags)
    _unsubscribe(letter, message)
    for name, value in message.headers.items():
        letter[name] = value
    letter.set_content(content.text, subtype="plain", charset="utf-8")
    if content.html:
        letter.add_alternative(content.html, subtype="html", charset="utf-8")
        # A boundary of its own choice would be another one at every attempt.
        letter.set_boundary(f"=_{hashlib.sha256(known_as.encode()).hexdigest()[:40]}")
    return ComposedEmail(known_as, letter.as_bytes(policy=_POLICY))


def _unsubscribe(letter: EmailMessage, message: Message) -> None:
    """RFC 8058: one click, where the URL takes a POST. A caller's own headers go first."""
    given = {name.lower() for name in message.headers}
    if message.unsubscribe is None or "list-unsubscribe" in given:
        return
    letter["List-Unsubscribe"] = f"<{message.unsubscribe}>"
    if message.unsubscribe.startswith("https://") and "list-unsubscribe-post" not in given:
        letter["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
