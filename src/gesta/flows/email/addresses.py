"""E-mail addresses: which are taken, and in which form they are compared and sent."""

from __future__ import annotations

import re

from gesta.flows.email.masks import mask_email
from gesta.tenants.suppression import Addresses

ADDRESS_LENGTH_MAX = 254
NOT_AN_ADDRESS = f"must be a valid e-mail address of at most {ADDRESS_LENGTH_MAX} characters"


#: RFC 2047. Whoever reads a header decodes it, so that it can bring in what a header must not have.
ENCODED_WORD = re.compile(r"=\?[^?]*\?[^?]?\?")


def has_controls(text: str) -> bool:
    """Whether it has a line break, another control character, or half a character: none of them
    belongs into a header.
    """
    return any(
        ord(one) < 32
        or 127 <= ord(one) < 160
        or one in "\u2028\u2029"
        or 0xD800 <= ord(one) < 0xE000
        for one in text
    )


def normal(address: str) -> str:
    """Without blanks around it and with its domain in lower case: what is stored, compared,
    suppressed and erased.
    """
    local, at, domain = address.strip().rpartition("@")
    return f"{local}{at}{domain.lower()}"


def suppressed_name(address: str) -> str | None:
    """The form in which it is kept on the suppression list: hardly a mailbox tells capitals apart,
    and who said no means all spellings.
    """
    found = normal(address)
    return found.lower() if _ascii(found) is not None else None


def _masked(address: str) -> str:
    return mask_email(address) or ""


ADDRESSES = Addresses("email.suppressed", suppressed_name, _masked)


def address_fault(address: object) -> str | None:
    """What is wrong with it; None when a letter can be sent there. Nothing of the address is
    told.
    """
    return None if _ascii(address) is not None else NOT_AN_ADDRESS


def ascii_address(address: str) -> str:
    """The form that SMTP takes: an international domain in its ASCII spelling.

    Raises ValueError when it is no address.
    """
    found = _ascii(address)
    if found is None:
        raise ValueError(NOT_AN_ADDRESS)
    return found


def _ascii(address: object) -> str | None:
    # Here, because the library belongs to the extra `email`.
    from email_validator import EmailNotValidError, validate_email

    if (
        not isinstance(address, str)
        or not 0 < len(address) <= ADDRESS_LENGTH_MAX
        or ENCODED_WORD.search(address)
    ):
        return None
    try:
        # Names before the @ in other scripts need a server that speaks SMTPUTF8, and a sender
        # cannot know that before it sends.
        found = validate_email(address, check_deliverability=False, allow_smtputf8=False)
    except (EmailNotValidError, UnicodeError):
        return None
    return (
        found.ascii_email
        if found.ascii_email is not None and len(found.ascii_email) <= ADDRESS_LENGTH_MAX
        else None
    )
