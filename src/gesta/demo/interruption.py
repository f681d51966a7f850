"""Signals that end a demo or a benchmark in order, so that nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The first signal cancels the task that made this; more of them change nothing, so that
    everything is put away in order.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._task = asyncio.current_task()

    def __enter__(self) -> Self:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._interrupt, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _interrupt(self, number: int) -> None:
        if self.number is None and self._task is not None:
            self.number = number
            self._task.cancel()
