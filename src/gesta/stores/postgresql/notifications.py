"""That something has happened, told between processes: by LISTEN/NOTIFY where that works, by a look
at two small rows where it does not.

A hint, never a promise: every station looks by itself once a second. News are told after the commit
and apart from it, because a transaction that
notifies makes all others that do wait for its commit.
"""

from collections.abc import Callable

import asyncpg  # type: ignore[import-untyped]

from gesta.errors import StoreError
from gesta.runtime.clock import Runtime, Signal, sleep
from gesta.stores.postgresql.connections import Connection, connect, end
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.errors import LOST

#: Others are told at once, then at most this often.
TELL_SECONDS = 0.02
#: How soon another process's commit is noticed where nobody listens.
LOOK_SECONDS = 0.2
#: How soon a listener is connected again, and how often it makes sure that somebody is at the other
#: end.
PAUSE_SECONDS = 1.0
PING_SECONDS = 10.0


class Notifications:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime = database, runtime
        self._channel = f"gesta_{database.address.schema}"
        #: Tells our own news from others'.
        self._sender = runtime.random_bytes(8).hex()
        self._unsaid, self._lost = Signal(runtime), Signal(runtime)
        self._hearers: list[Callable[[], None]] = []
        self._is_listening = False
        self._seen: tuple[object, ...] = ()

    def on_news(self, hearer: Callable[[], None]) -> None:
        """Call soon after another process has committed something that others wait for."""
        self._hearers.append(hearer)

    def tell(self) -> None:
        """We have committed something that others wait for.

        Whoever waits in this process has been told already.
        """
        self._unsaid.set()

    async def say(self) -> None:
        """For ever: pass on to other processes what we have to tell."""
        while True:
            await self._unsaid.wait(3600.0)
            try:
                await self._database.ask("notify", self._channel, self._sender)
            except StoreError:
                # They look by themselves.
                await sleep(self._runtime, PAUSE_SECONDS)
            await sleep(self._runtime, TELL_SECONDS)

    async def look(self) -> None:
        """For ever: while nobody listens, see whether something has moved."""
        while True:
            if self._is_listening:
                await sleep(self._runtime, PAUSE_SECONDS)
                continue
            await sleep(self._runtime, LOOK_SECONDS)
            try:
                ((*seen,),) = await self._database.ask("log_progress")
            except StoreError:
                await sleep(self._runtime, PAUSE_SECONDS)
                continue
            if tuple(seen) != self._seen:
                self._seen = tuple(seen)
                self._hear()

    async def listen(self) -> None:
        """For ever: on a connection of its own, which is state of a session and so is never
        lent.
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
                # Lost: until there is another, `look` does it.
                pass
            finally:
                self._is_listening = False
                await end(connection)
            await sleep(self._runtime, PAUSE_SECONDS)

    async def _listen_on(self, connection: Connection) -> None:
        connection.add_termination_listener(lambda _: self._lost.set())
        await connection.add_listener(self._channel, self._heard)
        self._is_listening = True
        # Whatever was said before we listened.
        self._hear()
        while not connection.is_closed():
            await self._lost.wait(PING_SECONDS)
            await connection.fetch("select 1")

    def _heard(self, _: object, __: int, ___: str, sender: object) -> None:
        if sender != self._sender:
            self._hear()

    def _hear(self) -> None:
        for hearer in self._hearers:
            hearer()
