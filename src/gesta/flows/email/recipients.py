"""The people a tenant writes to, known by what the tenant calls them: recipientId, then externalId,
then cpfCnpjHash, then the address (S2-28).

A person is one record, sealed under their address; each identifier is a pointer to it. Every write
is a compare-and-set, and a crash
between two of them leaves a pointer that the next letter completes.
"""

from __future__ import annotations

import msgspec

from gesta.errors import StoreError
from gesta.flows.email.message import Message, Recipient
from gesta.tenants.flow_records import FlowRecord, TenantRecords

PERSON, POINTER = "email.recipient", "email.recipient-by"
TRIES = 10


class Person(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of somebody."""

    recipient_id: str
    email: str
    external_id: str | None = None
    cpf_cnpj_hash: str | None = None
    razao_social: str | None = None
    nome: str | None = None


class OthersRecipient(Exception):
    """The recipientId belongs to another tenant."""


async def upsert(records: TenantRecords, message: Message) -> str:
    """The id of the person the letter is for, who is made or brought up to date.

    Raises OthersRecipient.
    """
    told = message.recipient or Recipient(message.to)
    for _ in range(TRIES):
        found = await _try(records, told)
        if found is not None:
            return found
    raise StoreError(f"a recipient changed {TRIES} times meanwhile; try again")


async def person(records: TenantRecords, recipient_id: str) -> Person | None:
    """What is known of somebody; None when nothing is, or they were erased."""
    return _person(await records.get(PERSON, recipient_id.lower()))


async def _try(records: TenantRecords, told: Recipient) -> str | None:
    """None when somebody else was writing: look again."""
    names = _names(told)
    pointers = await records.get_many([(POINTER, name) for name in names])
    known = [None if one is None or one.value is None else one.value.decode() for one in pointers]
    recipient_id = told.recipient_id or next((one for one in known if one is not None), None)
    if recipient_id is None:
        recipient_id = records.new_id()
    record = await records.get(PERSON, recipient_id)
    if record is None and not await records.claim(PERSON, recipient_id):
        raise OthersRecipient
    # First the pointers: a second worker with the same letter then finds them, and makes nobody
    # twice.
    for name, pointer, leads_to in zip(names, pointers, known, strict=True):
        if leads_to is None:
            version = 1 if pointer is None else pointer.version + 1
            if not await records.put(
                POINTER, name, version, recipient_id.encode(), about=told.email
            ):
                return None
    return recipient_id if await _save(records, recipient_id, record, told) else None


async def _save(
    records: TenantRecords, recipient_id: str, record: FlowRecord | None, told: Recipient
) -> bool:
    before = _person(record)
    after = _merged(recipient_id, before, told)
    if after == before:
        return True
    version = 1 if record is None else record.version + 1
    if not await records.put(
        PERSON, recipient_id, version, msgspec.json.encode(after), about=told.email
    ):
        return False
    if record is not None:
        # What was known before may be about an address that is not theirs any more.
        await records.forget(PERSON, recipient_id, upto=record.version)
    return True


def _merged(recipient_id: str, before: Person | None, told: Recipient) -> Person:
    """What is told now counts; what is not told stays."""
    fields = ("external_id", "cpf_cnpj_hash", "razao_social", "nome")
    kept = {
        name: getattr(told, name) or (None if before is None else getattr(before, name))
        for name in fields
    }
    return Person(recipient_id, told.email, **kept)


def _person(record: FlowRecord | None) -> Person | None:
    return (
        None
        if record is None or record.value is None
        else msgspec.json.decode(record.value, type=Person)
    )


def _names(told: Recipient) -> list[str]:
    """The pointers of somebody, the strongest first."""
    given = (
        ("externalId", told.external_id),
        ("cpfCnpjHash", told.cpf_cnpj_hash),
        ("email", told.email.lower()),
    )
    return [f"{kind}:{value}" for kind, value in given if value]
