"""A process that has imported the engine and makes forks of itself: see tests/warm_start.py."""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.warm_start import MESSAGE_MAX

#: What most programs import. Nothing of these starts a thread, which a fork would lose.
IMPORTED = """concurrent.futures.thread pydantic.type_adapter uvloop
    gesta.admin.admin gesta.admin.wording gesta.cli.backend gesta.cli.flows gesta.cli.main
    gesta.client gesta.engine.engine gesta.flows.email gesta.flows.payment.card
    gesta.flows.payment.settlement gesta.flows.payment.transfer gesta.flows.slack gesta.flows.sms
    gesta.flows.webhook gesta.http_api.app gesta.http_api.server gesta.intake.inbound.webhook
    gesta.stores.postgresql gesta.stores.sqlite""".split()


def main(channel: socket.socket) -> None:
    # A shell that starts the tests in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    # A fork shares the pages of what no test touches.
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(channel, MESSAGE_MAX, 3)
        if not message:
            return
        answer = _forked()
        if answer is None:
            channel.close()
            become(json.loads(message), streams)
            return
        for stream in streams:
            os.close(stream)
        channel.send(answer)


def _forked() -> bytes | None:
    """The id of the fork, and None in the fork itself. It has lost its parent, which is another
    fork: so it is a child of the test's process.
    """
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        between = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.close(writing)
            while os.getppid() == between:
                # It ends at once; until then, this is not a child of the test's process.
                os.sched_yield()
            return None
        os.write(writing, str(child).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    answer = os.read(reading, 64)
    os.close(reading)
    os.close(writing)
    return answer


def become(start: dict[str, Any], streams: list[int]) -> None:
    """Do what `python` does with these arguments."""
    if start["new_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(streams) + 1)
    os.environ.clear()
    os.environ.update(start["environment"])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(start["folder"])
    _open_streams()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    named = os.environ.get("PYTHONPATH", "")
    sys.path[1:] = [*filter(None, named.split(os.pathsep)), *LIBRARIES]
    first, *others = start["arguments"]
    if first == "-m":
        sys.path[0], sys.argv[:] = str(Path.cwd()), others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv[:] = str(Path(first).absolute().parent), [first, *others]
        runpy.run_path(first, run_name="__main__")


def _open_streams() -> None:
    """As the interpreter does when it starts."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        stream = io.TextIOWrapper(
            open(number, "wb", 0 if is_unbuffered else -1, closefd=False),  # noqa: SIM115
            before.encoding,
            before.errors,
            line_buffering=number == 2 or os.isatty(number),
            write_through=is_unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    # Its folder and PYTHONPATH, then the libraries.
    LIBRARIES = [*sys.path[2:], sys.path[1]]
    main(socket.socket(fileno=int(sys.argv[1])))
