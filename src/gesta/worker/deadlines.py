"""Time limits of attempts, checked by one task: a timer per attempt would cost more than many
attempts do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gesta.runtime.clock import Runtime, sleep

if TYPE_CHECKING:
    from gesta.worker.attempt import Running

TICK_SECONDS = 0.25
#: A cancelled executor gets this long to close its files; then it is abandoned.
GRACE_SECONDS = 5.0


class Deadlines:
    """Cancels executors that have exceeded their time limit, at most a tick late."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ends: dict[Running, float] = {}
        #: Called with an attempt that was cancelled and does not end.
        self.abandon: Callable[[Running], None] = lambda _: None

    def watch(self, running: Running, seconds: float) -> None:
        self._ends[running] = self._runtime.monotonic() + seconds

    def forget(self, running: Running) -> None:
        self._ends.pop(running, None)

    def cut_all(self, reason: str, grace_seconds: float = GRACE_SECONDS) -> None:
        for running in list(self._ends):
            self._cut(running, reason, grace_seconds)

    def _cut(self, running: Running, reason: str, grace_seconds: float) -> None:
        end = self._runtime.monotonic() + grace_seconds
        if running.cut_reason is not None:
            self._ends[running] = min(self._ends[running], end)
        elif running.task is not None:
            running.cut_reason = reason
            self._ends[running] = end
            running.task.cancel()

    async def run(self) -> None:
        while True:
            await sleep(self._runtime, TICK_SECONDS)
            now = self._runtime.monotonic()
            for running in [running for running, end in self._ends.items() if end <= now]:
                if running.cut_reason is None:
                    self._cut(running, "timeout", GRACE_SECONDS)
                else:
                    self.forget(running)
                    self.abandon(running)
