"""What people decide about suppression lists: on record with who decided, and then on the list.

What providers' reports and answers put there is not noted here: the events of the request that they
are about say it.
"""

from __future__ import annotations

from gesta.domain.events import Actor
from gesta.errors import BadInput
from gesta.flows.validation import actor_errors, tenant_errors
from gesta.runtime.clock import Runtime
from gesta.tenants import suppression
from gesta.tenants.config import AddressSuppressed, AddressUnsuppressed
from gesta.tenants.config_writer import ConfigWriter
from gesta.tenants.flow_records import Records, TenantRecords
from gesta.tenants.suppression import BY_HAND, Addresses, Entry


class SuppressionAudit:
    """First the note, then the list: a crash in between leaves a note too many, and never an entry
    that nobody has put on or taken off.
    """

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
        """Put an address on the list.

        One that is there stays for its first reason, and nothing is noted.
        """
        records = self._of(tenant, actor)
        suppression.check_reason(reason)
        standing = await suppression.entry_of(records, channel, address)
        if standing is not None:
            return standing
        # The reason stays off the record, which is for ever: it may name the person.
        note = AddressSuppressed(flow, suppression.id_of(records, channel, address))
        await self._writer.note(tenant, note, actor)
        return await suppression.suppress(
            records, channel, address, reason, self._runtime.now_ms(), source
        )

    async def unsuppress(
        self, tenant: str, flow: str, channel: Addresses, address: str, actor: Actor | None
    ) -> bool:
        """Take an address off the list. False when it was not there."""
        records = self._of(tenant, actor)
        entry = await suppression.entry_of(records, channel, address)
        if entry is None:
            return False
        await self._note_unsuppressed(tenant, flow, entry.id, actor)
        return await suppression.unsuppress(records, channel, address)

    async def unsuppress_entry(
        self, tenant: str, flow: str, channel: Addresses, entry_id: str, actor: Actor | None
    ) -> None:
        """The same by the id that the list shows. Raises NotFound."""
        records = self._of(tenant, actor)
        if await records.has_digest(channel.kind, entry_id):
            await self._note_unsuppressed(tenant, flow, entry_id, actor)
        await suppression.unsuppress_entry(records, channel, entry_id)

    async def _note_unsuppressed(
        self, tenant: str, flow: str, entry_id: str, actor: Actor | None
    ) -> None:
        await self._writer.note(tenant, AddressUnsuppressed(flow, entry_id), actor)

    def _of(self, tenant: str, actor: Actor | None) -> TenantRecords:
        """The tenant's records, for somebody whose name may stand on the record."""
        if faults := actor_errors(actor) | tenant_errors(tenant):
            raise BadInput("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        return self._records.of(tenant)
