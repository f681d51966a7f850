"""Runs the demo in a temporary folder, ends it cleanly on signals, and returns the exit code."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Self

import msgspec

from gesta.demo.orders import OrderResult
from gesta.demo.screen import Screen
from gesta.demo.stage import Stage, set_up
from gesta.demo.story import Story
from gesta.demo.worker_process import Stuck
from gesta.runtime.clock import Runtime, SystemRuntime
from gesta.runtime.redaction import scrub
from gesta.testing.scratch_store import ChosenStore, ScratchStore, is_postgresql, scratch_store

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The first signal cancels the task that created this; later ones are ignored, so that the
    cleanup completes.
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


FAILED = 1
TITLE = "gesta demo: every mishap once, all of it on this machine"


async def perform(*, stay: bool, chosen: ChosenStore, json: bool) -> int:
    """0; 1 when a promise was broken; 128 plus the signal number when interrupted."""
    # The story replaces this process's log; the worker's log is a file in the folder.
    logging.getLogger("gesta").addHandler(logging.NullHandler())
    with Interruption() as interruption:
        return await _perform(interruption, stay=stay, chosen=chosen, json=json)


async def _perform(
    interruption: Interruption, *, stay: bool, chosen: ChosenStore, json: bool
) -> int:
    runtime = SystemRuntime()
    screen = Screen(runtime, json=json)
    folder = Path(tempfile.mkdtemp(prefix="gesta-demo-"))
    kept = (
        "the worker's log"
        if is_postgresql(chosen.url)
        else "the store, its key and the worker's log"
    )
    # The demo's own server or schema is removed at the end, so there is nothing to keep.
    is_kept = stay and not is_postgresql(chosen.url)
    try:
        async with scratch_store(chosen, folder, "demo", runtime) as store:
            result = await _play(store, folder, screen, runtime, stay=stay)
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
            screen.aside(f"Kept in {folder}: {kept}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if result.is_right else FAILED


async def _play(
    store: ScratchStore, folder: Path, screen: Screen, runtime: Runtime, *, stay: bool
) -> OrderResult:
    screen.title(TITLE)
    screen.act("The stage")
    async with set_up(store, folder, screen, runtime) as stage:
        story = Story(stage)
        await story.tell()
        if not stay:
            # With the worker stopped nothing more can arrive, so the count is final.
            await stage.worker.stop()
        result = await story.count()
        screen.show(result)
        if stay:
            await _stay(stage, _way_in(store, folder), result)
        elif result.is_right:
            screen.aside("To look around yourself: gesta demo --stay")
    return result


def _way_in(store: ScratchStore, folder: Path) -> str:
    """The command that another terminal needs first.

    A password or a key is written to a private file, never to the screen.
    """
    if store.master_key is None:
        return f"export GESTA_URL={scrub(store.url)}"
    path = folder / "gesta.toml"
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        # A JSON string is a TOML string, too.
        file.writelines(
            f"{name} = {msgspec.json.encode(value).decode()}\n"
            for name, value in (*store.urls.items(), ("master_key", store.master_key))
        )
    return f"export GESTA_FILE={path}"


async def _stay(stage: Stage, way_in: str, result: OrderResult) -> None:
    """Keep receiver and worker running until Ctrl-C."""
    gesta = _command()
    repeated = [tally for tally in result.tallies if tally.received > 1]
    message = '{"type": "order.paid", "data": {"order": "B-1"}, "endpoint": "warehouse"}'
    stage.screen.act("It keeps running. Look at it from another terminal; Ctrl-C ends it")
    stage.screen.commands(
        [
            way_in,
            f"{gesta} list",
            *(f"{gesta} show {tally.id}  # {tally.order}: {tally.shows}" for tally in repeated),
            f"{gesta} submit notification.webhook '{message}' --wait 5s",
        ]
    )
    try:
        await stage.worker.ended()
    except asyncio.CancelledError:
        return
    raise Stuck("Ctrl-C: the worker ended by itself")


def _command() -> str:
    """The command for this installation of gesta, from any folder."""
    script = Path(sys.executable).with_name("gesta")
    if not script.exists():
        return f"{sys.executable} -m gesta"
    return "gesta" if shutil.which("gesta") == str(script) else str(script)
