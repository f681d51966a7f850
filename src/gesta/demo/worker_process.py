"""Controls a worker process: start, kill during a call, start again, stop."""

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
    """The demo waited for something that did not happen."""

    def __init__(self, awaited: str) -> None:
        super().__init__(f"waited in vain for {awaited}")


async def until(
    runtime: Runtime,
    holds: Callable[[], bool | Awaitable[bool]],
    awaited: str,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Poll until it holds. Raises Stuck after the time limit."""
    patient_until = runtime.monotonic() + patience_seconds
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        if runtime.monotonic() > patient_until:
            raise Stuck(awaited)
        await sleep(runtime, LOOK_SECONDS)


START_SECONDS = 30.0
#: How long a worker may take to stop at the end, when nothing is being sent; then it is killed.
STOP_SECONDS = 5.0


class WorkerProcess:
    """`async with` leaves no worker behind."""

    def __init__(
        self,
        module: str,
        orders: msgspec.Struct,
        *,
        log: Path,
        runtime: Runtime,
        root: Path | None = None,
    ) -> None:
        """Runs `python -m module`. The module reads its orders from the first line of its standard
        input, prints READY when it works, and ends with its standard input. A module that is not
        installed needs `root`, the folder that holds it.
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
        """Start a worker and return when it is ready."""
        with self._log.open("ab") as log:
            # -P: a module in the current folder must not replace an installed one. A session of its
            # own: Ctrl-C reaches only the demo, which then stops its worker.
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
        """Send an empty line and return the answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return (await self._process.stdout.readline()).decode()

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """Stop it, and kill it if that takes too long."""
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
        """Return when the worker has ended, for any reason."""
        assert self._process is not None
        await self._process.wait()
