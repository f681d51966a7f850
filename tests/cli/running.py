"""Commands and engines that run: what a command answers, commands in processes of their own, an
engine that does what waits.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import apsw
import msgspec

from gesta import Engine
from gesta.runtime import clock as runtime
from tests.cli.shop import Note, note

DEADLINE_SECONDS = 20


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def items(self) -> list[Any]:
        """The items of a list; the whole answer is `{"items": […], "next": …}`."""
        assert set(self.json) == {"items", "next"}
        return list(self.json["items"])

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Cli(Protocol):
    def __call__(self, *arguments: str, stdin: str = "") -> Answer: ...


class Running:
    """A command in a process of its own."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gesta", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.heard = ""

    def wait_for(self, text: str) -> None:
        """Read stderr until it says this."""
        assert self.process.stderr is not None
        while text not in self.heard:
            line = self.process.stderr.readline()
            assert line, f"ended without saying {text!r}: {self.heard}"
            self.heard += line

    def end(self, signal_number: int | None = None) -> Answer:
        """Signal it, if that is asked for, and wait for its end."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=DEADLINE_SECONDS)
        return Answer(self.process.returncode, out, self.heard + err)


def eventually(condition: Callable[[], bool]) -> None:
    """Look until it is so."""
    until = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < until, "it never came to be so"
        time.sleep(0.02)


def work(*notes: Note, key: str | None = None) -> list[str]:
    """Submit notes and let an engine do all that waits in the store, until the views show how their
    attempts ended; their ids.
    """

    async def until_attempted() -> list[str]:
        async with Engine("sqlite:///gesta.db", flows=[note]) as engine:
            ids = [(await engine.submit(one, key=key)).id for one in notes]
            clock = engine.pipeline.runtime
            until = clock.monotonic() + DEADLINE_SECONDS
            while await engine.admin.unseen() or not all(
                [(await engine.get(one)).state.attempts for one in ids]
            ):
                assert clock.monotonic() < until, "it was never attempted"
                await runtime.sleep(clock, 0.01)
            return ids

    return runtime.run(until_attempted())


def events_in(path: str = "gesta.db") -> int:
    """How many events a store has."""
    db = apsw.Connection(path)
    try:
        return int(str(db.execute("select count(*) from events").get))
    finally:
        db.close()
