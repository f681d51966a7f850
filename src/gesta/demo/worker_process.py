"""One's own end of a worker process: started, killed in the middle of a call, started again,
stopped.

Only ever this child, by its id.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import msgspec

from gesta.demo.worker import READY
from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, sleep, spawn

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 30.0


class Stuck(GestaError):
    """The demo waited for something that did not come."""

    def __init__(self, awaited: str) -> None:
        super().__init__(f"waited in vain for {awaited}")


async def until(
    runtime: Runtime,
    holds: Callable[[], bool | Awaitable[bool]],
    awaited: str,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Look again and again until it holds. Raises Stuck when it does not in time."""
    patient_until = runtime.monotonic() + patience_seconds
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        if runtime.monotonic() > patient_until:
            raise Stuck(awaited)
        await sleep(runtime, LOOK_SECONDS)


START_SECONDS = 30.0
#: At the end nothing is being sent, so that a worker needs no longer than this to stop; then it is
#: killed.
STOP_SECONDS = 5.0


class WorkerProcess:
    """`async with` makes sure that no worker is left behind."""

    def __init__(
        self,
        module: str,
        orders: msgspec.Struct,
        *,
        log: Path,
        runtime: Runtime,
        root: Path | None = None,
    ) -> None:
        """`python -m module`, which reads its orders from a first line, says READY when it works
        and ends when its standard input does. A module that is not installed needs `root`, the
        folder that holds it.
        """
        self._module, self._orders, self._log, self._runtime = module, orders, log, runtime
        self._root = root
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start a worker and return when it works."""
        with self._log.open("ab") as log:
            # -P: no module in the current folder may replace one of ours. A session of its own:
            # Ctrl-C is for the demo, which then stops its worker in order.
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(["-P"] if self._root is None else []),
                "-m",
                self._module,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd=self._root,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(self._orders) + b"\n")
        said = spawn(process.stdout.readline(), "gesta-demo-worker")
        try:
            await until(self._runtime, said.done, "the worker to start", START_SECONDS)
        finally:
            said.cancel()
        if said.result() != READY:
            raise Stuck("the worker to start: it ended instead")

    async def ask(self) -> str:
        """Send an empty line, where the worker answers one."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return (await self._process.stdout.readline()).decode()

    async def kill(self) -> None:
        """SIGKILL: no warning, no goodbye, nothing written."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """Let it end in order; kill it when that takes too long."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await until(
                self._runtime,
                lambda: process.returncode is not None,
                "the worker to stop",
                STOP_SECONDS,
            )
        except Stuck:
            await self.kill()
        self._process = None

    async def ended(self) -> None:
        """Return when the worker has ended, for whatever reason."""
        assert self._process is not None
        await self._process.wait()
