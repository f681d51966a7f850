"""Events on PostgreSQL, views and jobs on Redis, under everything that happens to processes and to
the Redis server: nothing is lost, and no effect is repeated where a key or a question protects.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path

import redis

from gesta.testing.postgres_server import PostgresServer
from gesta.testing.valkey_server import ValkeyServer
from tests.crash.stage import Stage, stage
from tests.storm.proxy import Proxy
from tests.storm.storm import FROZEN_SECONDS, NUMBERS, SILENT_SECONDS, SLOTS
from tests.storm.test_storm import check_at_rest

ACTIONS = 10


class RedisStorm:
    """Slot 0 reaches Redis directly, the others through a wire that can be cut."""

    #: By how much the clocks of the processes are ahead, ms.
    CLOCKS: tuple[int, ...] = (0, 300_000, -300_000)

    def __init__(self, on: Stage, server: ValkeyServer, proxy: Proxy, seed: int) -> None:
        self._on, self._server, self._proxy = on, server, proxy
        self._dice = random.Random(f"redis storm {seed}")
        self._children: dict[int, BaseProcess] = {}
        self._stack = ExitStack()
        self.story: list[str] = []

    def numbers(self, slot: int) -> tuple[int, ...]:
        return tuple(range(slot * 100, slot * 100 + NUMBERS))

    async def run(self, actions: int) -> None:
        for slot in range(SLOTS):
            self._start(slot)
        for _ in range(actions):
            await asyncio.sleep(self._dice.uniform(0.1, 0.6))
            action = self._dice.choice(self.choices())
            self.story.append(action.__name__)
            await action()

    def choices(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self._kill,
            self._kill,
            self._freeze,
            self._cut,
            self._silence,
            self._halt,
            self._crash,
            self._lose_last_second,
            self._lose_last_second,
            self._flush_all,
            self._flush_scripts,
        )

    def close(self) -> None:
        self._stack.close()

    def _start(self, slot: int) -> None:
        url = f"redis://127.0.0.1:{self._proxy.port if slot else self._server.port}"
        self._children[slot] = self._stack.enter_context(
            self._on.process(
                queue_url=url,
                views_url=url,
                numbers=self.numbers(slot),
                seed=self._dice.randrange(1000),
                ahead_ms=self._dice.choice(self.CLOCKS),
                greedy=self._dice.random() < 0.5,
            )
        )

    async def _kill(self) -> None:
        slot = self._dice.randrange(SLOTS)
        self._children[slot].kill()
        self._children[slot].join()
        self._start(slot)

    async def _freeze(self) -> None:
        pid = self._children[self._dice.randrange(SLOTS)].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(FROZEN_SECONDS)
        os.kill(pid, signal.SIGCONT)

    async def _cut(self) -> None:
        self._proxy.cut()

    async def _silence(self) -> None:
        self._proxy.go_silent()
        await asyncio.sleep(SILENT_SECONDS)
        self._proxy.speak()

    async def _halt(self) -> None:
        """A restart with its data."""
        self._server.halt()
        await self._server.start()

    async def _crash(self) -> None:
        """The process dies; the machine has what it wrote."""
        self._server.kill()
        await self._server.start()

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
        storm = RedisStorm(on, valkey, proxy, crash_seed)
        try:
            await storm.run(ACTIONS)
            async with on.look() as engine:
                wanted = sum(len(storm.numbers(slot)) for slot in range(SLOTS))
                await on.at_rest(engine, at_least=wanted)
        finally:
            storm.close()
            print("storm:", *storm.story)
        residual = await check_at_rest(on, wanted)
    with capsys.disabled():
        print(f" [redis storm {crash_seed}: {residual} effects more than requests]", end="")
