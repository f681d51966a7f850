"""A schema of a real PostgreSQL server under the contract suites. The server is started once per test process and ends with it."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import ClassVar

from gesta.adapters.postgresql import open_at
from gesta.adapters.postgresql.address import Address, address_of
from gesta.adapters.postgresql.connections import Connections, connect, end
from gesta.adapters.postgresql.statements import Statements
from gesta.contracts.harness import Capability
from gesta.runtime import ManualRuntime, SystemRuntime
from gesta.trial_server import TrialServer


class SharedServer:
    """Started by the first who asks. What it holds is for tests, so it syncs nothing to disk."""

    _server: ClassVar[TrialServer | None] = None

    @classmethod
    async def url(cls) -> str:
        if cls._server is None:
            server = TrialServer(durable=False)
            await server.__aenter__()
            atexit.register(server.end)
            cls._server = server
        return cls._server.url


class Harness:
    """One schema for one test. The one before is dropped when the next is made."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"events", "queue", "views", "vault", "commits", "durable"})
    _done_with: ClassVar[list[str]] = []

    def __init__(self, folder: Path) -> None:
        self.runtime = ManualRuntime()
        self._schema = f"test_{SystemRuntime().random_bytes(8).hex()}"
        self._is_new = True

    async def open(self) -> None:
        address = address_of(f"{await SharedServer.url()}?schema={self._schema}&listen=off")
        if self._is_new:
            self._is_new = False
            await self._drop(address)
            self._done_with.append(self._schema)
        # The time is the test's, and so is the server's clock.
        stores = await open_at(address, self.runtime, self.connections(address), self.runtime.now_ms)
        self.events, self.queue, self.views = stores.events, stores.queue, stores.views
        self.vault, self.commits, self._close = stores.vault, stores.commits, stores.close

    async def close(self) -> None:
        await self._close()

    def connections(self, address: Address) -> Connections:
        return Connections(address)

    async def _drop(self, address: Address) -> None:
        """What earlier tests of this process have left."""
        if self._done_with:
            connection = await connect(address)
            while self._done_with:
                await connection.execute(Statements(self._done_with.pop())("drop_schema"))
            await end(connection)
