"""kill -9 while a handler runs: every end of a request is handled at least once, in order."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from gesta import Event
from gesta.domain.stream_names import checkpoint_of
from gesta.sandbox.server import SandboxServer
from tests.pipeline.kill_program import Order, open_engine
from tests.pipeline.test_kill import (
    KILLS,
    REST_SECONDS,
    acknowledged_until_killed,
    child,
    misbehave,
    states_at_rest,
)


async def handled_everything(path, url) -> None:
    """Wait until the handler has got the whole log."""
    async with open_engine(str(path), url, work=False) as engine:
        stores = engine.pipeline.environment.stores
        deadline = asyncio.get_running_loop().time() + REST_SECONDS
        while (
            await stores.checkpoints.position(checkpoint_of("ledger")) < await stores.events.end()
        ):
            assert asyncio.get_running_loop().time() < deadline, (
                "the handler did not get every event"
            )
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_every_end_of_a_request_reaches_the_handler_after_kills(tmp_path, seed):
    dice, path, ledger = random.Random(seed), tmp_path / "gesta.db", tmp_path / "ledger.txt"
    requests: dict[int, tuple[str, str]] = {}
    async with SandboxServer() as server:
        url = f"{server.url}/http"
        misbehave(server, dice)
        for _ in range(KILLS):
            async with child(
                path, url, max(requests, default=-1) + 1, "--tell", str(ledger)
            ) as process:
                requests |= await acknowledged_until_killed(process, dice.uniform(0.02, 0.4))
        server.sandbox.http.heal()
        async with child(path, url, 0, "--rest", "--tell", str(ledger)):
            states = await states_at_rest(path, url, requests)
            await handled_everything(path, url)
    lines = [line.split() for line in ledger.read_text().splitlines()]
    # A line that a kill cut in half comes again.
    reported = [
        (int(words[0]), words[1], words[2])
        for words in lines
        if len(words) == 3 and len(words[1]) == 36
    ]
    heard = {(request_id, status) for _, request_id, status in reported}
    assert {(state.id, state.status) for state in states.values()} <= heard
    # In order, but for the steps back that a kill made.
    back = sum(late <= early for (early, *_), (late, *_) in pairwise(reported))
    assert back <= KILLS


async def test_a_clean_stop_lets_a_handler_finish_and_calls_it_once(tmp_path):
    path, begun = tmp_path / "gesta.db", asyncio.Event()
    ended: list[str] = []
    for _ in range(2):
        engine = open_engine(str(path), "http://127.0.0.1:9")

        async def slow(event: Event) -> None:
            begun.set()
            await asyncio.sleep(0.3)
            ended.append(event.status)

        engine.on("walk.*", "created", name="ledger")(slow)
        async with engine:
            if not ended:
                await engine.submit(Order(1))
                await asyncio.wait_for(begun.wait(), 60)
    assert ended == ["created"]
