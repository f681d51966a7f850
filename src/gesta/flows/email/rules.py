"""Validation of an e-mail (V1 to V7 with S2-16 to S2-25), before the request is accepted and again
before it is sent.

Errors never quote the input, because they go into answers, logs and dead letters.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from gesta.flows.email.bodies import BODY_BYTES_MAX, ref_error
from gesta.flows.email.message import (
    ENCODED_WORD,
    SUBJECT_LENGTH_MAX,
    Message,
    Recipient,
    address_error,
    has_controls,
    is_subject,
)

#: V6 and V7, word for word.
RECIPIENT_EMAIL = "recipient.email must match to"
RECIPIENT_IDENTIFIER = "At least one recipient identifier required"

COPIES_MAX = 5
TAGS_MAX = 5
HEADERS_MAX = 20
#: RFC 5322: a line has at most 998 bytes.
HEADER_BYTES_MAX = 998
CODE_LENGTH_MAX = 100
NOT_A_UUID = "must be a UUID"

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HASH = re.compile(r"[a-f0-9]{64}")
_TAG = re.compile(r"[A-Za-z0-9_-]{1,50}")
_X_HEADER = re.compile(r"x-[a-z0-9-]{1,70}")
#: Headers that a caller may set beside X-…. All others belong to the sender, such as From, Bcc and
#: DKIM.
_ALLOWED_HEADERS = frozenset(
    {"list-unsubscribe", "list-unsubscribe-post", "references", "in-reply-to"}
)
#: Set by gesta, or an instruction to the provider that could override the sender's configuration.
_OWN_HEADERS = re.compile(r"x-(outbox-id|tags|ses-.*|amz-.*)")
#: Maximum lengths of names and of ids of the caller (C-8).
_LENGTHS = {"external_id": 64, "nome": 120, "razao_social": 150}
_SEED_NAMES = {"external_id": "externalId", "nome": "nome", "razao_social": "razaoSocial"}


def errors_of(message: Message) -> dict[str, str]:
    """Field → error, all at once; empty when the e-mail may be sent."""
    errors: dict[str, str] = {}
    if error := address_error(message.to):
        errors["to"] = error
    for name in ("cc", "bcc"):
        errors |= _copies(name, getattr(message, name))
    if message.reply_to is not None and (error := address_error(message.reply_to)):
        errors["replyTo"] = error
    if not is_subject(message.subject) and not (
        message.subject == "" and message.template is not None
    ):
        errors["subject"] = (
            f"1 to {SUBJECT_LENGTH_MAX} characters, not blank, without line breaks, other control"
            " characters or encoded words"
        )
    if message.outbox_id is not None and not _is_uuid(message.outbox_id):
        errors["outboxId"] = NOT_A_UUID
    if not 0 < len(message.sender) <= CODE_LENGTH_MAX:
        errors["sender"] = f"1 to {CODE_LENGTH_MAX} characters"
    errors |= _content(message) | _headers(message.headers) | _tags(message.tags)
    if message.unsubscribe is not None and not _is_unsubscribe(message.unsubscribe):
        errors["unsubscribe"] = "an https:// or mailto: URL of ASCII characters"
    if message.recipient is not None:
        errors |= recipient_errors(message.recipient, message.to)
    return errors


def recipient_errors(recipient: Recipient, to: str) -> dict[str, str]:
    errors: dict[str, str] = {}
    if recipient.email != to:
        errors["recipient.email"] = RECIPIENT_EMAIL
    if not (recipient.recipient_id or recipient.external_id or recipient.cpf_cnpj_hash):
        errors["recipient"] = RECIPIENT_IDENTIFIER
    if recipient.recipient_id is not None and not _is_uuid(recipient.recipient_id):
        errors["recipient.recipientId"] = NOT_A_UUID
    if recipient.cpf_cnpj_hash is not None and not _HASH.fullmatch(recipient.cpf_cnpj_hash):
        errors["recipient.cpfCnpjHash"] = (
            "must be 64 hexadecimal digits in lower case; gesta never accepts the number itself"
        )
    for name, longest in _LENGTHS.items():
        text = getattr(recipient, name)
        if text is not None and (not 0 < len(text) <= longest or has_controls(text)):
            errors[f"recipient.{_SEED_NAMES[name]}"] = (
                f"1 to {longest} characters without control characters"
            )
    return errors


def _is_uuid(text: str) -> bool:
    return UUID.fullmatch(text) is not None


def _copies(name: str, addresses: list[str]) -> dict[str, str]:
    if len(addresses) > COPIES_MAX:
        return {name: f"at most {COPIES_MAX} addresses"}
    return {
        f"{name}[{n}]": error
        for n, address in enumerate(addresses)
        if (error := address_error(address))
    }


def _content(message: Message) -> dict[str, str]:
    """Exactly one of inline content, template and htmlRef."""
    inline = {
        name: text for name in ("html", "text") if (text := getattr(message, name)) is not None
    }
    if not inline and message.template is None and message.html_ref is None:
        return {"html": "missing: an e-mail needs html or text, a template or an htmlRef"}
    errors: dict[str, str] = {}
    if message.template is not None:
        errors |= dict.fromkeys(
            inline, "comes from the template: give either this field or the template"
        )
        if not 0 < len(message.template) <= CODE_LENGTH_MAX:
            errors["template"] = f"1 to {CODE_LENGTH_MAX} characters"
    elif message.data or message.locale:
        errors["data" if message.data else "locale"] = "only used with a template"
    if message.html_ref is not None:
        if inline or message.template is not None:
            errors["htmlRef"] = "give exactly one of html and text, template and htmlRef"
        elif error := ref_error(message.html_ref):
            errors["htmlRef"] = error
    for name, text in inline.items():
        if not text.strip() or "\0" in text or len(text.encode(errors="replace")) > BODY_BYTES_MAX:
            errors.setdefault(name, f"1 to {BODY_BYTES_MAX} bytes, not blank, without NUL")
    return errors


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    if len(headers) > HEADERS_MAX:
        return {"headers": f"at most {HEADERS_MAX}"}
    errors: dict[str, str] = {}
    seen: set[str] = set()
    for number, (name, value) in enumerate(headers.items()):
        plain = name.lower()
        # The index, because the name may contain anything.
        where = f"headers[{number}]"
        if plain not in _ALLOWED_HEADERS and (
            not _X_HEADER.fullmatch(plain) or _OWN_HEADERS.fullmatch(plain)
        ):
            errors[where] = (
                "only X-… (not X-Outbox-Id, X-Tags, X-SES-…), List-Unsubscribe,"
                " List-Unsubscribe-Post, References and In-Reply-To may be set"
            )
        elif plain in seen:
            errors[where] = "named twice"
        elif not value.strip() or has_controls(value) or ENCODED_WORD.search(value) is not None:
            errors[where] = (
                "a value without line breaks, other control characters or encoded words (=?…?=)"
            )
        elif not (value.isascii() or plain.startswith("x-")):
            errors[where] = "in ASCII, unless the header is X-…"
        elif len(f"{name}: {value}".encode()) > HEADER_BYTES_MAX:
            errors[where] = f"at most {HEADER_BYTES_MAX} bytes with its name"
        seen.add(plain)
    return errors


def _tags(tags: list[str]) -> dict[str, str]:
    if len(tags) > TAGS_MAX:
        return {"tags": f"at most {TAGS_MAX}"}
    return {
        f"tags[{n}]": "1 to 50 of A-Z a-z 0-9 _ -"
        for n, tag in enumerate(tags)
        if not _TAG.fullmatch(tag)
    }


def _is_unsubscribe(url: str) -> bool:
    if (
        not url.isascii()
        or has_controls(url)
        or ENCODED_WORD.search(url) is not None
        or len(url) > HEADER_BYTES_MAX - 20
        or any(one in url for one in " <>,")
    ):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (parts.scheme == "https" and bool(parts.netloc)) or (
        parts.scheme == "mailto" and "@" in parts.path
    )
