"""What the store knows of its own condition.

That it answers is the most of it; disks are the server's.
"""

from __future__ import annotations

from gesta.ports.stores import Health
from gesta.stores.postgresql.database import Database


async def health_of(database: Database) -> Health:
    ((number, _),) = await database.ask("schema_version")
    ((size,),) = await database.ask("schema_size", database.address.schema)
    return Health(
        schema=number, faults=(), is_whole=True, size=size, log_size=0, free=None, open_to_others=()
    )
