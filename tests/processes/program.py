"""A program whose flows other processes run in parts: `gesta worker --app
tests.processes.program:engine`, in the folder of the file, or of one that names
a store elsewhere.

What its executors do goes into the log that all processes share. `brisk` is the same engine in a
process with short leases; `hurried` has little time to stop, too.
"""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gesta.cli.stop_signal
from gesta import Attempt, Done, Engine, Flow, Outcome, Payload, RetryPolicy
from gesta.domain.commands import Rules
from gesta.engine.environment import Environment, Wiring
from gesta.runtime.settings import Settings, load
from tests.processes.member import Log
from tests.short_leases import shorten_leases

RETRY = RetryPolicy(attempts=100, base_seconds=0.02, cap_seconds=0.1)
#: Longer than any test waits: who ends before has not waited for it.
ENDLESS_SECONDS = 600.0
#: Not secret: it protects nothing but the stores of one test.
MASTER_KEY = base64.b64encode(bytes(range(32))).decode()


class Card(Payload, frozen=True):
    """To one that remembers nothing: after an unknown outcome a person decides."""

    n: int
    seconds: float = 0.0
    #: awaits, swallows its cancellation, blocks the event loop, or waits in a thread.
    how: str = "awaits"


class Mail(Payload, frozen=True):
    """To one that remembers our key."""

    n: int


class Fax(Payload, frozen=True):
    """Of a flow that no worker is asked to take."""

    n: int


def declared(folder: Path) -> list[Flow]:
    log = Log(folder)

    async def act(payload: Any, attempt: Attempt) -> Outcome:
        log.write("effect", n=payload.n, key=attempt.key, flow=attempt.flow)
        if isinstance(payload, Card):
            await _take_time(payload)
        return Done(id=str(payload.n))

    return [
        Flow(
            "pay.card",
            Card,
            act,
            Rules(RETRY, "manual"),
            concurrency=8,
            timeout_seconds=2 * ENDLESS_SECONDS,
        ),
        Flow("note.mail", Mail, act, Rules(RETRY, "resend")),
        Flow("note.fax", Fax, act, Rules(RETRY, "manual")),
    ]


async def _take_time(card: Card) -> None:
    end = time.monotonic() + card.seconds
    match card.how:
        case "swallows":
            while (left := end - time.monotonic()) > 0:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(left)
        case "blocks":
            time.sleep(card.seconds)
        case "in a thread":
            await asyncio.to_thread(time.sleep, card.seconds)
        case _:
            await asyncio.sleep(card.seconds)


def engine_on(folder: Path) -> Engine:
    """To submit and look. The store is the file of the folder, or what stands in its file `url`."""
    elsewhere = folder / "url"
    chosen = (
        {"url": elsewhere.read_text(), "master_key": MASTER_KEY}
        if elsewhere.exists()
        else {"url": f"sqlite:///{folder / 'gesta.db'}"}
    )
    return Engine(settings=load(chosen), flows=declared(folder), work=False)


def __getattr__(name: str) -> Engine:
    # Only a process that runs the flows has a log in its folder.
    if name not in ("engine", "brisk", "hurried"):
        raise AttributeError(name)
    if name != "engine":
        shorten_leases()
    if name == "hurried":
        gesta.cli.stop_signal.STOP_SECONDS = 3.0
        wire = Wiring.wire

        async def hurried(settings: Settings) -> Environment:
            return replace(await wire(settings), drain_seconds=0.5)

        Wiring.wire = staticmethod(hurried)
    return engine_on(Path())
