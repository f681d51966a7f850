"""One performance of the demo: a folder that goes away afterwards, signals that end it in order, an exit code that means something."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from gesta.cli.exit_codes import FAILED
from gesta.demo.orders import Result
from gesta.demo.screen import Screen
from gesta.demo.stage import Stage, set_up
from gesta.demo.story import Story
from gesta.demo.waiting import Stuck
from gesta.runtime import Runtime, SystemRuntime
from gesta.scrub import scrub

TITLE = "gesta demo: nine requests, every mishap once, all of it on this machine"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The first signal cancels the performance; more of them change nothing, so that everything is put away in order."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._task = asyncio.current_task()
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._interrupt, number)

    def _interrupt(self, number: int) -> None:
        if self.number is None and self._task is not None:
            self.number = number
            self._task.cancel()


async def perform(*, stay: bool, url: str | None, json: bool) -> int:
    """The exit code: 0, 1 when something was not as promised, 128 and the signal's number when interrupted."""
    # What the engine of this process would log is told by the story in words; the worker's log is a file in the folder.
    logging.getLogger("gesta").addHandler(logging.NullHandler())
    runtime, interruption = SystemRuntime(), Interruption()
    screen = Screen(runtime, json=json)
    folder = Path(tempfile.mkdtemp(prefix="gesta-demo-"))
    is_kept = stay
    try:
        result = await _play(url or f"sqlite:///{folder}/gesta.db", folder, screen, runtime, stay=stay)
        is_kept |= not result.is_right
    except Stuck as stuck:
        is_kept = True
        screen.fail(f"The demo {stuck}.")
        return FAILED
    except asyncio.CancelledError:
        if interruption.number is None:
            raise
        screen.fail("Interrupted. Nothing is left running.")
        return 128 + interruption.number
    finally:
        if is_kept:
            screen.aside(f"Kept in {folder}: the store, its key and the worker's log.")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if result.is_right else FAILED


async def _play(url: str, folder: Path, screen: Screen, runtime: Runtime, *, stay: bool) -> Result:
    screen.title(TITLE)
    screen.act("The stage")
    async with set_up(url, folder, screen, runtime) as stage:
        story = Story(stage)
        await story.tell()
        if not stay:
            # With the worker gone nothing more can arrive, so that the count is final.
            await stage.worker.stop()
        result = await story.count()
        screen.show(result)
        if stay:
            await _stay(stage, url, result)
        elif result.is_right:
            screen.aside("To look around yourself: gesta demo --stay")
    return result


async def _stay(stage: Stage, url: str, result: Result) -> None:
    """Keep receiver and worker running until Ctrl-C, which is how this is meant to end."""
    gesta = _command()
    told = [tally for tally in result.tallies if tally.received > 1]
    message = '{"type": "order.paid", "data": {"order": "B-1"}, "endpoint": "warehouse"}'
    stage.screen.act("It keeps running. Look at it from another terminal; Ctrl-C ends it")
    stage.screen.commands(
        [
            f"export GESTA_URL={scrub(url)}",
            f"{gesta} list",
            *(f"{gesta} show {tally.id}  # {tally.order}: {tally.shows}" for tally in told),
            f"{gesta} send notification.webhook '{message}' --wait 5",
        ]
    )
    try:
        await stage.worker.ended()
    except asyncio.CancelledError:
        return
    raise Stuck("Ctrl-C: the worker ended by itself")


def _command() -> str:
    """How to call this gesta, and no other that may be installed, from any folder."""
    script = Path(sys.executable).with_name("gesta")
    if not script.exists():
        return f"{sys.executable} -m gesta"
    return "gesta" if shutil.which("gesta") == str(script) else str(script)
