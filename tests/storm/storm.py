"""Everything that goes wrong around a database server, by a seed: processes die and freeze, the
server dies and restarts, wires are cut.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import ExitStack
from multiprocessing.process import BaseProcess

from gesta.testing.postgres_server import PostgresServer
from tests.crash.stage import Stage
from tests.storm.proxy import Proxy

#: Each slot is a machine with one process: works on everything, and submits its own numbers again
#: after every restart.
SLOTS = 3
NUMBERS = 24
#: Longer than the leases of the program.
FROZEN_SECONDS = 1.2
SILENT_SECONDS = 1.2


class Storm:
    def __init__(self, on: Stage, server: PostgresServer, proxy: Proxy, seed: int) -> None:
        self._on, self._server, self._proxy = on, server, proxy
        self._dice = random.Random(f"storm {seed}")
        self._children: dict[int, BaseProcess] = {}
        self._stack = ExitStack()
        #: What was done, for the reader of a failure.
        self.story: list[str] = []

    def numbers(self, slot: int) -> tuple[int, ...]:
        return tuple(range(slot * 100, slot * 100 + NUMBERS))

    async def run(self, actions: int) -> None:
        """The storm, then everything healed and a process in every slot. They end with the
        stage.
        """
        self.start(SLOTS)
        for _ in range(actions):
            await asyncio.sleep(self._dice.uniform(0.1, 0.6))
            action = self._dice.choice(
                (
                    self._kill,
                    self._kill,
                    self._freeze,
                    self._cut,
                    self._slow,
                    self._silence,
                    self._halt,
                    self.crash_server,
                )
            )
            self.story.append(action.__name__)
            await action()

    def start(self, slots: int) -> None:
        for slot in range(slots):
            self._start(slot)

    def close(self) -> None:
        self._stack.close()

    def _start(self, slot: int) -> None:
        port = self._proxy.port if slot else self._server.port
        url = self._on.plan.url.replace(f":{self._server.port}/", f":{port}/")
        self._children[slot] = self._stack.enter_context(
            self._on.process(
                url=url,
                numbers=self.numbers(slot),
                seed=self._dice.randrange(1000),
                ahead_ms=self._dice.choice((0, 300_000, -300_000)),
                # Projects and sweeps even if other processes do.
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

    async def _slow(self) -> None:
        self._proxy.delay_seconds = self._dice.uniform(0.01, 0.2)
        await asyncio.sleep(0.5)
        self._proxy.delay_seconds = 0.0

    async def _silence(self) -> None:
        self._proxy.go_silent()
        await asyncio.sleep(SILENT_SECONDS)
        self._proxy.speak()

    async def _halt(self) -> None:
        self._server.halt()
        await self._server.start()

    async def crash_server(self) -> None:
        self._server.kill()
        await self._server.start()
