"""One look-up per name at a time, whoever asks for it.

Names are looked up in a few threads that all tenants share. A name whose server does not answer
keeps a thread for many seconds;
a hundred requests to it must not keep a hundred.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from gesta.runtime.clock import spawn

_Name = tuple[str, int, socket.AddressFamily]


class SharedLookups(AbstractResolver):
    """Passes each answer to everybody who asked while it was on its way.

    Nothing is remembered: an answer may change at any time.
    """

    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner
        self._running: dict[_Name, asyncio.Task[list[ResolveResult]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        name = (host, port, family)
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = spawn(
                self._inner.resolve(host, port, family), "gesta-lookup"
            )
            task.add_done_callback(lambda done: self._end(name, done))
        # Shielded: one who gives up must not take the answer from the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        for task in list(self._running.values()):
            task.cancel()
        await self._inner.close()

    def _end(self, name: _Name, task: asyncio.Task[list[ResolveResult]]) -> None:
        del self._running[name]
        if not task.cancelled():
            # Looked at, so that a failure nobody waits for any more is not reported as forgotten.
            task.exception()
