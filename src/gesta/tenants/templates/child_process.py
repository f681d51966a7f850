"""The parent's end of a child process that renders (`child.py`)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from gesta.errors import RendererDown
from gesta.runtime.clock import Runtime
from gesta.tenants.templates.child import (
    FRAME_BYTES_MAX,
    HEAD_BYTES,
    Answers,
    Batch,
    frame,
    read_answers,
)
from gesta.tenants.templates.renderer import Shelf, refuse_missing_engine

#: A child that has not answered after this is killed. It limits its own CPU time; this is for a
#: machine that gives it no CPU time.
STALL_SECONDS = 10.0


class ChildEnded(Exception):
    """The child ended in the middle of a batch.

    `by_itself`: it was not killed from outside, so one of its orders made it end.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the renderer's process ended with {status}")
        self.by_itself = status not in (0, -signal.SIGKILL)
        self.cause = "takes too much time" if status == -signal.SIGPROF else "takes too much memory"


class Child:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        runtime: Runtime,
    ) -> None:
        self._process, self._reader, self._writer, self._runtime = process, reader, writer, runtime
        #: The templates that it knows.
        self.shelf = Shelf()
        #: It has had no batch yet.
        self.is_fresh = True

    @classmethod
    async def start(cls, runtime: Runtime) -> Child:
        """Raises RendererDown when the process cannot be started."""
        refuse_missing_engine()
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                process = _process(ours, theirs)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except OSError as error:
            raise RendererDown(
                f"its process cannot be started: {error.strerror or error}"
            ) from None
        child = cls(process, reader=reader, writer=writer, runtime=runtime)
        try:
            await child.answers()
        except ChildEnded:
            raise RendererDown(
                "its process ended while it started; check the free memory"
            ) from None
        except BaseException:
            child.end()
            raise
        return child

    def ask(self, batch: Batch) -> None:
        self.is_fresh = False
        self._writer.write(frame(batch))

    async def answers(self) -> Answers:
        """The next answers to the batch, in its order. Raises ChildEnded when none will come."""
        timer = self._runtime.call_later(STALL_SECONDS, self._process.kill)
        try:
            length = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
            if length <= FRAME_BYTES_MAX:
                return read_answers(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError):
            pass
        finally:
            timer.cancel()
        raise ChildEnded(self.end())

    def end(self) -> int:
        """Kill the process if it still runs; returns its exit status."""
        self._writer.transport.abort()
        self._process.kill()
        return self._process.wait()


def _process(ours: socket.socket, theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The modules of this process and nothing else of its environment, which may contain secrets.
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gesta.tenants.templates.child"],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": path},
        )
    except OSError:
        ours.close()
        raise
