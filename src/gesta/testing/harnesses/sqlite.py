"""The SQLite file under the contract suites."""

from gesta.ports.stores import Stores
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts import harness


class Harness(harness.Harness):
    """One file for one test."""

    capabilities = harness.EVERYTHING

    async def open_ports(self) -> Stores:
        return await open_stores(f"sqlite:///{self.folder / 'gesta.db'}", self.runtime)
