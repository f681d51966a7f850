"""A server on loopback that speaks bytes, so that a test can stop an answer wherever it likes."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gesta.sandbox.smtp_server import StreamServer

#: What the server does with a connection, once for each request on it.
Behaviour = Callable[["Connection"], Awaitable[None]]


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    request: bytes

    def say(self, answer: bytes) -> None:
        self.writer.write(answer)

    def reset(self) -> None:
        self.writer.transport.abort()


@dataclass
class RawServer:
    url: str
    port: int
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


def ok(body: bytes = b"{}", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%s\r\n%s" % (len(body), headers, body)


@asynccontextmanager
async def raw_server(
    behaviour: Behaviour,
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    reads: bool = True,
) -> AsyncIterator[RawServer]:
    """`reads=False`: the connection is handed over before anything of a request is read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            while not writer.is_closing() and not reader.at_eof():
                request = await _request(reader) if reads else b""
                if reads:
                    server.requests.append(request)
                await behaviour(Connection(reader, writer, request))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    async with StreamServer(serve, socket.create_server((host, 0)), tls=tls) as listening:
        server = RawServer(
            f"http{'s' if tls else ''}://{host}:{listening.port}/hook", listening.port
        )
        yield server


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return head + (await reader.readexactly(int(length[1])) if length else b"")
