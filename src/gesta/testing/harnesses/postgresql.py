"""A schema of a real PostgreSQL server under the contract suites.

The server is started once per test process and ends with it.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from gesta.ports.stores import Stores
from gesta.runtime.clock import SystemRuntime
from gesta.stores.postgresql import open_at
from gesta.stores.postgresql.address import Address, address_of
from gesta.stores.postgresql.connections import Connections, connect, end
from gesta.stores.postgresql.statements import Statements
from gesta.testing.contracts import harness
from gesta.testing.postgres_server import PostgresServer
from gesta.testing.server_process import Shared


class SharedServer(Shared):
    """It syncs nothing to disk, because its data is only for tests."""

    make = partial(PostgresServer, durable=False)


class Harness(harness.Harness):
    """One schema for one test: that of an earlier test, emptied, which takes a tenth of the time
    that making one does.
    """

    capabilities = harness.EVERYTHING
    #: Harnesses that are closed, by the schema they used.
    _closed: ClassVar[dict[str, Harness]] = {}

    _schema = ""

    async def open_ports(self) -> Stores:
        server = await SharedServer.url()
        if not self._schema:
            self._schema = await self._find_schema(server)
        elif self._closed.pop(self._schema) is not self:
            raise AssertionError("another test has this schema by now")
        address = address_of(f"{server}?schema={self._schema}&listen=off")
        # The time is the test's, not the server's.
        return await open_at(address, self.runtime, self.connections(address), self.runtime.now_ms)

    async def close(self) -> None:
        await super().close()
        self._closed[self._schema] = self

    def connections(self, address: Address) -> Connections:
        return Connections(address)

    async def _find_schema(self, server: str) -> str:
        if not self._closed:
            return f"test_{SystemRuntime().random_bytes(8).hex()}"
        schema, _ = self._closed.popitem()
        connection = await connect(address_of(server))
        try:
            await connection.execute(Statements(schema)("empty_schema"))
        finally:
            await end(connection)
        return schema
