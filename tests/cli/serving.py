"""A server beside the commands under test, in a thread with a loop of its own: it answers, and
works on nothing.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from gesta import Engine
from gesta.cli.flows import flows_of
from gesta.domain.events import Actor
from gesta.http_api.server import address_of, bind, serving
from gesta.runtime.settings import load
from tests.cli.shop import note

#: What commands ask of a server when one is named.
SERVED = frozenset(
    """submit show list tail retry cancel redrive resolve dlq config template key pause resume
    erase tx reconcile""".split()
)


class ServerBeside:
    """On the store gesta.db of this folder, with the flows of gesta and of the shop."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self.address = self.key = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = load({"url": "sqlite:///gesta.db"})
        engine = Engine(settings=settings, flows=[*flows_of(settings), note], work=False)
        listener = bind("127.0.0.1", 0)
        async with engine, serving(engine.web(), listener):
            made = await engine.admin.create_key(
                name="a test", scopes=("admin",), actor=Actor("test")
            )
            self.address, self.key = address_of(listener), made[1]
            self._ready.set()
            await self._stop.wait()
