"""The fake mail server on a port: how it handles connections."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.sandbox.server import loopback_socket
from gesta.sandbox.smtp import FakeMailServer
from gesta.sandbox.smtp_server import SmtpFace, StreamServer


async def fake_that_ends(turns: int) -> None:
    listening = loopback_socket()
    face = SmtpFace(FakeMailServer(), SystemRuntime(), listening)
    await face.start()
    with socket.create_connection(listening.getsockname()[:2]):
        for _ in range(turns):
            await asyncio.sleep(0)
        await face.close()


async def server_of_the_tests_that_ends(turns: int) -> None:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with StreamServer(serve, loopback_socket()) as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            for _ in range(turns):
                await asyncio.sleep(0)


@pytest.mark.parametrize("server", [fake_that_ends, server_of_the_tests_that_ends])
@pytest.mark.parametrize("turns", range(7))
def test_a_connection_of_the_last_moment_is_closed_with_the_server(server, turns):
    asyncio.run(server(turns))
    # An open one would warn now, and a warning is an error here.
    gc.collect()
