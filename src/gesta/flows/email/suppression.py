"""Addresses that get no more letters: the mailbox does not exist, or a person said no.

Kept as a keyed digest of the address, so that it holds after the person was erased, and gives nobody away.
"""

from __future__ import annotations

import msgspec

from gesta.errors import StoreError
from gesta.flows.email.addresses import normal
from gesta.records import TenantRecords

KIND = "email.suppressed"
TRIES = 5


class Suppressed(msgspec.Struct, frozen=True, rename="camel"):
    reason: str
    at: int


async def suppressions(records: TenantRecords, addresses: list[str]) -> dict[str, Suppressed]:
    """Those of the addresses that get no more letters, with one question to the vault."""
    found = await records.get_many([(KIND, _name(address)) for address in addresses])
    return {
        address: msgspec.json.decode(record.value, type=Suppressed)
        for address, record in zip(addresses, found, strict=True)
        if record is not None and record.value is not None
    }


async def suppress(records: TenantRecords, address: str, reason: str, at_ms: int) -> None:
    """No more letters to this address. One that is on the list stays there for its first reason."""
    for _ in range(TRIES):
        record = await records.get(KIND, _name(address))
        if record is not None and record.value is not None:
            return
        value = msgspec.json.encode(Suppressed(reason, at_ms))
        if await records.put(KIND, _name(address), 1 if record is None else record.version + 1, value):
            return
    raise StoreError(f"the suppression list changed {TRIES} times meanwhile; try again")


async def unsuppress(records: TenantRecords, address: str) -> bool:
    """Letters may go there again. False when it was not on the list."""
    record = await records.get(KIND, _name(address))
    if record is None or record.value is None:
        return False
    await records.forget(KIND, _name(address), upto=record.version)
    return True


def _name(address: str) -> str:
    # Hardly a mailbox tells capitals apart, and a person who said no means all spellings.
    return normal(address).lower()
