"""A pool of connections to one server, each borrowed for one transaction and replaced if lost.

A transaction leaves nothing on its connection: no setting, no prepared statement, no lock, no
listener. So a pooler in transaction mode may be in between.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped]

from gesta.stores.postgresql.address import Address
from gesta.stores.postgresql.errors import raise_unreachable

#: Without an answer for so long, the connection is closed.
ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0


class Row(Protocol):
    """A row, by number or name of the column."""

    def __getitem__(self, key: int | str) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """The methods that we use of the client library, which has no types."""

    async def fetch(self, text: str, *values: object) -> list[Row]: ...
    async def execute(self, text: str) -> str: ...
    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109 -- the library's
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...


async def connect(address: Address) -> Connection:
    """Raises StoreError with the reason."""
    try:
        connection: Connection = await asyncpg.connect(
            address.server,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            # Named statements would be state of the session.
            statement_cache_size=0,
            server_settings={"application_name": "gesta"},
        )
    except Exception as error:  # noqa: BLE001 -- raised again as ours
        raise_unreachable(address.name, error)
    return connection


class Connections:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(address.pool)

    async def borrow(self) -> Connection:
        """A connection that was open when it was last used."""
        await self._free.acquire()
        try:
            while self._idle:
                # The one that was used last: the server may have closed the others.
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await connect(self._address)
        except BaseException:
            self._free.release()
            raise

    async def give_back(self, connection: Connection) -> None:
        """Return a connection without an open transaction. A broken one is dropped."""
        self._free.release()
        if not connection.is_closed():
            self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """Close a connection in an unknown state; the server rolls its transaction back."""
        self._free.release()
        connection.terminate()

    async def close(self) -> None:
        """Close all, after the last one was released."""
        while self._idle:
            await end(self._idle.pop())


async def end(connection: Connection) -> None:
    """Close a connection, also if the server no longer answers."""
    try:
        await connection.close(timeout=CONNECT_SECONDS)
    except Exception:  # noqa: BLE001 -- the connection is closed in any case
        connection.terminate()
