"""One of several processes on one file.

What it does and sees goes as JSON lines into a log that all of them share.

Works (`--work`), submits (`--submit FIRST COUNT`), or opens one file after the other as stdin names
them (`--openings`). Ends when stdin does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from gesta import Attempt, Done, Engine, Flow, GestaError, Outcome, Payload, RetryPolicy
from gesta.domain.commands import Rules
from gesta.runtime.clock import run
from gesta.runtime.settings import load

RETRY = RetryPolicy(attempts=100, base_seconds=0.02, cap_seconds=0.1)
LOG = "log"


class Order(Payload, frozen=True):
    """To a receiver that remembers our key."""

    n: int


class Parcel(Payload, frozen=True):
    """To one that remembers nothing: after an unknown outcome a person decides."""

    n: int


def payload(n: int) -> Payload:
    return Order(n) if n % 2 else Parcel(n)


class Log:
    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, **known: Any) -> None:
        # One call of the system, so that lines of several processes do not mix and a kill leaves no
        # half of one. The clock is that
        # of the machine, the same for all of its processes.
        line = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **known}
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def flows(log: Log | None) -> list[Flow]:
    async def act(payload: Order | Parcel, attempt: Attempt) -> Outcome:
        if log is not None:
            log.write("effect", n=payload.n, key=attempt.key)
        await asyncio.sleep(0.002)
        return Done(id=str(payload.n))

    return [
        Flow("shop.order", Order, act, Rules(RETRY, "resend")),
        Flow("shop.parcel", Parcel, act, Rules(RETRY, "manual")),
    ]


def engine_on(folder: Path, log: Log | None = None, *, work: bool) -> Engine:
    return Engine(
        settings=load({"url": f"sqlite:///{folder / 'gesta.db'}", "log_level": "critical"}),
        flows=flows(log),
        work=work,
    )


#: For commands: `--app tests.processes.member:engine`, in the folder of the file.
engine = engine_on(Path(), work=False)


async def member(folder: Path, options: argparse.Namespace) -> None:
    log = Log(folder)
    async with engine_on(folder, log, work=options.work) as engine:
        pipeline, sweep = engine.pipeline, engine.pipeline.sweep.step

        async def swept() -> None:
            log.write("swept")
            await sweep()

        pipeline.sweep.step = swept  # type: ignore[method-assign]
        pipeline.projector.listen(lambda _: log.write("projected"))
        log.write("ready")
        print("ready", flush=True)
        if options.submit is not None:
            await submit(engine, log, *options.submit, pause=options.pause)
        await asyncio.to_thread(sys.stdin.read)


async def submit(engine: Engine, log: Log, first: int, count: int, *, pause: float) -> None:
    numbers = iter(range(first, first + count))

    async def submitter() -> None:
        for n in numbers:
            begun = time.monotonic()
            try:
                request = await engine.submit(payload(n), key=str(n))
            except GestaError as error:
                log.write("error", n=n, text=str(error))
            else:
                log.write("accepted", n=n, id=request.id, begun=begun)
            await asyncio.sleep(pause)

    await asyncio.gather(*(submitter() for _ in range(4)))
    log.write("submitted")


async def openings() -> None:
    """Open each file that is named, submit the same request as everybody, close it, and say what
    came of it.
    """
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        try:
            async with engine_on(Path(line.strip()), work=True) as engine:
                request = await engine.submit(Order(1), key="the same")
            print(request.verdict, request.id, flush=True)
        except Exception as error:
            print("error", f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--submit", type=int, nargs=2)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--openings", action="store_true")
    given = parser.parse_args()
    run(openings() if given.openings else member(given.folder, given))
