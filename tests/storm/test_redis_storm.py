"""Events on PostgreSQL, views and jobs on Redis, under everything that happens to processes and to
the Redis server: nothing is lost, and no effect is repeated where a key or a question protects.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis

from gesta.testing.postgres_server import PostgresServer
from gesta.testing.valkey_server import ValkeyServer
from tests.crash.stage import stage
from tests.storm.proxy import Proxy
from tests.storm.storm import Storm
from tests.storm.test_storm import check_at_rest

ACTIONS = 10


class RedisStorm(Storm):
    NAME = "redis storm"
    _server: ValkeyServer

    def choices(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self._kill,
            self._kill,
            self._freeze,
            self._cut,
            self._silence,
            self._halt,
            self.crash_server,
            self._lose_last_second,
            self._lose_last_second,
            self._flush_all,
            self._flush_scripts,
        )

    def urls(self, port: int) -> dict[str, str]:
        return dict.fromkeys(("queue_url", "views_url"), f"redis://127.0.0.1:{port}")

    async def _lose_last_second(self) -> None:
        """The machine dies, and its disk has what was synced a moment ago."""
        with tempfile.TemporaryDirectory() as folder:
            synced = Path(folder, "synced")
            await self._server.copy_data(synced)
            await asyncio.sleep(self._dice.uniform(0.1, 1.0))
            self._server.kill()
            self._server.restore_data(synced)
        await self._server.start()

    async def _flush_all(self) -> None:
        redis.Redis(port=self._server.port).flushall()

    async def _flush_scripts(self) -> None:
        redis.Redis(port=self._server.port).script_flush()


async def test_no_storm_around_redis_loses_a_request_and_none_doubles_where_keys_protect(
    tmp_path, crash_seed, capsys
):
    async with (
        PostgresServer() as server,
        ValkeyServer(durable=True) as valkey,
        Proxy(valkey.port) as proxy,
        stage(
            tmp_path,
            crash_seed,
            layout="server",
            url=server.url,
            queue_url=valkey.url,
            views_url=valkey.url,
            lost_ms=2_000,
            call_seconds=0.3,
        ) as on,
    ):
        wanted = await RedisStorm(on, valkey, proxy, crash_seed).rest(ACTIONS)
        residual = await check_at_rest(on, wanted)
    with capsys.disabled():
        print(f" [redis storm {crash_seed}: {residual} effects more than requests]", end="")
