"""kill -9 amid a copy whose source is under load, again and again until it is done: nothing is lost, nothing is sent twice."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from gesta.domain.events import Actor
from gesta.sandbox.server import SandboxServer
from tests.walk.kill_program import open_engine
from tests.walk.test_kill import ROOT, child, misbehave, states_at_rest

KILLS = 3


async def copied(source: Path, target: Path, calls: int, page: int, *options: str) -> tuple[int, str]:
    command = (sys.executable, "-m", "tests.copying.program", f"sqlite:///{source}", f"sqlite:///{target}", str(calls), str(page))
    process = await asyncio.create_subprocess_exec(*command, *options, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, told = await process.communicate()
    assert process.returncode is not None
    return process.returncode, told.decode()


async def acknowledged(process: asyncio.subprocess.Process) -> dict[int, tuple[str, str]]:
    """What the program has printed when it is killed."""
    assert process.stdout is not None
    lines = (await process.stdout.read()).decode().splitlines()
    # The last line may have been cut in the middle.
    whole = [words for line in lines if len(words := line.split()) == 3 and len(words[2]) == 36]
    return {int(n): (flow, request_id) for n, flow, request_id in whole}


@pytest.mark.slow
async def test_a_copy_killed_anywhere_is_finished_by_repeating_it_and_sends_nothing_twice(tmp_path, seed):
    dice, source, target = random.Random(seed), tmp_path / "source.db", tmp_path / "target.db"
    async with SandboxServer() as server:
        url = f"{server.url}/http"
        misbehave(server, dice)
        async with child(source, url, 0) as process:
            assert process.stdout is not None
            first = await asyncio.wait_for(process.stdout.readline(), 20)
            n, flow, request_id = first.decode().split()
            reading = asyncio.ensure_future(acknowledged(process))
            # Small numbers die in the checks, large ones behind the fence, or not at all.
            deaths = [(round(10 ** dice.uniform(1, 3)), dice.choice((20, 2_000))) for _ in range(KILLS)]
            ends = [await copied(source, target, calls, page) for calls, page in [*deaths, (-1, 2_000)]]
            assert {code for code, _ in ends} <= {0, -signal.SIGKILL}, ends
            assert ends[-1][0] == 0
            # It accepts nothing any more, and keeps trying to record what it knows.
            process.kill()
            requests = {int(n): (flow, request_id), **await reading}
        before = effects_of(server)
        shutil.copy(source.with_suffix(".key"), target.with_suffix(".key"))
        server.sandbox.http.heal()
        async with child(target, url, 0, "--rest"), open_engine(str(target), url, work=False) as engine:
            # On hold: whatever was not sent is not sent.
            await asyncio.sleep(0.5)
            assert effects_of(server) == before
            await engine.operating.resume_everything(Actor("operator"))
            states = await states_at_rest(target, url, requests)
        effects = effects_of(server)
    assert len(requests) > 20
    assert max(effects.values()) == 1
    # Nothing is lost: where the receiver dedupes, each was sent; where it does not, those in doubt stand visibly in unknown.
    assert {n: effects["orders", n] for n in states if n % 2} == {n: 1 for n in states if n % 2}
    assert {states[n].status for n in states if n % 2} == {"sent"}
    parcels = [state for n, state in states.items() if n % 2 == 0]
    assert {state.status for state in parcels} <= {"sent", "unknown"}
    assert all(effects["parcels", n] == 1 for n, state in states.items() if n % 2 == 0 and state.status == "sent")


def effects_of(server: SandboxServer) -> Counter[tuple[str, int]]:
    return Counter((effect.type.rpartition("/")[2], effect.data["n"]) for effect in server.sandbox.http.effects)
