"""Events in the KurrentDB double, views and jobs on Redis, the rest in a SQLite file. Processes
die, Redis loses what it had, the double dies and comes back, and no request is lost or doubled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gesta.testing.kurrentdb_double import DoubleProcess
from gesta.testing.valkey_server import ValkeyServer
from tests.crash.stage import Stage, stage
from tests.storm.proxy import Proxy
from tests.storm.test_redis_storm import RedisStorm
from tests.storm.test_storm import check_at_rest

ACTIONS = 4
#: KurrentDB reads one stream per call, so a request takes longer here than elsewhere.
NUMBERS, LEASE_SECONDS = 8, 2.0


class KurrentDBStorm(RedisStorm):
    CLOCKS = (0,)

    def __init__(
        self, on: Stage, valkey: ValkeyServer, proxy: Proxy, *, double: DoubleProcess, seed: int
    ) -> None:
        super().__init__(on, valkey, proxy, seed)
        self._double = double

    def numbers(self, slot: int) -> tuple[int, ...]:
        return tuple(range(slot * 100, slot * 100 + NUMBERS))

    def choices(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (self._kill, self._kill_double, self._cut, self._flush_all)

    async def _kill_double(self) -> None:
        self._double.kill()
        await asyncio.sleep(self._dice.uniform(0.1, 0.5))
        await self._double.start()


async def test_no_storm_around_kurrentdb_loses_a_request_and_none_doubles_where_keys_protect(
    tmp_path, crash_seed
):
    async with (
        DoubleProcess() as double,
        ValkeyServer(durable=True) as valkey,
        Proxy(valkey.port) as proxy,
        stage(
            tmp_path,
            crash_seed,
            layout="one",
            events_url=double.url,
            queue_url=valkey.url,
            views_url=valkey.url,
            lost_ms=2_000,
            lease_seconds=LEASE_SECONDS,
        ) as on,
    ):
        storm = KurrentDBStorm(on, valkey, proxy, double=double, seed=crash_seed)
        wanted = await storm.rest(ACTIONS)
        await check_at_rest(on, wanted)
