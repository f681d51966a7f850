"""The server's clock, which all processes of the store use: measured against our monotonic clock
every few seconds.
"""

from gesta.errors import StoreError
from gesta.runtime.clock import Runtime, sleep
from gesta.stores.postgresql.database import Database

MEASURE_SECONDS = 5.0
#: The fastest of so many answers is the most exact one.
TRIES = 3
#: The clock is not set back by less than this, which is the error of a measurement.
STILL_MS = 1_000


class ServerClock:
    def __init__(self, database: Database, runtime: Runtime) -> None:
        self._database, self._runtime, self._monotonic = database, runtime, runtime.monotonic
        self._ahead_ms = 0.0
        self._last = 0

    def now_ms(self) -> int:
        now, last = int(self._monotonic() * 1000 + self._ahead_ms), self._last
        if now >= last or now <= last - STILL_MS:
            self._last = last = now
        return last

    async def measure(self) -> None:
        _, self._ahead_ms = min([await self._measure_once() for _ in range(TRIES)])

    async def _measure_once(self) -> tuple[float, float]:
        """How long the answer took, and how far the server is ahead of our monotonic clock."""
        before = self._runtime.monotonic()
        ((server_ms,),) = await self._database.ask("server_time")
        took = self._runtime.monotonic() - before
        return took, server_ms - (before + took / 2) * 1000

    async def keep(self) -> None:
        """Runs for ever: clocks drift, are set, and change with a failover."""
        while True:
            await sleep(self._runtime, MEASURE_SECONDS)
            try:
                await self.measure()
            except StoreError:
                # Until the next answer our own clock continues from the last one.
                continue
