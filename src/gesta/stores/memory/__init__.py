"""Stores in memory: the reference for every other store, and the store of users' tests."""

from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime
from gesta.stores.memory.database import MemoryDatabase


async def open_stores(url: str, runtime: Runtime) -> Stores:  # noqa: ARG001
    """A new, empty database for every call. A MemoryDatabase can be opened twice."""
    return MemoryDatabase(runtime).stores()
