"""Starts and signals processes of the command line that run some roles each; leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gesta import Engine
from tests.processes.members import PATIENCE_SECONDS, ROOT

PROJECTOR = ("worker", "--roles", "projector")
SWEEPER = ("worker", "--roles", "sweeper")
WORKER = ("worker", "--roles", "worker")


class Part:
    """`gesta worker` or `gesta serve` on the store of a folder; its output goes to a file."""

    def __init__(self, folder: Path, number: int, *arguments: str, app: str) -> None:
        self._said = folder / f"said-{number}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gesta",
                    *arguments,
                    "--app",
                    f"tests.processes.program:{app}",
                ],
                cwd=folder,
                env=environment,
                stdout=said,
                stderr=said,
            )
        self.pid = self.process.pid

    @property
    def said(self) -> str:
        return self._said.read_text()

    def hear(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)


@contextmanager
def parts(folder: Path) -> Iterator[Callable[..., Part]]:
    started: list[Part] = []

    def start(*arguments: str, app: str = "engine") -> Part:
        started.append(Part(folder, len(started), *arguments, app=app))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            if one.process.poll() is None:
                one.kill()


async def until(holds: Callable[[], Awaitable[bool]], awaited: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not await holds():
        assert time.monotonic() < end, f"waited in vain for {awaited}"
        await asyncio.sleep(0.02)


async def player(engine: Engine, role: str) -> int | None:
    """The process that plays a role now."""
    now = engine.pipeline.runtime.now_ms()
    for one in await engine.pipeline.environment.stores.leases.roles():
        if one.name == role and one.is_held(now):
            return int(one.owner.split(":")[1])
    return None


async def is_played(engine: Engine, role: str, *pids: int) -> bool:
    """Whether one of these processes plays it."""
    return await player(engine, role) in pids
