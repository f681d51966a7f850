"""How a person or a supervisor stops a process: SIGINT or SIGTERM, once."""

import asyncio
import signal
from types import FrameType
from typing import Self

from gesta.runtime.clock import LastResort, SystemRuntime

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: The longest time from the signal to the end of the process: supervisors kill after 30 s.
STOP_SECONDS = 29.0
#: The longest time from the end of the work to the end of the process: anything still running then
#: will not end by itself.
CLOSE_SECONDS = 1.0


class StopSignal:
    """The first SIGINT or SIGTERM.

    A second one kills the process immediately; a killed process loses nothing.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        # Created now, because no thread can be started safely inside a signal handler.
        self._last_resort = LastResort(SystemRuntime())

    async def __aenter__(self) -> Self:
        # Not through the event loop, because an executor may have blocked it.
        self._before = {each: signal.signal(each, self._come) for each in SIGNALS}
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.has_come:
            self._last_resort.within(CLOSE_SECONDS)
            return
        self._last_resort.dismiss()
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _come(self, _: int, __: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self._last_resort.within(STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._came.set)

    @property
    def has_come(self) -> bool:
        return self._came.is_set()

    async def wait(self) -> None:
        await self._came.wait()
