"""The double as a process of its own, which can be killed and started again on its data."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, SystemRuntime, sleep
from gesta.testing.postgres_server import DIE_WITH_PARENT, free_port

START_SECONDS = 20.0


class DoubleProcess:
    """`kill` ends it as a crash does; `start` starts it again on the same data and port."""

    def __init__(self, *, runtime: Runtime | None = None) -> None:
        self._runtime = runtime or SystemRuntime()
        self._folder, self.port = "", 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"kurrentdb://127.0.0.1:{self.port}?Tls=false"

    async def __aenter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="gesta-kurrentdb-double-")
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
        """Start and wait until it accepts connections."""
        self._process = self._serve()
        end = self._runtime.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or self._runtime.monotonic() > end:
                raise GestaError("the KurrentDB double did not start; its error is above")
            await sleep(self._runtime, 0.02)

    def _serve(self) -> subprocess.Popen[bytes]:
        prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else ()
        return subprocess.Popen(  # noqa: S603 -- our own arguments
            [
                *prefix,
                sys.executable,
                *("-m", "gesta.testing.kurrentdb_double", self._folder, str(self.port)),
            ],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(Path(self._folder), ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False
