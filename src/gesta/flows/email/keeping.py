"""What a program keeps for its letters beside sending them: bodies, the suppression list, hashes of
documents, what is known of recipients.

All of it belongs to a tenant and lies sealed in the vault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gesta.domain.ids import TENANT, TENANT_RULE
from gesta.errors import BadInput, StoreError
from gesta.flows.email import recipients
from gesta.flows.email.addresses import ADDRESSES, address_fault, normal
from gesta.flows.email.contract import NAME
from gesta.flows.email.documents import DocumentHash, document_hash, normal_document
from gesta.flows.email.html_refs import BODY_BYTES_MAX, NoBody, bounded, html_text
from gesta.flows.email.recipients import Person
from gesta.tenants import suppression
from gesta.tenants.flow_records import TenantRecords
from gesta.tenants.suppression import Suppressed

if TYPE_CHECKING:
    from gesta.domain.events import Actor
    from gesta.engine.engine import Engine

BODY = "email.body"
_DOCUMENT_KEY, _ONLY = "email.document-key", "cpfCnpj"
_KEY_BYTES = 32


async def store_body(
    engine: Engine, html: str, *, tenant: str = "default", about: str | None = None
) -> str:
    """Keep the HTML of a letter: its reference, `db:<uuid>`.

    `about` is the address it is for: erasing that erases the body, too.
    """
    records = _records(engine, tenant)
    try:
        body = bounded(html.encode())
        html_text(body)
    except (NoBody, UnicodeEncodeError):
        raise BadInput(
            f"html: a text of at most {BODY_BYTES_MAX} bytes, without zero bytes and half"
            " characters"
        ) from None
    name = records.new_id()
    if not await records.put(BODY, name, 1, body, about=None if about is None else normal(about)):
        raise StoreError("a new id was taken; try again")
    return f"db:{name}"


async def drop_body(engine: Engine, ref: str, *, tenant: str = "default") -> None:
    """Destroy a body. A letter that still needs it fails as `html_not_found`."""
    await _records(engine, tenant).forget(BODY, ref.removeprefix("db:").lower(), upto=1)


async def suppress(
    engine: Engine,
    address: str,
    *,
    reason: str = "by hand",
    tenant: str = "default",
    actor: Actor | None = None,
) -> None:
    """No more letters to this address: it holds until `unsuppress`, also after the person was
    erased.

    It is on record with who decided.
    """
    _check_address(address)
    await engine.pipeline.suppressing.suppress(tenant, NAME, ADDRESSES, address, reason, actor)


async def unsuppress(
    engine: Engine, address: str, *, tenant: str = "default", actor: Actor | None = None
) -> bool:
    """Letters may go there again, which is on record, too. False when it was not on the list."""
    _check_address(address)
    return await engine.pipeline.suppressing.unsuppress(tenant, NAME, ADDRESSES, address, actor)


async def suppressed(engine: Engine, address: str, *, tenant: str = "default") -> Suppressed | None:
    """Why and since when an address gets no letters; None when it does."""
    _check_address(address)
    return (await suppression.suppressions(_records(engine, tenant), ADDRESSES, [address])).get(
        address
    )


async def recipient(engine: Engine, recipient_id: str, *, tenant: str = "default") -> Person | None:
    """What is known of a recipient; None when nothing is, or they were erased."""
    return await recipients.person(_records(engine, tenant), recipient_id)


async def hash_document(engine: Engine, document: str, *, tenant: str = "default") -> DocumentHash:
    """What stands for a CPF or CNPJ in `Recipient.cpf_cnpj_hash`, under the tenant's newest key.

    Raises BadInput.
    """
    normal_document(document)
    records = _records(engine, tenant)
    # The first process that asks makes the key; the others find it.
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
    """The same under every key that the tenant ever had, newest first: to find what was written
    before a rotation.
    """
    newest = await hash_document(engine, document, tenant=tenant)
    records, found = _records(engine, tenant), [newest]
    for key_id in range(newest.key_id - 1, 0, -1):
        key = await records.version(_DOCUMENT_KEY, _ONLY, key_id)
        if key is not None:
            found.append(DocumentHash(document_hash(document, key), key_id))
    return found


async def rotate_document_key(engine: Engine, *, tenant: str = "default") -> int:
    """Make a new key for the tenant's documents: its id.

    Hashes under the old ones are still found by `document_hashes`.
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
    if fault := address_fault(normal(address)):
        raise BadInput(f"address: {fault}")
