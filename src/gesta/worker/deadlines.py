"""One watch for all time limits: a timer per attempt would cost more than many attempts do."""

from __future__ import annotations

import asyncio
from typing import Any

from gesta.runtime import Runtime, sleep

TICK_SECONDS = 0.25


class Running:
    """An attempt's task, while its executor runs."""

    __slots__ = ("cut_reason", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        #: Why it was cut off; None while it was not.
        self.cut_reason: str | None = None


class Deadlines:
    """Cuts off executors whose time is up, at most a tick late."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ends: dict[Running, float] = {}

    def watch(self, running: Running, seconds: float) -> None:
        self._ends[running] = self._runtime.monotonic() + seconds

    def forget(self, running: Running) -> None:
        self._ends.pop(running, None)

    def cut_all(self, reason: str) -> None:
        for running in list(self._ends):
            self._cut(running, reason)

    def _cut(self, running: Running, reason: str) -> None:
        if running.cut_reason is None and running.task is not None:
            running.cut_reason = reason
            running.task.cancel()

    async def run(self) -> None:
        while True:
            await sleep(self._runtime, TICK_SECONDS)
            now = self._runtime.monotonic()
            for running in [running for running, end in self._ends.items() if end <= now]:
                self._cut(running, "timeout")
