"""The stored forms of personal data.

A field of a payload is `{"$encrypted": "<base64>"}` of format, data subject, key version, nonce and
ciphertext. No payload may have that key in an object of its own. Encrypted fields are found by
what the JSON contains and not by the payload's type, which may have changed since.

A free text about a request is `gesta-enc1:<base64>`. It is encrypted under the keys of all data
subjects of the payload, one after the other, so that erasing any of them makes it unreadable.
"""

import base64
import re
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gesta.domain.outcome import ENCRYPTED_TEXT
from gesta.flows.personal_fields import Replace, decode_object, over_array, over_object
from gesta.security.envelope_encryption import NONCE_BYTES

#: In stored JSON these bytes are always a key of an object: inside a string the quotes would be
#: escaped.
MARK = b'"$encrypted":'
_HEAD, _TAIL = b'{"$encrypted":"', b'"}'
_FORMAT = b"\x01"
_SUBJECT_BYTES, _VERSION_BYTES = 16, 4
_NONCE_AT = 1 + _SUBJECT_BYTES + _VERSION_BYTES
_TEXT_AT = _NONCE_AT + NONCE_BYTES
ENCRYPTED_TEXTS = re.compile(rf"{ENCRYPTED_TEXT}([A-Za-z0-9+/]+=*)")
_SUBJECTS_MAX = 50


class EncryptedField(msgspec.Struct, frozen=True, gc=False):
    """The parts of an encrypted field that can be read without its key, and the ciphertext."""

    subject: bytes
    key_version: int
    nonce: bytes
    ciphertext: bytes


def encrypt(
    clear: bytes, context: bytes, subject: bytes, key_version: int, key: AESGCM, nonce: bytes
) -> bytes:
    """The JSON of an encrypted value. It can be decrypted with this key and context only."""
    box = (
        _FORMAT
        + subject
        + key_version.to_bytes(_VERSION_BYTES)
        + nonce
        + key.encrypt(nonce, clear, context)
    )
    return _HEAD + base64.b64encode(box) + _TAIL


def decrypt(field: EncryptedField, context: bytes, key: AESGCM) -> bytes:
    """The value's JSON. Raises ValueError when it was changed, or moved from another request."""
    try:
        return key.decrypt(field.nonce, field.ciphertext, context)
    except InvalidTag:
        raise ValueError("changed, or moved from another request or field") from None


def is_encrypted(raw: bytes) -> bool:
    return raw.startswith(_HEAD)


def encrypted_field(raw: bytes) -> EncryptedField:
    """The parts of an encrypted field; raises ValueError when its format is unknown."""
    box = base64.b64decode(raw[len(_HEAD) : -len(_TAIL)], validate=True)
    if len(box) < _TEXT_AT or box[:1] != _FORMAT or not raw.endswith(_TAIL):
        raise ValueError("written by a newer gesta, or changed")
    version = int.from_bytes(box[1 + _SUBJECT_BYTES : _NONCE_AT])
    return EncryptedField(
        box[1 : 1 + _SUBJECT_BYTES], version, box[_NONCE_AT:_TEXT_AT], box[_TEXT_AT:]
    )


def replace_encrypted(raw: bytes, by: Replace, path: str = "") -> bytes:
    """The JSON with every encrypted field replaced; parts without one are not decoded."""
    if MARK not in raw:
        return raw
    if is_encrypted(raw):
        return by(raw, path)
    if raw.startswith(b"["):
        return over_array(raw, path, lambda part, where: replace_encrypted(part, by, where))
    return over_object(raw, path, lambda _, part, where: replace_encrypted(part, by, where))


def forged(body: bytes) -> dict[str, str]:
    """Field → error for every field of a payload in clear that imitates an encrypted field."""
    parts = decode_object(body) if body.startswith(b"{") else {"payload": body}
    error = "an object in a payload may not have the key '$encrypted': it marks encrypted fields"
    found = {name: error for name, part in parts.items() if MARK in bytes(part)}
    return found or {"payload": error}


def context_of(tenant: str, flow: str, request_id: str, path: str) -> bytes:
    """Where an encrypted field belongs: it can be decrypted nowhere else."""
    return f"{tenant}|{flow}|{request_id}|{path}".encode()


class EncryptedText(msgspec.Struct, frozen=True, gc=False):
    #: (data subject, key version), in the order in which their keys were applied.
    subjects: tuple[tuple[bytes, int], ...]
    nonce: bytes
    ciphertext: bytes


def encrypt_text(
    clear: str, context: bytes, keys: Sequence[tuple[bytes, int, AESGCM]], nonce: bytes
) -> str:
    """The text under the keys of all of these data subjects; empty when they are too many."""
    if len(keys) > _SUBJECTS_MAX:
        return ""
    head, box = _FORMAT + bytes([len(keys)]), clear.encode()
    for subject, version, key in keys:
        head += subject + version.to_bytes(_VERSION_BYTES)
        box = key.encrypt(nonce, box, context)
    return ENCRYPTED_TEXT + base64.b64encode(head + nonce + box).decode()


def encrypted_text(body: str) -> EncryptedText:
    """The parts of a text without its prefix; raises ValueError for an unknown format."""
    box = base64.b64decode(body, validate=True)
    entry = _SUBJECT_BYTES + _VERSION_BYTES
    end = 2 + entry * (box[1] if len(box) > 1 else 0)
    if box[:1] != _FORMAT or len(box) < end + NONCE_BYTES:
        raise ValueError("written by a newer gesta, or changed")
    subjects = tuple(
        (
            box[at : at + _SUBJECT_BYTES],
            int.from_bytes(box[at + _SUBJECT_BYTES : at + entry]),
        )
        for at in range(2, end, entry)
    )
    return EncryptedText(subjects, box[end : end + NONCE_BYTES], box[end + NONCE_BYTES :])


def decrypt_text(text: EncryptedText, context: bytes, keys: Sequence[AESGCM]) -> str:
    """Raises ValueError when it was changed, or moved from another request."""
    box = text.ciphertext
    try:
        for key in reversed(keys):
            box = key.decrypt(text.nonce, box, context)
    except InvalidTag:
        raise ValueError("changed, or moved from another request") from None
    return box.decode()
