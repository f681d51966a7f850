"""Processes die between any two steps of a saga, and between any two calls to the store."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gesta import Attempt, Done, Engine, Flow, Outcome, Rejected, Request, RetryPolicy
from gesta.domain.commands import Rules
from gesta.sandbox.server import SandboxServer
from tests.sagas.trips import Book, Trip, Unbook, open_engine, trip
from tests.stores.postgresql.places import fresh_url
from tests.world import die, pass_time

ROOT = Path(__file__).parents[2]
#: More turns of the event loop than the whole life of a saga takes.
TURNS_MAX = 700
UNDONE = ["flight", "hotel", "car", "undo-hotel", "undo-flight"]


class Agency:
    """Books everything but cars; remembers each key once, as a provider that deduplicates does."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}

    async def call(self, payload: Book | Unbook, attempt: Attempt) -> Outcome:
        await asyncio.sleep(0)
        self.keys.setdefault(attempt.key, payload.what)
        await asyncio.sleep(0)
        return Rejected("sold_out") if payload.what == "car" else Done(f"{payload.what}-1")

    def engine(self, url: str) -> Engine:
        rules = Rules(RetryPolicy(attempts=50, base_seconds=0.1), "resend")
        book = Flow("trip.book", Book, self.call, rules)
        return Engine(url, flows=[trip, book, Flow("trip.unbook", Unbook, self.call, rules)])


async def test_a_process_may_die_at_any_moment_of_a_saga(gesta, calls, seed):
    """It dies three times, each time in another moment, and the saga goes on where it was."""
    dice, agency, url = random.Random(seed), Agency(), f"memory:saga-{seed}"
    for _ in range(3):
        dying = agency.engine(url)
        await dying.start()
        asking = asyncio.ensure_future(dying.submit(Trip("rome"), key="rome"))
        for turn in range(dice.randrange(TURNS_MAX)):
            await asyncio.sleep(0)
            if turn % 7 == 6:
                gesta.advance(0.25)
        asking.cancel()
        await die(dying)
    async with agency.engine(url) as engine:
        request = await engine.submit(Trip("rome"), key="rome")
        await pass_time(gesta, 6)
        await gesta.settle(days=1)
        await resolve_car(engine, request)
        await pass_time(gesta, 20)
        # R1-53: whatever died, each step and each undo had one effect, in order.
        assert await request.status() == "compensated"
        assert list(agency.keys.values()) == UNDONE
        assert await engine.admin.quarantined() == []
        assert len(await engine.find(flow="trip.book")) == 3
        assert len(await engine.find(flow="trip.unbook")) == 2


async def resolve_car(engine: Engine, saga: Request) -> None:
    """If an attempt to book the car was lost, its refusal afterwards does not say what that one
    did: the saga waits for a person.
    """
    if await saga.status() == "waiting":
        car = (await saga.view()).state.facts["steps"]["car"]["id"]
        request = await engine.request(car)
        state = (await request.view()).state
        assert (state.status, state.in_doubt) == ("failed", True)
        await request.resolve("not_executed", by="ada", evidence="no booking in their list")


async def test_a_store_may_fail_at_any_call_of_a_saga(gesta, calls, seed):
    dice, agency, url = random.Random(seed), Agency(), f"memory:saga-{seed}"
    async with agency.engine(url) as engine:
        request = await engine.submit(Trip("rome"), key="rome")
        for _ in range(4):
            calls.made, calls.failing = 0, dice.randrange(1, 40)
            calls.answer_lost = dice.random() < 0.5
            await pass_time(gesta, 2)
        calls.failing = 0
        await pass_time(gesta, 15)
        await gesta.settle(days=1)
        await resolve_car(engine, request)
        await pass_time(gesta, 20)
        assert await request.status() == "compensated"
        assert list(agency.keys.values()) == UNDONE


@asynccontextmanager
async def child(store: str, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.sagas.trips",
        store,
        url,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_process_is_killed_between_any_two_steps(tmp_path, kind):
    store = f"sqlite:///{tmp_path}/gesta.db" if kind == "sqlite" else await fresh_url()
    async with SandboxServer() as server:
        receiver = server.sandbox.http
        receiver.on(lambda call: call.type.endswith("/car"), status=410)
        url = f"{server.url}/http"
        async with open_engine(store, url, work=False) as engine:
            request = await engine.submit(Trip("rome"), key="rome")
            # Once before anything, then after each effect: two bookings and two undos.
            for effects in range(5):
                async with child(store, url) as process:
                    await until(lambda n=effects: len(receiver.effects) >= n)
                    process.kill()
            async with child(store, url):
                while await request.status() != "compensated":
                    await asyncio.sleep(0.05)
            assert (await engine.submit(Trip("rome"), key="rome")).verdict == "duplicate"
        names = [effect.type.rpartition("/")[2] for effect in receiver.effects]
    assert names == ["flight", "hotel", "undo-hotel", "undo-flight"]


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
