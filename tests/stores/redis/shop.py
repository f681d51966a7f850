"""A worker process on a store and a queue on Redis: `python -m tests.stores.redis.shop FOLDER URL`.

Each effect is a line in the log that all processes share (tests/processes/member.py).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload, RetryPolicy
from gesta.domain.commands import Rules
from gesta.runtime.clock import run
from gesta.runtime.settings import load
from tests.processes.member import Log
from tests.short_leases import shorten_leases

RETRY = RetryPolicy(attempts=100, base_seconds=0.02, cap_seconds=0.1)


class Order(Payload, frozen=True):
    """To a receiver that remembers our key."""

    n: int


class Parcel(Payload, frozen=True):
    """The same, of another flow."""

    n: int


def engine_on(folder: Path, queue_url: str, log: Log | None = None, *, work: bool) -> Engine:
    async def act(payload: Order | Parcel, attempt: Attempt) -> Outcome:
        if log is not None:
            log.write("effect", n=payload.n, key=attempt.key)
        await asyncio.sleep(0.02)
        return Done(id=str(payload.n))

    urls = {"url": f"sqlite:///{folder / 'gesta.db'}", "queue_url": queue_url}
    return Engine(
        settings=load({**urls, "log_level": "critical"}),
        flows=[
            Flow("shop.order", Order, act, Rules(RETRY, "resend"), concurrency=8),
            Flow("shop.parcel", Parcel, act, Rules(RETRY, "resend"), concurrency=8),
        ],
        work=work,
    )


async def work(folder: Path, queue_url: str) -> None:
    async with engine_on(folder, queue_url, Log(folder), work=True):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    shorten_leases()
    run(work(Path(sys.argv[1]), sys.argv[2]))
