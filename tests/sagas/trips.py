"""A saga that books a trip over HTTP, for tests that kill its process.

As a program it works on a store until it is killed: `python -m tests.sagas.trips STORE RECEIVER`.
"""

from __future__ import annotations

import argparse
import asyncio
from base64 import b64encode

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload, RetryPolicy, Saga, saga
from gesta.domain.commands import Rules
from gesta.runtime.settings import load
from tests.short_leases import shorten_leases

RETRY = RetryPolicy(attempts=100, base_seconds=0.02, cap_seconds=0.1)
PARTS = ("flight", "hotel", "car")
MASTER = b64encode(b"k" * 32).decode()


class Book(Payload, frozen=True):
    what: str


class Unbook(Payload, frozen=True):
    what: str
    id: str


class Trip(Payload, frozen=True):
    name: str


@saga("saga.trip")
async def trip(_: Trip, saga: Saga) -> None:
    for part in PARTS:
        await saga.step(
            part, Book(part), undo=lambda done, part=part: Unbook(f"undo-{part}", done.id)
        )


def flows(url: str) -> list[Flow]:
    async def call(payload: Book | Unbook, attempt: Attempt) -> Outcome:
        answer = await attempt.http.post(
            f"{url}/{payload.what}", json={}, headers={"Idempotency-Key": attempt.key}
        )
        return Done(id=answer["id"])

    rules = Rules(RETRY, "resend")
    return [
        trip,
        Flow("trip.book", Book, call, rules, timeout_seconds=5),
        Flow("trip.unbook", Unbook, call, rules, timeout_seconds=5),
    ]


def open_engine(store: str, url: str, *, work: bool = True) -> Engine:
    chosen = {"url": store, "master_key": MASTER, "log_level": "critical"}
    settings = load({**chosen, "allow_private": ["127.0.0.1/32"]})
    return Engine(flows=flows(url), settings=settings, work=work)


async def main(store: str, url: str) -> None:
    shorten_leases()
    async with open_engine(store, url):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("url")
    options = parser.parse_args()
    asyncio.run(main(options.store, options.url))
