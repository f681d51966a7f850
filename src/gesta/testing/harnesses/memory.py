"""The memory stores under the contract suites.

The database object replaces the disk: it survives a restart.
"""

from pathlib import Path

from gesta.ports.stores import Stores
from gesta.stores.memory.database import MemoryDatabase
from gesta.testing.contracts import harness


class Harness(harness.Harness):
    """One memory database for one test."""

    capabilities = harness.EVERYTHING | {"eager_jobs"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = MemoryDatabase(self.runtime)

    async def open_ports(self) -> Stores:
        return self.database.stores()
