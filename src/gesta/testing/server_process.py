"""A server in a process of its own, on loopback and in a folder of its own, which ends with the
process that started it.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self

from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, SystemRuntime, sleep

#: Below the ephemeral ports, so that no other program takes one while the server is down.
_PORTS = range(12_000, 32_000)
#: If this process is killed, the server ends, too.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "INT")


class ServerProcess(ABC):
    """`async with` gives `url`. `halt` and `kill` end it; `start` starts it again on its data."""

    #: In messages and in the name of its folder.
    name: ClassVar[str]
    start_seconds: ClassVar[float]
    #: How an operator restarts it: connections are cut, acknowledged data is kept.
    halt_signal: ClassVar[int] = signal.SIGTERM
    #: How it ends for good, with its folder.
    end_signal: ClassVar[int] = signal.SIGKILL

    def __init__(self, *, below: Path | None = None, runtime: Runtime | None = None) -> None:
        """The folder is `below` the given one, which decides about the disk; else below the
        system's.
        """
        self._runtime, self._below = runtime or SystemRuntime(), below
        self._folder, self.port = "", 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        prefix = f"gesta-{self.name.lower()}-"
        self._folder = tempfile.mkdtemp(prefix=prefix, dir=self._below)
        self.port = free_port(self._runtime)
        try:
            await self.start()
        except BaseException:
            self.end()
            raise
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.end()

    async def start(self) -> None:
        """Start, again on the same data after `halt` or `kill`, and wait until it answers."""
        end = self._runtime.monotonic() + self.start_seconds
        self._process = self._serve()
        while not self._answers():
            if self._process.poll() is not None or self._runtime.monotonic() > end:
                raise self._not_started(self._log())
            await sleep(self._runtime, 0.01)

    def kill(self) -> None:
        """Kill it without warning, as a power loss does."""
        self._signal(signal.SIGKILL)

    def halt(self) -> None:
        """Stop it cleanly, as an operator does."""
        self._signal(self.halt_signal)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._signal(self.end_signal)
        shutil.rmtree(self._folder, ignore_errors=True)

    @abstractmethod
    def _serve(self) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def _as_user(self) -> tuple[str, ...]:
        """The command that runs a program as another user."""
        return ()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program. What it prints goes to the log."""
        prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else ()
        with Path(self._folder, "output.log").open("ab") as log:
            # A session of its own: Ctrl-C is for the process that started it and needs it to end in
            # order.
            return subprocess.Popen(  # noqa: S603 -- our own arguments
                [*self._as_user(), *prefix, program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": self._folder},
            )

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()

    def _log(self) -> str:
        return Path(self._folder, "output.log").read_text(encoding="utf-8", errors="replace")

    def _not_started(self, log: str) -> GestaError:
        return GestaError(f"{self.name} did not start:\n{log[-2000:]}")


class _Server(Protocol):
    @property
    def url(self) -> str: ...
    async def __aenter__(self) -> Self: ...
    def end(self) -> None: ...


class Shared:
    """One server for all tests of this process, started by the first that asks."""

    make: ClassVar[Callable[[], _Server]]
    _server: ClassVar[_Server | None] = None

    @classmethod
    async def url(cls) -> str:
        if cls._server is None:
            cls._server = await cls.make().__aenter__()
            atexit.register(cls._server.end)
        return cls._server.url


def free_port(runtime: Runtime) -> int:
    """A free port, for a server that cannot take over a listening socket."""
    while True:
        port = _PORTS[int.from_bytes(runtime.random_bytes(4), "big") % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
