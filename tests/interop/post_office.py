"""An engine that adopts jobs, and a process of it that dies at a point:
`python -m tests.interop.post_office FOLDER QUEUE_URL PORT.METHOD`.

The process kills itself with SIGKILL as soon as that call has ended (`foreign_jobs.settle`: before
it begins), where the call concerns a job of another program.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gesta import Attempt, Done, Engine, Outcome, Payload, flow
from gesta.engine.environment import Wiring
from gesta.flows import email, slack
from gesta.intake import adoption
from gesta.runtime.clock import run
from gesta.runtime.settings import load
from tests.short_leases import shorten_leases

SENDER = {"kind": "smtp", "tls": "none", "from_address": "shop@example.com"}


class Order(Payload, frozen=True):
    n: int


@flow("shop.order", on_unknown="resend")
async def order(payload: Order, _attempt: Attempt) -> Outcome:
    return Done(id=str(payload.n))


def engine_on(folder: Path, queue_url: str, *, work: bool = True, **settings: Any) -> Engine:
    given = {
        "url": f"sqlite:///{folder / 'gesta.db'}",
        "queue_url": queue_url,
        "allow_private": ["127.0.0.0/8"],
        "log_level": "critical",
    }
    return Engine(
        settings=load(given | settings), flows=[email.flow(), slack.flow(), order], work=work
    )


class Deadly:
    """A port whose process dies at one of its methods."""

    def __init__(self, port: Any, method: str) -> None:
        self._port, self._method = port, method

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._port, name)
        return real if name != self._method else lambda *args: self._die(real, args)

    async def _die(self, real: Any, args: tuple[Any, ...]) -> Any:
        if self._method == "settle":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await real(*args)
        if self._method == "take" and answer:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._method == "append" and any("email" in one.stream for one in args[0]):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


async def work(folder: Path, queue_url: str, point: str) -> None:
    wire_really, (port, method) = Wiring.wire, point.split(".")

    async def wire(settings: Any) -> Any:
        environment = await wire_really(settings)
        deadly: Any = {port: Deadly(getattr(environment.stores, port), method)}
        return replace(environment, stores=replace(environment.stores, **deadly))

    Wiring.wire = staticmethod(wire)
    async with engine_on(folder, queue_url):
        await asyncio.Event().wait()


if __name__ == "__main__":
    shorten_leases()
    adoption.LEASE_SECONDS, adoption.RENEWAL_SECONDS = 1.0, 0.25
    run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
