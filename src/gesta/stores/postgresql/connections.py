"""A few connections to one server, each lent for one transaction, made anew by themselves when they
were lost.

Whoever borrows one leaves nothing behind on it: no setting, no prepared statement, no lock, no
listener. So a pooler that gives every transaction
another connection may stand between.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped]

from gesta.stores.postgresql.address import Address
from gesta.stores.postgresql.errors import raise_unreachable

#: After this long without an answer the connection is given up. Commits wait for others' commits,
#: never for minutes.
ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0


class Row(Protocol):
    """By number or name of the column."""

    def __getitem__(self, key: int | str) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What we use of the client library's, which has no types of its own."""

    async def fetch(self, text: str, *values: object) -> list[Row]: ...
    async def execute(self, text: str) -> str: ...
    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109 -- the library's
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...


async def connect(address: Address) -> Connection:
    """Raises StoreError that says why not."""
    try:
        connection: Connection = await asyncpg.connect(
            address.server,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            # Only unnamed statements: a named one is state of the session.
            statement_cache_size=0,
            server_settings={"application_name": "gesta"},
        )
    except Exception as error:  # noqa: BLE001 -- raised again, in our words
        raise_unreachable(address.name, error)
    return connection


class Connections:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(address.pool)

    async def borrow(self) -> Connection:
        """A connection that was alive when we last heard of it."""
        await self._free.acquire()
        try:
            while self._idle:
                # The one that was used last: the others may be let go by the server.
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await connect(self._address)
        except BaseException:
            self._free.release()
            raise

    async def give_back(self, connection: Connection) -> None:
        """With no transaction open on it. One that is broken is not lent again."""
        self._free.release()
        if not connection.is_closed():
            self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """Nobody knows what it is at: it is cut, and the server undoes what was not committed."""
        self._free.release()
        connection.terminate()

    async def close(self) -> None:
        """After the last was given back."""
        while self._idle:
            await end(self._idle.pop())


async def end(connection: Connection) -> None:
    """Say goodbye, if anybody is there to hear it."""
    try:
        await connection.close(timeout=CONNECT_SECONDS)
    except Exception:  # noqa: BLE001 -- whatever it is, it has ended
        connection.terminate()
