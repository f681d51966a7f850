"""A wire between a process and its server that can be cut, slowed down and left silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from gesta.sandbox.server import loopback_socket
from gesta.sandbox.smtp_server import StreamServer

CHUNK = 64 * 1024


class Proxy:
    """Passes on what comes, both ways, on a port of its own.

    On demand it does to all connections at once what a network does.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port, self.port = target_port, 0
        #: Every chunk waits so long.
        self.delay_seconds = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = StreamServer(self._serve, loopback_socket())

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.port = self._server.port
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._open.set()
        self.cut()
        await self._server.__aexit__(None, None, None)

    def cut(self) -> None:
        """Reset every connection: neither side hears a farewell."""
        for writer in list(self._writers):
            writer.transport.abort()

    def go_silent(self) -> None:
        """Nothing passes any more, and neither side is notified."""
        self._open.clear()

    def speak(self) -> None:
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        try:
            await asyncio.gather(
                self._pass_on(reader, far_writer), self._pass_on(far_reader, writer)
            )
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
        # One side has gone: the other one is notified, and its half of the wire ends, too.
        writer.transport.abort()
