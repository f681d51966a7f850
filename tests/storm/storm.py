"""Everything that goes wrong around a database server, by a seed: processes die and freeze, the
server dies and restarts, wires are cut.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from multiprocessing.process import BaseProcess

from gesta.testing.server_process import ServerProcess
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
    """Slot 0 reaches the server directly, the others through a wire that can be cut."""

    NAME = "storm"
    #: By how much the clocks of the processes are ahead, ms.
    CLOCKS: tuple[int, ...] = (0, 300_000, -300_000)

    def __init__(self, on: Stage, server: ServerProcess, proxy: Proxy, seed: int) -> None:
        self._on, self._server, self._proxy = on, server, proxy
        self._dice = random.Random(f"{self.NAME} {seed}")
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
            action = self._dice.choice(self.choices())
            self.story.append(action.__name__)
            await action()

    async def rest(self, actions: int) -> int:
        """The storm, until all is at rest. Returns how many requests there are."""
        try:
            await self.run(actions)
            async with self._on.look() as engine:
                wanted = sum(len(self.numbers(slot)) for slot in range(SLOTS))
                await self._on.at_rest(engine, at_least=wanted)
                return wanted
        finally:
            self.close()
            print("storm:", *self.story)

    def choices(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self._kill,
            self._kill,
            self._freeze,
            self._cut,
            self._slow,
            self._silence,
            self._halt,
            self.crash_server,
        )

    def urls(self, port: int) -> dict[str, str]:
        """The URLs of a process that reaches the server at this port."""
        return {"url": self._on.plan.url.replace(f":{self._server.port}/", f":{port}/")}

    def start(self, slots: int) -> None:
        for slot in range(slots):
            self._start(slot)

    def close(self) -> None:
        self._stack.close()

    def _start(self, slot: int) -> None:
        self._children[slot] = self._stack.enter_context(
            self._on.process(
                **self.urls(self._proxy.port if slot else self._server.port),
                numbers=self.numbers(slot),
                seed=self._dice.randrange(1000),
                ahead_ms=self._dice.choice(self.CLOCKS),
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
        """A restart with its data."""
        self._server.halt()
        await self._server.start()

    async def crash_server(self) -> None:
        """The process dies; the machine has what it wrote."""
        self._server.kill()
        await self._server.start()
