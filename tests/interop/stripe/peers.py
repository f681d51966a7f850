"""Three fakes of Stripe behind one interface: the sandbox's own and two that others wrote."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.node import find_node, install
from gesta.sandbox.server import SandboxServer
from gesta.testing.server_process import DIE_WITH_PARENT

FOLDER = Path(__file__).parent
PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.05


class Peer:
    """One of them, called by its HTTP API."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def call(
        self, method: str, path: str, key: str = "", **fields: Any
    ) -> tuple[int, dict[str, Any], bool]:
        """Status, body, and whether it was replayed."""
        headers = {"Authorization": "Bearer sk_test_peer", "Stripe-Version": "2026-10-28"}
        if key:
            headers["Idempotency-Key"] = key
        given: dict[str, Any] = {"params": fields} if method == "GET" else {"data": fields}
        async with self.session.request(
            method, f"{self.url}/v1/{path}", headers=headers, **given
        ) as answer:
            replayed = answer.headers.get("idempotent-replayed") == "true"
            return answer.status, msgspec.json.decode(await answer.read()), replayed


@asynccontextmanager
async def sandbox() -> AsyncIterator[tuple[Peer, SandboxServer]]:
    async with SandboxServer() as server, aiohttp.ClientSession() as session:
        yield Peer(f"{server.url}/stripe", session), server


@asynccontextmanager
async def stateful_mock() -> AsyncIterator[Peer]:
    node = find_node()
    with (FOLDER / ".lock").open("w") as lock:
        # Several test processes may want the packages at once.
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        await install(node, FOLDER)
    process = _started(node.node, "mock.cjs")
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        port = msgspec.json.decode(line)["port"]
        async with aiohttp.ClientSession() as session:
            yield Peer(f"http://127.0.0.1:{port}", session)
    finally:
        _end(process)


@asynccontextmanager
async def localstripe() -> AsyncIterator[Peer]:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
        port = free.getsockname()[1]
    process = _started(
        sys.executable, "on_loopback.py", "localstripe", "--port", str(port), "--from-scratch"
    )
    try:
        async with aiohttp.ClientSession() as session:
            peer = Peer(f"http://[::1]:{port}", session)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await _answering(peer)
            yield peer
    finally:
        _end(process)


async def _answering(peer: Peer) -> None:
    while True:
        try:
            await peer.call("GET", "balance_transactions")
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            return


def _started(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else ()
    return subprocess.Popen(
        [*prefix, program, *arguments],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
