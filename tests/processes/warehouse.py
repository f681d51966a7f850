"""Processes around work that others execute: `serve` runs the pipeline, `pick` executes, `hold`
takes work and sits on it.

What they do goes as JSON lines into a log that all of them share, each line written before the next
thing is done.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
from pathlib import Path

import msgspec

from gesta import Engine, Payload, RetryPolicy, external
from gesta.errors import LeaseLost
from gesta.runtime.settings import load
from gesta.worker.external import RecordSent

MASTER_KEY = base64.b64encode(b"k" * 32).decode()
#: The shortest there is, so that a death is noticed soon.
LEASE_SECONDS = 1.0
RETRY = RetryPolicy(attempts=50, base_seconds=0.05, cap_seconds=0.2)


class Kept(Payload, frozen=True):
    """To shelves that remember our key."""

    n: int


class Left(Payload, frozen=True):
    """To shelves that remember nothing: after an unknown outcome a person decides."""

    n: int


FLOWS = {"shelf.kept": "resend", "shelf.left": "manual"}


def engine_on(url: str, *, work: bool) -> Engine:
    flows = [
        external(
            "shelf.kept",
            payload=Kept,
            lease_seconds=LEASE_SECONDS,
            on_unknown="resend",
            retry=RETRY,
        ),
        external(
            "shelf.left",
            payload=Left,
            lease_seconds=LEASE_SECONDS,
            on_unknown="manual",
            retry=RETRY,
        ),
    ]
    settings = load({"url": url, "master_key": MASTER_KEY, "log_level": "critical"})
    return Engine(settings=settings, flows=flows, work=work)


class Log:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, request_id: str, key: str = "", token: str = "") -> None:
        line = {"what": what, "id": request_id, "key": key, "token": token}
        os.write(self._file, msgspec.json.encode(line) + b"\n")


async def pick(engine: Engine, log: Log, flow: str) -> None:
    while True:
        for item in await engine.external.take(flow, limit=3, wait_seconds=1):
            log.write("taken", item.id, item.key, item.token)
            await asyncio.sleep(0.01)
            log.write("effect", item.id, item.key)
            await asyncio.sleep(0.01)
            try:
                await engine.external.report(
                    flow, item.id, item.token, RecordSent(attempts=item.attempt)
                )
            except LeaseLost:
                log.write("lost", item.id)
            else:
                log.write("reported", item.id)


async def main(mode: str, url: str, path: Path) -> None:
    async with engine_on(url, work=mode == "serve") as engine:
        log = Log(path)
        if mode == "pick":
            print("ready", flush=True)
            await asyncio.gather(*(pick(engine, log, flow) for flow in FLOWS))
        if mode == "hold":
            for flow in FLOWS:
                for item in await engine.external.take(
                    flow, limit=10, wait_seconds=10, lease_seconds=60
                ):
                    log.write("taken", item.id, item.key, item.token)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["serve", "pick", "hold"])
    parser.add_argument("url")
    parser.add_argument("log", type=Path)
    options = parser.parse_args()
    asyncio.run(main(options.mode, options.url, options.log))
