"""CPF and CNPJ: one spelling, check digits, and a keyed hash in place of the number.

A plain SHA-256 of a CPF is no protection: there are 10^9 valid numbers, and a laptop tries them all
in minutes. So the hash is an
HMAC under a key of the tenant, which is kept in the vault; the hash stays 64 hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import hmac
import re

import msgspec

from gesta.errors import BadInput

_CPF = re.compile(r"[0-9]{11}")
#: Since 2026 the first twelve places may be letters.
_CNPJ = re.compile(r"[0-9A-Z]{12}[0-9]{2}")
_PUNCTUATION = re.compile(r"[.\-/\s]")
HASH = re.compile(r"[a-f0-9]{64}")


class DocumentHash(msgspec.Struct, frozen=True):
    """What stands for a document. `key_id` tells under which of the tenant's keys it was made."""

    hash: str
    key_id: int


def normal_document(text: str) -> str:
    """11 digits or 14 characters, without punctuation and in upper case.

    Raises BadInput, which does not repeat the number.
    """
    found = _PUNCTUATION.sub("", text).upper()
    # Other scripts have digits, too, and upper case may be two letters; the patterns are ASCII
    # only.
    if not (_is_cpf(found) or _is_cnpj(found)):
        raise BadInput("not a CPF or CNPJ: 11 digits or 14 characters whose check digits are right")
    return found


def document_hash(document: str, key: bytes) -> str:
    """HMAC-SHA-256 of the document in its one spelling: 64 hexadecimal digits."""
    return hmac.new(key, normal_document(document).encode(), hashlib.sha256).hexdigest()


def _is_cpf(text: str) -> bool:
    # Eleven equal digits pass the arithmetic and belong to nobody.
    return (
        _CPF.fullmatch(text) is not None
        and len(set(text)) > 1
        and text[9:] == _check_digits(text[:9], longest=11)
    )


def _is_cnpj(text: str) -> bool:
    return (
        _CNPJ.fullmatch(text) is not None
        and len(set(text)) > 1
        and text[12:] == _check_digits(text[:12], longest=9)
    )


def _check_digits(stem: str, longest: int) -> str:
    """Both check digits: weights 2 to `longest` from the right, again and again; a letter counts as
    its code less that of '0'.
    """
    found = ""
    for _ in range(2):
        values = [ord(character) - ord("0") for character in reversed(stem + found)]
        cycle = longest - 1
        rest = sum(value * (2 + place % cycle) for place, value in enumerate(values)) % 11
        found += str(0 if rest < 2 else 11 - rest)
    return found
