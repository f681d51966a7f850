"""Long-running components of a process: their loop and their supervision.

A component repeats one step for ever; a step waits while there is nothing to do. `repeat` logs a
store outage and retries after a pause. `Components` logs a crash, starts the component again, and
cancels all components at the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from gesta.errors import StoreError
from gesta.runtime.clock import Ids, Runtime, Signal, is_cancelled, sleep, spawn
from gesta.runtime.telemetry import Telemetry

#: After a store failed, before the next try.
STORE_PAUSE_SECONDS = 1.0
#: After a component crashed, before it is started again.
RESTART_SECONDS = 1.0

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Process:
    """What the components of one process share."""

    runtime: Runtime
    ids: Ids
    telemetry: Telemetry
    #: The name of this process as the owner of leases.
    owner: str = ""


async def repeat(
    step: Callable[[], Awaitable[object]],
    name: str,
    process: Process,
    *,
    outage: Callable[[], None] = lambda: None,
    pause_seconds: float = STORE_PAUSE_SECONDS,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Call `step` until it is over. When the store fails: log, call `outage`, pause, go on."""
    while not is_over():
        if is_cancelled():
            # A library that the step awaited has swallowed the cancellation.
            raise asyncio.CancelledError
        try:
            await step()
        except StoreError as error:
            process.telemetry.store_failed(name, error)
            outage()
            if pause_seconds:
                await sleep(process.runtime, pause_seconds)


class Components:
    """Starts components, restarts those that crash, and ends them."""

    def __init__(self, process: Process) -> None:
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self.runs: dict[str, Run] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        #: Component → the kind of error it crashed with, until it is started again.
        self._crashed: dict[str, str] = {}

    def start(self) -> None:
        for name, run in self.runs.items():
            self.tasks[name] = spawn(self._keep_running(name, run), f"gesta-{name}")

    def broken(self) -> dict[str, str]:
        """Components that should run and do not: name → what is wrong."""
        gone = {
            name: "does not run"
            for name in self.runs
            if name not in self.tasks or self.tasks[name].done()
        }
        return gone | {
            name: f"crashed ({error}) and is being started again"
            for name, error in self._crashed.items()
        }

    async def end(self, names: Iterable[str], until: float) -> None:
        """Cancel components and wait for their end, at most until `until` (monotonic): a handler
        may swallow its cancellation.
        """
        tasks = {name: task for name in names if (task := self.tasks.pop(name, None)) is not None}
        ended = Signal(self._runtime)
        for task in tasks.values():
            task.add_done_callback(lambda _: ended.set())
            task.cancel()
        while (
            left := [name for name, task in tasks.items() if not task.done()]
        ) and self._runtime.monotonic() < until:
            await ended.wait(until - self._runtime.monotonic())
        for name in left:
            self._telemetry.log.error("component does not stop", component=name)

    async def _keep_running(self, name: str, run: Run) -> None:
        while True:
            try:
                await run()
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                self._telemetry.crashed(name, error)
                self._crashed[name] = type(error).__name__
            await sleep(self._runtime, RESTART_SECONDS)
            self._crashed.pop(name, None)
