"""A wire between a process and its server that can be cut, slowed down and left silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK = 64 * 1024


class Proxy:
    """Passes on what comes, both ways, on a port of its own. Told otherwise, it does to all connections at once what a network does."""

    def __init__(self, target_port: int) -> None:
        self._target_port, self.port = target_port, 0
        #: Every chunk waits so long.
        self.delay_seconds = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        self.cut()

    def cut(self) -> None:
        """Reset every connection: neither side hears a farewell."""
        for writer in list(self._writers):
            writer.transport.abort()

    def go_silent(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._open.clear()

    def speak(self) -> None:
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(far_writer)
        try:
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
        finally:
            for one in (writer, far_writer):
                self._writers.discard(one)
                one.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self._open.wait()
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(chunk)
                await writer.drain()
        # One side has gone: the other one is told so, and its half of the wire ends, too.
        writer.transport.abort()
