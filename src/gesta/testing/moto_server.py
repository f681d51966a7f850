"""Amazon SQS for tests: moto's server, which is a fake of it, on a free port of this machine.

`MotoServer` is a process of its own with the real time. `moto_with_clock` runs in this process, one
request at a time, and its clock is a function of the test.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, Self

from gesta.runtime.clock import SystemRuntime

#: The server takes any credentials; Amazon's client wants some, and finds these in the environment.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret"}
REGION = "eu-west-1"


class MotoServer:
    """`async with MotoServer() as server`: `server.url` is its address, for `endpoint=`."""

    url: str
    _process: subprocess.Popen[str]

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._process.kill()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._process.wait()

    def queue_url(self, prefix: str, visibility_seconds: int | None = None) -> str:
        more = "" if visibility_seconds is None else f"&visibility={visibility_seconds}"
        return f"sqs://{REGION}/{prefix}?endpoint={self.url}{more}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "Running on http" in line:
                self.url = line.split()[-1]
                break
        else:
            self.end()
            raise RuntimeError("moto's server ended before it listened")
        # It logs every request: unread, the pipe would fill up and the server would stand still.
        SystemRuntime().thread(_reader(self._process.stderr), "moto-log")


def _reader(log: IO[str]) -> Callable[[], None]:
    def read() -> None:
        for _ in log:
            pass

    return read


def moto_with_clock(now_ms: Callable[[], float]) -> str:
    """The URL of a server in this process that ends with it. Its time is `now_ms`."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.sqs import models
    from werkzeug.serving import make_server

    clock: Any = models
    clock.unix_time_millis = now_ms
    clock.unix_time = lambda: now_ms() / 1000
    # Visible again at the end of the timeout, and not a moment later.
    clock.Message.visible = property(lambda message: now_ms() >= message.visible_at)
    app = DomainDispatcherApplication(create_backend_app)
    # One request at a time: moto's queues have no locks.
    server = make_server("127.0.0.1", 0, app, threaded=False)
    SystemRuntime().thread(server.serve_forever, "moto")
    return f"http://127.0.0.1:{server.server_port}"
