"""Ways for an answer to go wrong between a server and its caller: lost on the wire, or none that
anybody hoped for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from gesta.runtime.clock import SystemRuntime, Timer
from tests.storm.proxy import CHUNK, Proxy


class Losing(Proxy):
    """A wire that is cut when an answer is on its way: the server has done its work, and no client
    hears of it.
    """

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        #: How many answers get lost from now on, and how many were.
        self.lose = self.lost = 0
        self._near: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._near.add(writer)
        await super()._serve(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer in self._near:
            while chunk := await reader.read(CHUNK):
                if self.lose:
                    self.lose, self.lost = self.lose - 1, self.lost + 1
                    break
                writer.write(chunk)
            writer.transport.abort()
            return
        await super()._pass_on(reader, writer)


class Hasty(SystemRuntime):
    """Waits for nothing, and remembers how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def chance(self) -> float:
        return 1.0

    def call_later(self, seconds: float, callback: Any, *args: Any) -> Timer:
        self.pauses.append(seconds)
        return super().call_later(0, callback, *args)


class Scripted:
    """A server that gives its prepared answers, one after the other, and the last for ever."""

    def __init__(self, *answers: tuple[int, Mapping[str, str], bytes]) -> None:
        self._answers, self.calls = list(answers), list[tuple[str, str, Mapping[str, str], bytes]]()
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.calls.append((request.method, request.path, request.headers, await request.read()))
        status, headers, body = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return web.Response(status=status, headers=headers, body=body)


@asynccontextmanager
async def scripted(*answers: tuple[int, Mapping[str, str], bytes]) -> AsyncIterator[Scripted]:
    script = Scripted(*answers)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    script.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()
