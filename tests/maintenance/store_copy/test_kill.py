"""kill -9 amid a copy whose source is under load, again and again until it is done: nothing is
lost, nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from contextlib import suppress

import pytest

from gesta import Conflict, Engine, Options
from gesta.domain.events import Actor
from gesta.domain.state import State
from gesta.runtime.settings import load
from gesta.sandbox.server import SandboxServer
from tests.maintenance.store_copy.stage import KEY, eventually
from tests.pipeline.kill_program import Order, Parcel, flows
from tests.pipeline.test_kill import ROOT, child, misbehave
from tests.stores.postgresql.places import fresh_url

KILLS = 3


async def copied(source: str, target: str, calls: int, page: int) -> tuple[int, str]:
    command = (
        sys.executable,
        "-m",
        "tests.maintenance.store_copy.program",
        source,
        target,
        str(calls),
        str(page),
    )
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def acknowledged(process: asyncio.subprocess.Process) -> dict[int, tuple[str, str]]:
    """What the program has printed when it is killed."""
    assert process.stdout is not None
    lines = (await process.stdout.read()).decode().splitlines()
    # The last line may have been cut in the middle.
    whole = [words for line in lines if len(words := line.split()) == 3 and len(words[2]) == 36]
    return {int(n): (flow, request_id) for n, flow, request_id in whole}


async def all_ended(engine: Engine, requests: dict[int, tuple[str, str]]) -> dict[int, State]:
    """Every acknowledged request once nothing more happens by itself."""
    states: dict[int, State] = {}

    async def is_over() -> bool:
        for n, (flow, request_id) in requests.items():
            if n not in states:
                state = (await engine.get(request_id, flow=flow)).state
                if not (state.is_terminal or state.waits_for_a_person):
                    return False
                states[n] = state
        return True

    await eventually(is_over)
    return states


@pytest.mark.slow
@pytest.mark.parametrize("stores", ["sqlite sqlite", "sqlite postgresql", "postgresql sqlite"])
async def test_a_copy_killed_anywhere_is_finished_by_repeating_it_and_sends_nothing_twice(
    tmp_path, monkeypatch, crash_seed, stores
):
    dice = random.Random(crash_seed)
    monkeypatch.setenv("GESTA_MASTER_KEY", KEY)
    source, target = [
        f"sqlite:///{tmp_path / str(n)}.db" if kind == "sqlite" else await fresh_url()
        for n, kind in enumerate(stores.split())
    ]
    async with SandboxServer() as server:
        url = f"{server.url}/http"
        misbehave(server, dice)
        async with child(source, url, 0) as process:
            assert process.stdout is not None
            first = await asyncio.wait_for(process.stdout.readline(), 20)
            n, flow, request_id = first.decode().split()
            reading = asyncio.ensure_future(acknowledged(process))
            # Small numbers die in the checks, large ones behind the fence, or not at all.
            deaths = [
                (round(10 ** dice.uniform(1, 3)), dice.choice((20, 2_000))) for _ in range(KILLS)
            ]
            ends = [
                await copied(source, target, calls, page) for calls, page in [*deaths, (-1, 2_000)]
            ]
            assert {code for code, _ in ends} <= {0, -signal.SIGKILL}, ends
            assert ends[-1][0] == 0
            # It accepts nothing any more, and keeps trying to record what it knows, unless it has
            # given up.
            with suppress(ProcessLookupError):
                process.kill()
            requests = {int(n): (flow, request_id), **await reading}
        before = effects_of(server)
        server.sandbox.http.heal()
        settings = load({"url": target, "allow_private": ["127.0.0.1/32"]})
        async with Engine(flows=flows(url), settings=settings) as engine:
            # On hold: what was ready has been leased and held, and nothing was called.
            await eventually(lambda: _is_held(engine))
            assert effects_of(server) == before
            await engine.admin.resume_everything(Actor("operator"))
            states = await all_ended(engine, requests)
            again = await engine.submit_many(
                [(Order(n) if n % 2 else Parcel(n), Options(key=str(n))) for n in requests]
            )
            reported = [(one.verdict, one.id) for one in again if not isinstance(one, Conflict)]
            assert reported == [("duplicate", request_id) for _, request_id in requests.values()]
            assert await engine.admin.quarantined() == []
        effects = effects_of(server)
    assert len(requests) > 20
    assert max(effects.values()) == 1
    # Nothing is lost: where the receiver dedupes, each was sent; where it does not, the unknown
    # ones stand visibly in unknown.
    assert {n: effects["orders", n] for n in states if n % 2} == {n: 1 for n in states if n % 2}
    assert {states[n].status for n in states if n % 2} == {"completed"}
    parcels = [state for n, state in states.items() if n % 2 == 0]
    assert {state.status for state in parcels} <= {"completed", "unknown"}
    assert all(
        effects["parcels", n] == 1
        for n, state in states.items()
        if n % 2 == 0 and state.status == "completed"
    )


async def _is_held(engine: Engine) -> bool:
    if await engine.admin.unseen():
        return False
    backlog = (await engine.pipeline.environment.stores.job_inspection.backlog()).values()
    return not sum(flow.ready + flow.leased for flow in backlog)


def effects_of(server: SandboxServer) -> Counter[tuple[str, int]]:
    return Counter(
        (effect.type.rpartition("/")[2], effect.data["n"]) for effect in server.sandbox.http.effects
    )
