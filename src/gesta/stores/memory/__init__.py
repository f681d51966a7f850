"""Stores that live in this process only: the reference for every other store, and the double for
users' tests.
"""

from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime
from gesta.stores.memory.database import MemoryDatabase


async def open_stores(url: str, runtime: Runtime) -> Stores:  # noqa: ARG001
    """A new, empty database, whatever follows `memory:`.

    Keep a MemoryDatabase to open the same one twice.
    """
    return MemoryDatabase(runtime).stores()
