"""A server of streams that leaves no connection open, for the double of a mail server and for
tests.

`asyncio.start_server` alone may: the task of a connection that was taken in the last moment is
cancelled before its first line, and no
`finally` of it closes anything.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from gesta.runtime.clock import spawn, turn

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
#: Until a connection that the loop has taken is known to us.
_TURNS_TO_MEET = 3


class StreamServer:
    """Runs `serve` for each connection, and closes it afterwards.

    At the end every connection is reset and every `serve` is over.
    """

    def __init__(
        self,
        serve: Serve,
        listening: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        limit: int = 2**16,
    ) -> None:
        self._serve, self._listening, self._tls, self._limit = serve, listening, tls, limit
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._meet, sock=self._listening, ssl=self._tls, limit=self._limit
        )
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        # No new ones, and those on their way get here: a server that closes under one forgets it
        # (Python 3.11).
        asyncio.get_running_loop().remove_reader(self._listening)
        for _turn in range(_TURNS_TO_MEET):
            await turn()
        self._server.close()
        serving = list(self._serving.items())
        for task, writer in serving:
            writer.transport.abort()
            task.cancel()
        for task, _writer in serving:
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: called as soon as the connection is there.
        task = spawn(self._serve(reader, writer), "stream")
        self._serving[task] = writer
        task.add_done_callback(self._hang_up)

    def _hang_up(self, task: asyncio.Task[None]) -> None:
        self._serving.pop(task).close()
