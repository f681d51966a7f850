"""Events in KurrentDB, beside a store that has everything else."""

from gesta.ports.stores import EventPorts
from gesta.runtime.clock import Runtime
from gesta.stores.kurrentdb import fences as fences_module
from gesta.stores.kurrentdb.connection import Address, Connection, address_of
from gesta.stores.kurrentdb.event_store import KurrentDBEventStore
from gesta.stores.kurrentdb.fences import KurrentDBFences

__all__ = ["open_events", "open_events_at"]


async def open_events(url: str, runtime: Runtime) -> EventPorts:
    """Connect to the server or cluster that `kurrentdb://user:password@host:2113` names."""
    return await open_events_at(
        address_of(url), runtime, settle_seconds=fences_module.SETTLE_SECONDS
    )


async def open_events_at(
    address: Address, runtime: Runtime, *, settle_seconds: float
) -> EventPorts:
    """As `open_events`. `settle_seconds`: how long a new fence waits for other processes."""
    connection = Connection(address)
    fences = KurrentDBFences(connection, runtime, settle_seconds=settle_seconds)
    events = KurrentDBEventStore(connection, runtime, fences)
    try:
        await fences.standing()
    except BaseException:
        await events.close()
        raise
    return EventPorts(
        events=events,
        key_claims=events,
        event_removal=events,
        fences=fences,
        close=events.close,
        name=address.name,
    )
