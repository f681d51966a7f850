"""The payload of an e-mail. Field names in JSON are those of the contract."""

import re
from typing import Any

import msgspec

from gesta.flows.flow import Payload, Personal, PersonalApart
from gesta.tenants.suppression import Addresses

HIDDEN = "***"
HASH_SHOWN = 8


def mask_email(address: str | None) -> str | None:
    """`user@example.com` → `u***@e***.com`: first characters and the last label.

    None stays None; what is no address is hidden whole.
    """
    if address is None:
        return None
    local, _, domain = address.strip().rpartition("@")
    host, _, last_label = domain.rpartition(".")
    if not local or not host or not last_label:
        return HIDDEN
    return f"{local[0]}{HIDDEN}@{host[0]}{HIDDEN}.{last_label.lower()}"


def mask_hash(digest: str | None) -> str | None:
    return None if digest is None else f"{digest[:HASH_SHOWN]}..."


ADDRESS_LENGTH_MAX = 254
NOT_AN_ADDRESS = f"must be a valid e-mail address of at most {ADDRESS_LENGTH_MAX} characters"


#: RFC 2047. Readers decode it, so it could bring forbidden characters into a header.
ENCODED_WORD = re.compile(r"=\?[^?]*\?[^?]?\?")


def has_controls(text: str) -> bool:
    """Whether it contains a line break, another control character or a lone surrogate, which
    headers must not have.
    """
    return any(
        ord(one) < 32
        or 127 <= ord(one) < 160
        or one in "\u2028\u2029"
        or 0xD800 <= ord(one) < 0xE000
        for one in text
    )


def normal(address: str) -> str:
    """Trimmed and with a lower-case domain: the form that is stored, compared, suppressed and
    erased.
    """
    local, at, domain = address.strip().rpartition("@")
    return f"{local}{at}{domain.lower()}"


def suppressed_name(address: str) -> str | None:
    """The form on the suppression list: lower case, because hardly a mailbox distinguishes case."""
    found = normal(address)
    return found.lower() if _ascii(found) is not None else None


def _masked(address: str) -> str:
    return mask_email(address) or ""


ADDRESSES = Addresses("email.suppressed", suppressed_name, _masked)


def address_error(address: object) -> str | None:
    """The error, without the address; None when e-mail can be sent there."""
    return None if _ascii(address) is not None else NOT_AN_ADDRESS


def ascii_address(address: str) -> str:
    """The form for SMTP: an international domain in ASCII. Raises ValueError for no address."""
    found = _ascii(address)
    if found is None:
        raise ValueError(NOT_AN_ADDRESS)
    return found


def _ascii(address: object) -> str | None:
    # The library belongs to the extra `email`.
    from email_validator import EmailNotValidError, validate_email

    if (
        not isinstance(address, str)
        or not 0 < len(address) <= ADDRESS_LENGTH_MAX
        or ENCODED_WORD.search(address)
    ):
        return None
    try:
        # Names before the @ in other scripts need a server with SMTPUTF8, which is not known before
        # sending.
        found = validate_email(address, check_deliverability=False, allow_smtputf8=False)
    except (EmailNotValidError, UnicodeError):
        return None
    return (
        found.ascii_email
        if found.ascii_email is not None and len(found.ascii_email) <= ADDRESS_LENGTH_MAX
        else None
    )


NAME = "notification.email"
DEFAULT = "default"
SUBJECT_LENGTH_MAX = 150


class Recipient(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """The recipient as the caller knows them, by at least one of `recipient_id`, `external_id` and
    `cpf_cnpj_hash`.
    """

    email: Personal[str]
    recipient_id: str | None = None
    external_id: Personal[str | None] = None
    #: 64 hexadecimal digits; see `document_hash`. The number itself is never accepted.
    cpf_cnpj_hash: Personal[str | None] = None
    razao_social: Personal[str | None] = None
    nome: Personal[str | None] = None

    def __post_init__(self) -> None:
        _tidy(self, "email", normal)
        _tidy(self, "recipient_id", str.lower)


class Message(Payload, frozen=True, rename="camel", omit_defaults=True):
    """One e-mail.

    Its content is inline (`html`, `text` or both), or made from `template` with `data`, or fetched
    by `html_ref`: exactly one of these.

    Personal fields are encrypted under the address in `to`, copies under their own address, so
    erasing an address erases what was sent to it.
    """

    to: Personal[str]
    #: Optional where the template has a subject.
    subject: Personal[str] = ""
    html_ref: str | None = None
    html: Personal[str | None] = None
    #: Without it the text part is derived from the HTML.
    text: Personal[str | None] = None
    template: str | None = None
    locale: str | None = None
    data: Personal[dict[str, Any]] = msgspec.field(default_factory=dict)
    cc: list[PersonalApart[str]] = msgspec.field(default_factory=list)
    bcc: list[PersonalApart[str]] = msgspec.field(default_factory=list)
    reply_to: Personal[str | None] = None
    headers: Personal[dict[str, str]] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)
    recipient: Recipient | None = None
    #: An https or mailto URL for the header List-Unsubscribe.
    unsubscribe: Personal[str | None] = None
    #: Code of an `email.sender`.
    sender: str = DEFAULT
    #: The caller's id (a UUID), which becomes the id of the request.
    outbox_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("to", "reply_to"):
            _tidy(self, name, normal)
        _tidy(self, "outbox_id", str.lower)
        seen = {self.to}
        for name in ("cc", "bcc"):
            _tidy_copies(self, name, seen)

    @property
    def about(self) -> str:
        return self.to


def _tidy(struct: msgspec.Struct, name: str, tidy: Any) -> None:
    """Constructors are not checked, so the value may be of any type; the rules report it."""
    given = getattr(struct, name)
    if isinstance(given, str):
        msgspec.structs.force_setattr(struct, name, tidy(given))


def _tidy_copies(message: Message, name: str, seen: set[str]) -> None:
    """Removes repeated addresses."""
    given = getattr(message, name)
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        return
    kept: list[str] = []
    for address in map(normal, given):
        if address not in seen:
            seen.add(address)
            kept.append(address)
    msgspec.structs.force_setattr(message, name, kept)


def is_subject(text: object) -> bool:
    """Whether a text may be a subject, also one that a template made."""
    if not isinstance(text, str) or not 0 < len(text) <= SUBJECT_LENGTH_MAX or not text.strip():
        return False
    return not has_controls(text) and ENCODED_WORD.search(text) is None
