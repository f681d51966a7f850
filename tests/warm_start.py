"""Processes of tests that need not import everything again: each is a fork of one that has.

Hundreds of tests start `python -m gesta …` or a program of their own. Each import takes a second of
computing time. A process that is started here is as separate as any other: it has its own memory,
arguments, environment, folder and streams. It is a child of the test's process, which waits for it
and kills it as ever.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: What `python -m` may be asked for, beside files of a test. Everything else is started as ever.
PACKAGES = ("gesta", "tests", "benchmarks")
#: These mean the same to a fork. A test that sets another one of the interpreter wants a new one.
UNDERSTOOD = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
#: In bytes: arguments and environment.
MESSAGE_MAX = 1 << 17
PR_SET_CHILD_SUBREAPER = 36

_cold_popen = subprocess.Popen
_libc = ctypes.CDLL(None, use_errno=True)
#: The process that forks, and the way to it.
_forking: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def install() -> None:
    """From here on, for every process that this one starts."""
    vars(subprocess)["Popen"] = Popen


class Popen(_cold_popen[Any]):
    def _execute_child(self, *given: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        options = inspect.signature(start).bind(*given).arguments
        if not _is_understood(options):
            start(*given)
            return
        ends = ("p2cread", "c2pwrite", "errwrite")
        streams = [
            number if options[end] == -1 else options[end] for number, end in enumerate(ends)
        ]
        message = {
            "arguments": [os.fsdecode(one) for one in options["args"]][1:],
            "folder": os.fsdecode(options["cwd"] or Path.cwd()),
            "environment": {
                os.fsdecode(name): os.fsdecode(value)
                for name, value in (
                    os.environ if options["env"] is None else options["env"]
                ).items()
            },
            "new_session": bool(options["start_new_session"]),
        }
        self.pid = _fork(message, streams)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(
                options[end]
                for end in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            )
        )


def _is_understood(options: dict[str, Any]) -> bool:
    arguments, environment = options["args"], options["env"]
    if isinstance(arguments, str | bytes | os.PathLike) or options["shell"] or options["pass_fds"]:
        return False
    if options["preexec_fn"] or options["executable"] not in (None, sys.executable, arguments[0]):
        return False
    match [os.fsdecode(one) for one in arguments[:3]]:
        case [sys.executable, "-m", module]:
            is_known = module.partition(".")[0] in PACKAGES
        case [sys.executable, file, *_]:
            is_known = file.endswith(".py")
        case _:
            is_known = False
    if not is_known:
        return False
    changed = {} if environment is None else environment
    return not any(
        name.startswith("PYTHON") and name not in UNDERSTOOD and os.environ.get(name) != value
        for name, value in changed.items()
    )


def _fork(message: dict[str, Any], streams: Sequence[int]) -> int:
    """The id of a new child of this process."""
    global _forking  # noqa: PLW0603 -- one for each process of tests
    if _forking is None:
        _forking = _started()
    _, channel = _forking
    # What is forked loses its parent at once and becomes ours; no other process does.
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        socket.send_fds(channel, [json.dumps(message).encode()], streams)
        answer = channel.recv(64)
    finally:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
    assert answer, "the process that forks has ended"
    return int(answer)


def end() -> None:
    """Wait until the process that forks has ended. Those that it forked are not touched."""
    global _forking
    if _forking is None:
        return
    (process, channel), _forking = _forking, None
    with channel:
        # A fork of this process may hold a copy of the channel: closing ours is not enough.
        channel.shutdown(socket.SHUT_RDWR)
    process.wait(60)


def _started() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """It ends when the channel does: see `end`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_MAX)
    with theirs:
        process = _cold_popen(
            [sys.executable, "-m", "tests.warm_process", str(theirs.fileno())],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, ours
