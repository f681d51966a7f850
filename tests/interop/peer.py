"""The test's end of peer.mjs: the real BullMQ in a Node process.

A process takes seconds to start, so tests share one for each version and server.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from benchmarks.node import find_node, install
from gesta.testing.server_process import DIE_WITH_PARENT

FOLDER = Path(__file__).parent
PATIENCE_SECONDS = 60.0


class Peer:
    def __init__(self, node: str, plan: dict[str, Any]) -> None:
        prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else ()
        self.process = subprocess.Popen(
            [*prefix, node, str(FOLDER / "peer.mjs"), msgspec.json.encode(plan).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=FOLDER,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        #: What workers printed and no test has looked at yet.
        self._events: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        atexit.register(self.process.kill)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    async def begin(self, prefix: str) -> None:
        """A new test: what workers of the last one print from now on is theirs alone."""
        assert await self.ask("begin", prefix=prefix) == {}
        self._events.clear()

    async def ask(self, command: str, **given: Any) -> dict[str, Any]:
        self.tell(command, **given)
        return await self.answer()

    def tell(self, command: str, **given: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode({"command": command, **given}) + b"\n")
        self.process.stdin.flush()

    async def answer(self) -> dict[str, Any]:
        while True:
            line = await self._line()
            if "answer" in line:
                answer: dict[str, Any] = line["answer"]
                return answer
            self._events.append(line)

    async def event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        while True:
            for n, one in enumerate(self._events):
                if one.get("event") == name:
                    return self._events.pop(n)
            self._events.append(await self._line())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def _line(self) -> dict[str, Any]:
        line = await asyncio.to_thread(self._lines.get, timeout=PATIENCE_SECONDS)
        assert line, "the Node process has ended"
        found: dict[str, Any] = msgspec.json.decode(line)
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")


_peers: dict[tuple[int, str], Peer] = {}


async def bullmq(url: str, major: int) -> Peer:
    """BullMQ of this major on the server and prefix of a URL."""
    parts = urlsplit(url)
    name = (major, parts.netloc)
    if name not in _peers or not _peers[name].is_alive:
        node = find_node()
        with (FOLDER / ".lock").open("w") as lock:
            # Several test processes may want the packages at once.
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            await install(node, FOLDER)
        plan = {
            "major": major,
            "ports": [int(one.rpartition(":")[2]) for one in parts.netloc.split(",")],
            "isCluster": parts.scheme == "redis+cluster",
        }
        _peers[name] = Peer(node.node, plan)
        assert await _peers[name]._line() == {"ready": True}
    await _peers[name].begin(parse_qs(parts.query)["prefix"][0])
    return _peers[name]
