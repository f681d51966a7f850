"""The program that test_kill.py kills: submits without end, or (`--rest`) only works off what is
there.

With `--tell FILE` a handler writes down its events. Prints `n flow id` for each request once
it is acknowledged. Orders go to a receiver that remembers keys; parcels to one that
remembers nothing, so after an unknown outcome they are left to a person.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from pathlib import Path

from gesta import Attempt, Done, Engine, Event, Flow, Outcome, Payload, RetryPolicy
from gesta.domain.commands import Rules
from gesta.runtime.settings import load
from tests.short_leases import shorten_leases

RETRY = RetryPolicy(attempts=100, base_seconds=0.02, cap_seconds=0.1)


class Order(Payload, frozen=True):
    n: int


class Parcel(Payload, frozen=True):
    n: int


def flows(url: str) -> list[Flow]:
    async def order(payload: Order, attempt: Attempt) -> Outcome:
        answer = await attempt.http.post(
            f"{url}/orders", json={"n": payload.n}, headers={"Idempotency-Key": attempt.key}
        )
        return Done(id=answer["id"])

    async def parcel(payload: Parcel, attempt: Attempt) -> Outcome:
        answer = await attempt.http.post(f"{url}/parcels", json={"n": payload.n})
        return Done(id=answer["id"])

    return [
        Flow("walk.order", Order, order, Rules(RETRY, "resend"), timeout_seconds=5),
        Flow("walk.parcel", Parcel, parcel, Rules(RETRY, "manual"), timeout_seconds=5),
    ]


def open_engine(path: str, url: str, *, work: bool = True) -> Engine:
    store = path if "://" in path else f"sqlite:///{path}"
    settings = load({"url": store, "allow_private": ["127.0.0.1/32"], "log_level": "critical"})
    return Engine(flows=flows(url), settings=settings, work=work)


def write_down(engine: Engine, file: str) -> None:
    """A handler that leaves a line for each end of a request; a kill after the line and before the
    checkpoint repeats it.
    """

    @engine.on("walk.*", "completed", "failed", "unknown", name="ledger")
    async def tell(event: Event) -> None:
        await asyncio.sleep(0)
        with Path(file).open("a") as out:
            out.write(f"{event.position} {event.request_id} {event.status}\n")


async def main(path: str, url: str, first: int, *, rest: bool, tell: str | None) -> None:
    shorten_leases()
    engine = open_engine(path, url)
    if tell is not None:
        write_down(engine, tell)
    async with engine:
        if rest:
            await asyncio.Event().wait()
        numbers = itertools.count(first)

        async def submitter() -> None:
            for n in numbers:
                payload = Order(n) if n % 2 else Parcel(n)
                request = await engine.submit(payload, key=str(n))
                print(n, request.flow, request.id, flush=True)
                await asyncio.sleep(0.002)

        await asyncio.gather(*(submitter() for _ in range(8)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("url")
    parser.add_argument("first", type=int)
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--tell")
    options = parser.parse_args()
    asyncio.run(
        main(options.path, options.url, options.first, rest=options.rest, tell=options.tell)
    )
