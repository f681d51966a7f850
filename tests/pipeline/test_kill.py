"""kill -9 at random moments under load: what was acknowledged is there, comes to an end, and had
one effect.

The program is kill_program.py; the receivers live here, in a process that survives.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gesta import Conflict, Options
from gesta.domain.state import State
from gesta.sandbox.server import SandboxServer
from tests.pipeline.kill_program import Order, Parcel, open_engine

ROOT = Path(__file__).parents[2]
KILLS = 3
#: For the last process to work off everything; far more than it needs.
REST_SECONDS = 30.0


@asynccontextmanager
async def child(
    path: Path | str, url: str, first: int, *options: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (
        sys.executable,
        "-m",
        "tests.pipeline.kill_program",
        str(path),
        url,
        str(first),
        *options,
    )
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def acknowledged_until_killed(
    process: asyncio.subprocess.Process, seconds: float
) -> dict[int, tuple[str, str]]:
    """What the program had printed when it was killed, so long after its first acknowledgement."""
    assert process.stdout is not None
    first = await asyncio.wait_for(process.stdout.readline(), 20)
    await asyncio.sleep(seconds)
    process.kill()
    lines = (first + await process.stdout.read()).decode().splitlines()
    # The last line may have been cut in the middle.
    whole = [words for line in lines if len(words := line.split()) == 3 and len(words[2]) == 36]
    return {int(n): (flow, request_id) for n, flow, request_id in whole}


def misbehave(server: SandboxServer, dice: random.Random) -> None:
    """Lost answers, outages and slowness, so that kills meet every phase of an attempt."""
    receiver = server.sandbox.http
    receiver.on(lambda _: dice.random() < 0.05, drop=True)
    receiver.on(lambda _: dice.random() < 0.05, status=503, retry_after=0)
    receiver.on(lambda _: dice.random() < 0.2, slow_seconds=0.05)


async def states_at_rest(
    path: Path, url: str, requests: dict[int, tuple[str, str]]
) -> dict[int, State]:
    """Every acknowledged request once nothing more happens by itself."""
    async with open_engine(str(path), url, work=False) as engine:
        deadline = asyncio.get_running_loop().time() + REST_SECONDS
        states: dict[int, State] = {}
        while len(states) < len(requests):
            for n, (flow, request_id) in requests.items():
                if n not in states:
                    state = (await engine.get(request_id, flow=flow)).state
                    if state.is_terminal or (state.status == "unknown" and state.due_at is None):
                        states[n] = state
            assert asyncio.get_running_loop().time() < deadline, (
                f"{len(requests) - len(states)} requests came to no end"
            )
            await asyncio.sleep(0.05)
        # G1: the key of each leads to the very request that was acknowledged.
        again = await engine.submit_many(
            [(Order(n) if n % 2 else Parcel(n), Options(key=str(n))) for n in requests]
        )
        assert [(one.verdict, one.id) for one in again if not isinstance(one, Conflict)] == [
            ("duplicate", request_id) for _, request_id in requests.values()
        ]
        assert await engine.admin.quarantined() == []
    return states


@pytest.mark.slow
async def test_an_acknowledged_request_survives_any_kill_and_has_one_effect(tmp_path, seed):
    dice, path = random.Random(seed), tmp_path / "gesta.db"
    requests: dict[int, tuple[str, str]] = {}
    async with SandboxServer() as server:
        url = f"{server.url}/http"
        misbehave(server, dice)
        for _ in range(KILLS):
            async with child(path, url, max(requests, default=-1) + 1) as process:
                requests |= await acknowledged_until_killed(process, dice.uniform(0.02, 0.4))
        server.sandbox.http.heal()
        async with child(path, url, 0, "--rest"):
            states = await states_at_rest(path, url, requests)
        effects = Counter(
            (effect.type.rpartition("/")[2], effect.data["n"])
            for effect in server.sandbox.http.effects
        )
    assert len(requests) > 20
    orders, parcels = ({n: state for n, state in states.items() if n % 2 == odd} for odd in (1, 0))
    # G2, G3: where the receiver dedupes by our key, each ends as sent with exactly one effect,
    # whatever was killed.
    assert {state.status for state in orders.values()} == {"completed"}
    assert {n: effects["orders", n] for n in orders} == dict.fromkeys(orders, 1)
    # G2, G3: where it does not, nothing is sent twice; what a kill left unknown stands visibly in
    # unknown.
    assert {state.status for state in parcels.values()} <= {"completed", "unknown"}
    assert all(
        effects["parcels", n] == 1 for n, state in parcels.items() if state.status == "completed"
    )
    assert max(effects.values()) == 1
    assert all(state.reason for state in parcels.values() if state.status == "unknown")
