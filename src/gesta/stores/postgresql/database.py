"""One schema of a PostgreSQL database: every call is one transaction on a borrowed connection.

Transactions lock rows in this order of tables, and inside a table in the order of its key, so that
no deadlock arises: buckets, outbox, checkpoints, removals, requests, quarantined, lines, presents,
leases, jobs, undispatched, claims, head. A take waits for no lock but that of its own lease.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from gesta.errors import StoreError
from gesta.runtime.clock import spawn
from gesta.stores.postgresql.address import Address
from gesta.stores.postgresql.connections import Connection, Connections, Row
from gesta.stores.postgresql.errors import NOTHING, PERHAPS, is_answer, raise_as_ours
from gesta.stores.postgresql.statements import Statements

T = TypeVar("T")
Step = Callable[[Connection], Awaitable[T]]


class Database:
    """Raises StoreError and its kinds, never errors of the client library."""

    def __init__(self, address: Address, connections: Connections) -> None:
        self.address, self._connections = address, connections
        self.sql = Statements(address.schema)
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def name(self) -> str:
        return self.address.name

    async def ask(self, name: str, /, *values: object) -> list[Row]:
        """Run a named statement, which is a transaction of its own."""
        return await self.ask_text(self.sql(name), *values)

    async def ask_text(self, text: str, *values: object) -> list[Row]:
        return await self._send(lambda connection: connection.fetch(text, *values))

    async def has_row(self, name: str) -> bool:
        """Whether a named statement without parameters finds a row. It takes one round trip."""
        text = self.sql(name)
        return await self._send(lambda connection: connection.execute(text)) != "SELECT 0"

    async def transact(self, step: Step[T], *, durable: bool) -> T:
        """Run a step of several statements in one transaction, on disk when this returns if
        `durable`.
        """
        begin = self.sql("begin_durable" if durable else "begin_relaxed")
        return await self._send(lambda connection: self._transact(connection, begin, step))

    async def run(self, name: str, /, *values: object, durable: bool = False) -> list[Row]:
        """Run a named statement as one commit, on disk when this returns if `durable`; its rows."""
        text = self.sql(name)
        return await self.transact(
            lambda connection: connection.fetch(text, *values), durable=durable
        )

    async def run_outside(self, name: str) -> None:
        """Run a statement that cannot run in a transaction."""
        await self._send(lambda connection: connection.execute(self.sql(name)))

    async def close(self) -> None:
        """Wait for running statements, then close the connections."""
        self._closed = True
        for task in list(self._running):
            with suppress(Exception):
                # Its caller gets the error.
                await asyncio.shield(task)
        await self._connections.close()

    async def _send(self, act: Step[T]) -> T:
        """In a task of its own: a statement that was sent completes although its caller is
        cancelled.
        """
        if self._closed:
            raise StoreError(f"{self.name} is closed; the engine has stopped")
        task = spawn(self._on_connection(act), "gesta-postgresql")
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Marks the error as seen: a cancelled caller does not wait for it.
            task.exception()

    async def _on_connection(self, act: Step[T]) -> T:
        connection = await self._connections.borrow()
        try:
            answer = await act(connection)
        except BaseException as error:  # noqa: BLE001 -- raised again as ours
            if is_answer(error) and not connection.is_in_transaction():
                await self._connections.give_back(connection)
            else:
                self._connections.discard(connection)
            raise_as_ours(self.name, error, PERHAPS)
        await self._connections.give_back(connection)
        return answer

    async def _transact(self, connection: Connection, begin: str, step: Step[T]) -> T:
        try:
            await connection.execute(begin)
            answer = await step(connection)
        except BaseException as error:  # noqa: BLE001 -- raised again as ours
            if is_answer(error):
                await connection.execute("rollback")
            # No commit was sent.
            raise_as_ours(self.name, error, NOTHING)
        await connection.execute("commit")
        return answer
