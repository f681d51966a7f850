"""A few connections to one server, each lent for one transaction, made anew by themselves when they were lost.

Whoever borrows one leaves nothing behind on it: no setting, no prepared statement, no lock, no listener. So a pooler that gives every transaction
another connection may stand between.
"""

from __future__ import annotations

import asyncio

import asyncpg

from gesta.adapters.postgresql.address import Address
from gesta.adapters.postgresql.faults import unreachable

#: After this long without an answer the connection is given up. Commits wait for others' commits, never for minutes.
ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0

Connection = asyncpg.Connection


async def connect(address: Address) -> Connection:
    """Raises StoreError that says why not."""
    try:
        return await asyncpg.connect(
            address.server,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            # Only unnamed statements: a named one is state of the session.
            statement_cache_size=0,
            server_settings={"application_name": "gesta"},
        )
    except Exception as error:  # noqa: BLE001 -- whatever it is, told in our words
        raise unreachable(address.name, error) from error


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
