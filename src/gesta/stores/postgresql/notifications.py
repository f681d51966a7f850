"""Notifies other processes that something was committed: by LISTEN/NOTIFY where that works, else by
reading two small rows.

A hint, never a promise: every component also looks by itself once a second. A notification is sent
after the commit and separately, because a transaction that notifies makes all others that notify
wait for its commit.
"""

from collections.abc import Callable

import asyncpg  # type: ignore[import-untyped]

from gesta.errors import StoreError
from gesta.runtime.clock import Runtime, Signal, sleep
from gesta.stores.postgresql.connections import Connection, connect, end
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.errors import LOST

#: The first notification is sent immediately, the next ones at most this often.
SEND_SECONDS = 0.02
#: How often `poll` reads while no connection listens.
POLL_SECONDS = 0.2
#: The pause after an error, and how often a listening connection is tested.
PAUSE_SECONDS = 1.0
PING_SECONDS = 10.0


class Notifications:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime = database, runtime
        self._channel = f"gesta_{database.address.schema}"
        #: Distinguishes our own notifications from those of other processes.
        self._sender = runtime.random_bytes(8).hex()
        self._unsent, self._lost = Signal(runtime), Signal(runtime)
        self._listeners: list[Callable[[], None]] = []
        self._is_listening = False
        self._seen: list[object] = []

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Call `listener` soon after another process has committed."""
        self._listeners.append(listener)

    def committed(self) -> None:
        """Call after a commit of this process that other processes wait for."""
        self._unsent.set()

    async def send(self) -> None:
        """Runs for ever: notifies other processes of our commits."""
        while True:
            await self._unsent.wait(3600.0)
            try:
                await self._database.ask("notify", self._channel, self._sender)
            except StoreError:
                # They look by themselves.
                await sleep(self._runtime, PAUSE_SECONDS)
            await sleep(self._runtime, SEND_SECONDS)

    async def poll(self) -> None:
        """Runs for ever: while no connection listens, reads whether something was committed."""
        while True:
            await sleep(self._runtime, PAUSE_SECONDS if self._is_listening else POLL_SECONDS)
            if self._is_listening:
                continue
            try:
                ((*seen,),) = await self._database.ask("log_progress")
            except StoreError:
                await sleep(self._runtime, PAUSE_SECONDS)
                continue
            if seen != self._seen:
                self._seen = seen
                self._notify()

    async def listen(self) -> None:
        """Runs for ever: listens on a connection of its own, because LISTEN is state of a
        session.
        """
        while True:
            try:
                connection = await connect(self._database.address)
            except StoreError:
                await sleep(self._runtime, PAUSE_SECONDS)
                continue
            try:
                await self._listen_on(connection)
            except (asyncpg.PostgresError, *LOST):
                # `poll` replaces it until there is another connection.
                pass
            finally:
                self._is_listening = False
                await end(connection)
            await sleep(self._runtime, PAUSE_SECONDS)

    async def _listen_on(self, connection: Connection) -> None:
        connection.add_termination_listener(lambda _: self._lost.set())
        await connection.add_listener(self._channel, self._received)
        self._is_listening = True
        # What was committed before we listened.
        self._notify()
        while not connection.is_closed():
            await self._lost.wait(PING_SECONDS)
            await connection.fetch("select 1")

    def _received(self, _: object, __: int, ___: str, sender: object) -> None:
        if sender != self._sender:
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
