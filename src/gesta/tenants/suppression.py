"""Suppression lists: addresses that get no more messages of a channel.

An entry is kept under a keyed digest of the address, so that it still works after an erasure and
reveals no address. It shows the reason, the time, the source and the masked address.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from gesta.domain.events import Actor
from gesta.errors import BadInput, NotFound
from gesta.flows.validation import actor_errors, tenant_errors
from gesta.runtime.clock import Runtime
from gesta.tenants.config import AddressSuppressed, AddressUnsuppressed
from gesta.tenants.config_writer import ConfigWriter
from gesta.tenants.flow_records import Records, TenantRecords

#: Records read for one page of a list: removed entries leave a trace.
LOOKED_AT_MAX = 1_000
REASON_LENGTH_MAX = 200
BY_HAND = "by hand"


@dataclass(frozen=True)
class Addresses:
    """The addresses of a channel. `kind` names its list among the tenant's records."""

    kind: str
    #: The canonical form of an address; None: it is not an address.
    normal: Callable[[str], str | None]
    mask: Callable[[str], str]


class Suppressed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry of the list. Times are epoch milliseconds."""

    reason: str
    at: int
    #: A person, or a provider's receipt.
    source: str = BY_HAND
    masked: str = ""


class Entry(msgspec.Struct, frozen=True):
    """An entry and its id, a digest that does not reveal the address."""

    id: str
    suppressed: Suppressed


async def suppressions(
    records: TenantRecords, channel: Addresses, addresses: Sequence[str]
) -> dict[str, Suppressed]:
    """The suppressed ones of these addresses, with one read of the vault."""
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
    """Suppress an address. An existing entry keeps its first reason."""
    check_reason(reason)
    name = name_of(channel, address)
    value = msgspec.json.encode(Suppressed(reason, at_ms, source, channel.mask(address)))
    record = await records.change(
        channel.kind, name, lambda standing: value if standing is None else None
    )
    assert record is not None
    assert record.value is not None
    return Entry(
        records.digest(channel.kind, name), msgspec.json.decode(record.value, type=Suppressed)
    )


async def unsuppress(records: TenantRecords, channel: Addresses, address: str) -> bool:
    """Remove an address. False: it was not on the list."""
    name = name_of(channel, address)
    record = await records.get(channel.kind, name)
    if record is None or record.value is None:
        return False
    await records.forget(channel.kind, name, upto=record.version)
    return True


async def unsuppress_entry(records: TenantRecords, channel: Addresses, entry_id: str) -> None:
    """Remove an entry by its id. Raises NotFound."""
    if not await records.forget_digest(channel.kind, entry_id):
        raise NotFound("suppressed address", entry_id)


async def entry_of(records: TenantRecords, channel: Addresses, address: str) -> Entry | None:
    found = (await suppressions(records, channel, [address])).get(address)
    return None if found is None else Entry(id_of(records, channel, address), found)


async def listed(
    records: TenantRecords, channel: Addresses, after: str, limit: int
) -> tuple[list[Entry], str | None]:
    """A page of the list by digest after `after`, and where the next one begins, if any."""
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
    """The id that the entry of an address has or would have."""
    return records.digest(channel.kind, name_of(channel, address))


def check_reason(reason: str) -> None:
    if (
        not isinstance(reason, str)
        or not 0 < len(reason) <= REASON_LENGTH_MAX
        or not reason.isprintable()
    ):
        raise BadInput(f"reason: 1 to {REASON_LENGTH_MAX} printable characters")


def name_of(channel: Addresses, address: str) -> str:
    """The canonical form of an address; raises BadInput, which does not repeat it."""
    found = channel.normal(address) if isinstance(address, str) else None
    if found is None:
        raise BadInput("address: not an address of this channel")
    return found


class SuppressionAudit:
    """Logs a change first, then makes it: a crash leaves at most one log entry too many."""

    def __init__(self, records: Records, writer: ConfigWriter, runtime: Runtime) -> None:
        self._records, self._writer, self._runtime = records, writer, runtime

    async def suppress(
        self,
        tenant: str,
        flow: str,
        channel: Addresses,
        address: str,
        reason: str,
        actor: Actor | None,
        source: str = BY_HAND,
    ) -> Entry:
        """Suppress an address. An existing entry keeps its first reason, and nothing is logged."""
        records = self._of(tenant, actor)
        check_reason(reason)
        standing = await entry_of(records, channel, address)
        if standing is not None:
            return standing
        # The reason may name the person, so it is not in the event, which is never deleted.
        note = AddressSuppressed(flow, id_of(records, channel, address))
        await self._writer.note(tenant, note, actor)
        return await suppress(records, channel, address, reason, self._runtime.now_ms(), source)

    async def unsuppress(
        self, tenant: str, flow: str, channel: Addresses, address: str, actor: Actor | None
    ) -> bool:
        records = self._of(tenant, actor)
        entry = await entry_of(records, channel, address)
        if entry is None:
            return False
        await self._note_unsuppressed(tenant, flow, entry.id, actor)
        return await unsuppress(records, channel, address)

    async def unsuppress_entry(
        self, tenant: str, flow: str, channel: Addresses, entry_id: str, actor: Actor | None
    ) -> None:
        records = self._of(tenant, actor)
        if await records.has_digest(channel.kind, entry_id):
            await self._note_unsuppressed(tenant, flow, entry_id, actor)
        await unsuppress_entry(records, channel, entry_id)

    async def _note_unsuppressed(
        self, tenant: str, flow: str, entry_id: str, actor: Actor | None
    ) -> None:
        await self._writer.note(tenant, AddressUnsuppressed(flow, entry_id), actor)

    def _of(self, tenant: str, actor: Actor | None) -> TenantRecords:
        """The tenant's records, after the arguments were validated."""
        if errors := actor_errors(actor) | tenant_errors(tenant):
            raise BadInput("; ".join(f"{name}: {error}" for name, error in errors.items()))
        return self._records.of(tenant)
