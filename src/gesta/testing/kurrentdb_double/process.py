"""The double as a process of its own, which can be killed and started again on its data."""

import socket
import subprocess
import sys
from contextlib import suppress

from gesta.testing.server_process import ServerProcess


class DoubleProcess(ServerProcess):
    name = "KurrentDB-double"
    start_seconds = 20.0

    @property
    def url(self) -> str:
        return f"kurrentdb://127.0.0.1:{self.port}?Tls=false"

    def _serve(self) -> subprocess.Popen[bytes]:
        module = "gesta.testing.kurrentdb_double"
        return self._run(sys.executable, "-m", module, self._folder, str(self.port))

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False
