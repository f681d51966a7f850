"""What a program keeps for its e-mails beside sending them: bodies, the suppression list, hashes of
documents, what is known of recipients. All of it belongs to a tenant and lies encrypted in the
vault.

CPF and CNPJ are kept as a keyed hash. A plain SHA-256 of a CPF is no protection: there are 10^9
valid numbers, and a laptop tries them all in minutes. So the hash is an HMAC under a key of the
tenant; it stays 64 hexadecimal digits.

A recipient is known by what the tenant calls them: recipientId, then externalId, then cpfCnpjHash,
then the address (S2-28). A person is one record, encrypted under their address; each identifier is
a pointer to it. Every write is a compare-and-set, and a crash between two of them leaves a pointer
that the next e-mail completes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING

import msgspec

from gesta.domain.ids import TENANT, TENANT_RULE
from gesta.errors import BadInput, StoreError
from gesta.flows.email.bodies import BODY, BODY_BYTES_MAX, MissingBody, bounded, html_text
from gesta.flows.email.message import ADDRESSES, NAME, Message, Recipient, address_error, normal
from gesta.tenants import suppression
from gesta.tenants.flow_records import FlowRecord, TenantRecords
from gesta.tenants.suppression import Suppressed

if TYPE_CHECKING:
    from gesta.domain.events import Actor
    from gesta.engine.engine import Engine

_CPF = re.compile(r"[0-9]{11}")
#: Since 2026 the first twelve characters may be letters.
_CNPJ = re.compile(r"[0-9A-Z]{12}[0-9]{2}")
_PUNCTUATION = re.compile(r"[.\-/\s]")


class DocumentHash(msgspec.Struct, frozen=True):
    """Stands for a document. `key_id` is the tenant's key that it was made with."""

    hash: str
    key_id: int


def normal_document(text: str) -> str:
    """11 digits or 14 characters, without punctuation and in upper case.

    Raises BadInput, which does not repeat the number.
    """
    found = _PUNCTUATION.sub("", text).upper()
    # Other scripts have digits, too; the patterns are ASCII only.
    if not (_is_cpf(found) or _is_cnpj(found)):
        raise BadInput("not a CPF or CNPJ: 11 digits or 14 characters whose check digits are right")
    return found


def document_hash(document: str, key: bytes) -> str:
    """HMAC-SHA-256 of the normalised document: 64 hexadecimal digits."""
    return hmac.new(key, normal_document(document).encode(), hashlib.sha256).hexdigest()


def _is_cpf(text: str) -> bool:
    # Eleven equal digits pass the arithmetic, but are never assigned.
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


PERSON, POINTER = "email.recipient", "email.recipient-by"
TRIES = 10


class Person(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of a recipient."""

    recipient_id: str
    email: str
    external_id: str | None = None
    cpf_cnpj_hash: str | None = None
    razao_social: str | None = None
    nome: str | None = None


class OthersRecipient(Exception):
    """The recipientId belongs to another tenant."""


async def upsert(records: TenantRecords, message: Message) -> str:
    """The id of the recipient of an e-mail, created or updated. Raises OthersRecipient."""
    recipient = message.recipient or Recipient(message.to)
    for _ in range(TRIES):
        found = await _try(records, recipient)
        if found is not None:
            return found
    raise StoreError(f"a recipient changed {TRIES} times meanwhile; try again")


async def person(records: TenantRecords, recipient_id: str) -> Person | None:
    """None when nothing is known, or the person was erased."""
    return _person(await records.get(PERSON, recipient_id.lower()))


async def _try(records: TenantRecords, recipient: Recipient) -> str | None:
    """None when another process was writing: read again."""
    names = _names(recipient)
    pointers = await records.get_many([(POINTER, name) for name in names])
    known = [None if one is None or one.value is None else one.value.decode() for one in pointers]
    recipient_id = recipient.recipient_id or next((one for one in known if one is not None), None)
    if recipient_id is None:
        recipient_id = records.new_id()
    record = await records.get(PERSON, recipient_id)
    if record is None and not await records.claim(PERSON, recipient_id):
        raise OthersRecipient
    # The pointers first: a second worker with the same e-mail finds them and creates no duplicate.
    for name, pointer, leads_to in zip(names, pointers, known, strict=True):
        if leads_to is None:
            version = 1 if pointer is None else pointer.version + 1
            if not await records.put(
                POINTER, name, version, recipient_id.encode(), about=recipient.email
            ):
                return None
    return recipient_id if await _save(records, recipient_id, record, recipient) else None


async def _save(
    records: TenantRecords, recipient_id: str, record: FlowRecord | None, recipient: Recipient
) -> bool:
    before = _person(record)
    after = _merged(recipient_id, before, recipient)
    if after == before:
        return True
    version = 1 if record is None else record.version + 1
    if not await records.put(
        PERSON, recipient_id, version, msgspec.json.encode(after), about=recipient.email
    ):
        return False
    if record is not None:
        # What was known may be about a former address.
        await records.forget(PERSON, recipient_id, upto=record.version)
    return True


def _merged(recipient_id: str, before: Person | None, recipient: Recipient) -> Person:
    """New values replace known ones; absent values keep them."""
    fields = ("external_id", "cpf_cnpj_hash", "razao_social", "nome")
    kept = {
        name: getattr(recipient, name) or (None if before is None else getattr(before, name))
        for name in fields
    }
    return Person(recipient_id, recipient.email, **kept)


def _person(record: FlowRecord | None) -> Person | None:
    return (
        None
        if record is None or record.value is None
        else msgspec.json.decode(record.value, type=Person)
    )


def _names(recipient: Recipient) -> list[str]:
    """The pointers to a person, strongest first."""
    given = (
        ("externalId", recipient.external_id),
        ("cpfCnpjHash", recipient.cpf_cnpj_hash),
        ("email", recipient.email.lower()),
    )
    return [f"{kind}:{value}" for kind, value in given if value]


_DOCUMENT_KEY, _ONLY = "email.document-key", "cpfCnpj"
_KEY_BYTES = 32


async def store_body(
    engine: Engine, html: str, *, tenant: str = "default", about: str | None = None
) -> str:
    """Store the HTML of an e-mail and return its reference, `db:<uuid>`.

    `about` is the recipient's address: erasing it erases the body, too.
    """
    records = _records(engine, tenant)
    try:
        body = bounded(html.encode())
        html_text(body)
    except (MissingBody, UnicodeEncodeError):
        raise BadInput(
            f"html: a text of at most {BODY_BYTES_MAX} bytes, without NUL bytes and lone surrogates"
        ) from None
    name = records.new_id()
    if not await records.put(BODY, name, 1, body, about=None if about is None else normal(about)):
        raise StoreError("a new id was already taken; try again")
    return f"db:{name}"


async def drop_body(engine: Engine, ref: str, *, tenant: str = "default") -> None:
    """Delete a body. An e-mail that still needs it fails as `html_not_found`."""
    await _records(engine, tenant).forget(BODY, ref.removeprefix("db:").lower(), upto=1)


async def suppress(
    engine: Engine,
    address: str,
    *,
    reason: str = "by hand",
    tenant: str = "default",
    actor: Actor | None = None,
) -> None:
    """Suppress an address: it gets no e-mail until `unsuppress`, also after the person was erased.
    The audit log records it.
    """
    _check_address(address)
    await engine.pipeline.suppressing.suppress(tenant, NAME, ADDRESSES, address, reason, actor)


async def unsuppress(
    engine: Engine, address: str, *, tenant: str = "default", actor: Actor | None = None
) -> bool:
    """Remove an address from the suppression list, on record. False when it was not on it."""
    _check_address(address)
    return await engine.pipeline.suppressing.unsuppress(tenant, NAME, ADDRESSES, address, actor)


async def suppressed(engine: Engine, address: str, *, tenant: str = "default") -> Suppressed | None:
    """Why and since when an address is suppressed; None when it is not."""
    _check_address(address)
    return (await suppression.suppressions(_records(engine, tenant), ADDRESSES, [address])).get(
        address
    )


async def recipient(engine: Engine, recipient_id: str, *, tenant: str = "default") -> Person | None:
    """None when nothing is known, or the person was erased."""
    return await person(_records(engine, tenant), recipient_id)


async def hash_document(engine: Engine, document: str, *, tenant: str = "default") -> DocumentHash:
    """The hash of a CPF or CNPJ for `Recipient.cpf_cnpj_hash`, under the tenant's newest key.
    Raises BadInput.
    """
    normal_document(document)
    records = _records(engine, tenant)
    # The first process creates the key; the others find it.
    held = await records.change(
        _DOCUMENT_KEY,
        _ONLY,
        lambda key: records.random_bytes(_KEY_BYTES) if key is None else None,
    )
    assert held is not None
    assert held.value is not None
    return DocumentHash(document_hash(document, held.value), held.version)


async def document_hashes(
    engine: Engine, document: str, *, tenant: str = "default"
) -> list[DocumentHash]:
    """The same under every key of the tenant, newest first, to find what was written before a
    rotation.
    """
    newest = await hash_document(engine, document, tenant=tenant)
    records, found = _records(engine, tenant), [newest]
    for key_id in range(newest.key_id - 1, 0, -1):
        key = await records.version(_DOCUMENT_KEY, _ONLY, key_id)
        if key is not None:
            found.append(DocumentHash(document_hash(document, key), key_id))
    return found


async def rotate_document_key(engine: Engine, *, tenant: str = "default") -> int:
    """Create a new key for the tenant's documents and return its id. `document_hashes` still finds
    hashes under older keys.
    """
    records = _records(engine, tenant)
    held = await records.change(_DOCUMENT_KEY, _ONLY, lambda _: records.random_bytes(_KEY_BYTES))
    assert held is not None
    return held.version


def _records(engine: Engine, tenant: str) -> TenantRecords:
    if not TENANT.fullmatch(tenant):
        raise BadInput(f"tenant: {TENANT_RULE}")
    return engine.pipeline.records.of(tenant)


def _check_address(address: str) -> None:
    if error := address_error(normal(address)):
        raise BadInput(f"address: {error}")
