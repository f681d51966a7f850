"""The test's end of its processes: started, talked to, killed, and none left behind; and the log
that they share, read.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.processes.member import LOG

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 100.0


class Member:
    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "tests.processes.member", str(folder), *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> float:
        """When it was killed, on the clock of the log."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at

    def end(self) -> int:
        """Let it end in order."""
        self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode


@contextmanager
def members(folder: Path) -> Iterator[Callable[..., Member]]:
    started: list[Member] = []

    def start(*options: str) -> Member:
        started.append(Member(folder, *options))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            if one.process.poll() is None:
                one.process.kill()
            one.process.communicate()


class Lines:
    """What all processes have logged so far."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG

    def all(self) -> list[dict[str, Any]]:
        text = self._path.read_bytes() if self._path.exists() else b""
        # The last one may be half written.
        return [msgspec.json.decode(line) for line in text.rpartition(b"\n")[0].splitlines()]

    def of(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.all() if line["what"] == what]

    def players(self, what: str) -> list[int]:
        """The processes that did it one after the other, each as often as it took over."""
        pids = [line["pid"] for line in sorted(self.of(what), key=lambda line: line["at"])]
        return [pid for index, pid in enumerate(pids) if index == 0 or pids[index - 1] != pid]

    def is_done_by(self, pid: int, what: str) -> bool:
        return pid in self.players(what)

    def wait_for(self, holds: Callable[[], object], awaited: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < until, (
                f"waited in vain for {awaited}:"
                f" {[line for line in self.all() if line['what'] == 'error'][:3]}"
            )
            time.sleep(0.02)
