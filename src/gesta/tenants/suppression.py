"""Addresses that get no more messages of a channel: the mailbox does not exist, or a person said
no.

Kept as a keyed digest of the address, so that it holds after the person was erased, and gives
nobody away. What can be read of an entry is
why, since when, by whose word, and a mask of the address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from gesta.errors import BadInput, NotFound, StoreError
from gesta.tenants.flow_records import TenantRecords

TRIES = 5
#: Records looked at for one page of a list: those that were taken off leave a trace.
LOOKED_AT_MAX = 1_000
REASON_LENGTH_MAX = 200
BY_HAND = "by hand"


@dataclass(frozen=True)
class Addresses:
    """How a channel reads addresses. `kind` names its list among the tenant's records."""

    kind: str
    #: The one form in which an address is known; None: it is none.
    normal: Callable[[str], str | None]
    mask: Callable[[str], str]


class Suppressed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry of the list. Times are epoch milliseconds."""

    reason: str
    at: int
    #: Who said so: a person, or a provider's report.
    source: str = BY_HAND
    masked: str = ""


class Entry(msgspec.Struct, frozen=True):
    """An entry and what it is called: a digest that leads back to no address."""

    id: str
    suppressed: Suppressed


async def suppressions(
    records: TenantRecords, channel: Addresses, addresses: Sequence[str]
) -> dict[str, Suppressed]:
    """Those of the addresses that get no more messages, with one question to the vault."""
    found = await records.get_many(
        [(channel.kind, name_of(channel, address)) for address in addresses]
    )
    return {
        address: msgspec.json.decode(record.value, type=Suppressed)
        for address, record in zip(addresses, found, strict=True)
        if record is not None and record.value is not None
    }


async def suppress(
    records: TenantRecords,
    channel: Addresses,
    address: str,
    reason: str,
    at_ms: int,
    source: str = BY_HAND,
) -> Entry:
    """No more messages to this address. One that is on the list stays there for its first
    reason.
    """
    check_reason(reason)
    name = name_of(channel, address)
    entry_id = records.digest(channel.kind, name)
    for _ in range(TRIES):
        record = await records.get(channel.kind, name)
        if record is not None and record.value is not None:
            return Entry(entry_id, msgspec.json.decode(record.value, type=Suppressed))
        entry = Suppressed(reason, at_ms, source, channel.mask(address))
        value = msgspec.json.encode(entry)
        if await records.put(
            channel.kind, name, 1 if record is None else record.version + 1, value
        ):
            return Entry(entry_id, entry)
    raise StoreError(f"the suppression list changed {TRIES} times meanwhile; try again")


async def unsuppress(records: TenantRecords, channel: Addresses, address: str) -> bool:
    """Messages may go there again. False when it was not on the list."""
    name = name_of(channel, address)
    record = await records.get(channel.kind, name)
    if record is None or record.value is None:
        return False
    await records.forget(channel.kind, name, upto=record.version)
    return True


async def unsuppress_entry(records: TenantRecords, channel: Addresses, entry_id: str) -> None:
    """The same by what the entry is called. Raises NotFound."""
    if not await records.forget_digest(channel.kind, entry_id):
        raise NotFound("suppressed address", entry_id)


async def entry_of(records: TenantRecords, channel: Addresses, address: str) -> Entry | None:
    """What the list has of an address; None: nothing."""
    found = (await suppressions(records, channel, [address])).get(address)
    return None if found is None else Entry(id_of(records, channel, address), found)


async def listed(
    records: TenantRecords, channel: Addresses, after: str, limit: int
) -> tuple[list[Entry], str | None]:
    """A page of the list in the order of digests from behind `after`, and where the next one
    begins; None: that was all.
    """
    found: list[Entry] = []
    looked = 0
    while looked < LOOKED_AT_MAX:
        page = await records.listed(channel.kind, after, limit - len(found))
        for digest, value in page:
            after = digest
            if value is not None:
                found.append(Entry(digest, msgspec.json.decode(value, type=Suppressed)))
        looked += len(page)
        if not page:
            return found, None
        if len(found) >= limit:
            break
    return found, after


def id_of(records: TenantRecords, channel: Addresses, address: str) -> str:
    """What the entry of an address is called, whether there is one or not."""
    return records.digest(channel.kind, name_of(channel, address))


def check_reason(reason: str) -> None:
    """Raise BadInput for what cannot stand on the list."""
    if (
        not isinstance(reason, str)
        or not 0 < len(reason) <= REASON_LENGTH_MAX
        or not reason.isprintable()
    ):
        raise BadInput(f"reason: 1 to {REASON_LENGTH_MAX} printable characters")


def name_of(channel: Addresses, address: str) -> str:
    """The form in which it is known; raises BadInput, which does not repeat it."""
    found = channel.normal(address) if isinstance(address, str) else None
    if found is None:
        raise BadInput("address: this channel cannot reach such an address")
    return found
