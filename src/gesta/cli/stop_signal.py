"""How a person or a supervisor stops a process: SIGINT or SIGTERM, once."""

import asyncio
import signal
from types import FrameType
from typing import Self

from gesta.runtime.clock import LastResort, SystemRuntime

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: From the signal to the end of the process, whatever runs in it: supervisors kill after 30 s.
STOP_SECONDS = 29.0
#: From the end of what was to be done to the end of the process: what is left then does not end by
#: itself.
CLOSE_SECONDS = 1.0


class StopSignal:
    """The first SIGINT or SIGTERM.

    A second one kills at once: a killed gesta loses nothing.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        # Made now: inside a handler of signals no thread can be started safely.
        self._last_resort = LastResort(SystemRuntime())

    async def __aenter__(self) -> Self:
        # Not by the event loop, which an executor may have blocked: this is called all the same.
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
