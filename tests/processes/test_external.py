"""kill -9 of external workers and of the processes that lease to them, on files and on a server:
nothing is lost, and what is unknown says so.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gesta import Engine, Payload
from gesta.worker.external import RecordFailed, RecordSent
from tests.processes.warehouse import FLOWS, Kept, Left, engine_on
from tests.stores.postgresql.places import fresh_url

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
ROUNDS, EACH = 3, 10

Start = Callable[[str], Coroutine[Any, Any, asyncio.subprocess.Process]]


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'gesta.db'}" if request.param == "sqlite" else await fresh_url()


@asynccontextmanager
async def processes(url: str, log: Path) -> AsyncIterator[Start]:
    """Starts processes of warehouse.py, each ready when it is answered; none is left behind."""
    started: list[asyncio.subprocess.Process] = []

    async def start(mode: str) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "tests.processes.warehouse", mode, url, str(log))
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert (
            await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        ).strip() == b"ready"
        return process

    try:
        yield start
    finally:
        for process in started:
            await kill(process)


async def kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def lines(log: Path, what: str) -> list[dict[str, str]]:
    text = log.read_bytes() if log.exists() else b""
    # The last one may be half written.
    whole = text.rpartition(b"\n")[0]
    return [line for line in map(msgspec.json.decode, whole.splitlines()) if line["what"] == what]


async def until(look: Callable[[], Coroutine[Any, Any, bool]], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not await look():
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.05)


async def submit(engine: Engine, first: int) -> list[str]:
    payloads: list[Payload] = [Kept(n) if n % 2 else Left(n) for n in range(first, first + EACH)]
    return [
        (await engine.submit(payload, key=str(first + place))).id
        for place, payload in enumerate(payloads)
    ]


@pytest.mark.slow
async def test_work_in_the_hands_of_one_who_was_killed_is_reported_by_another_with_its_token(
    url, tmp_path
):
    """And all who handed it out are gone by then, too."""
    log = tmp_path / "log"
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(processes(url, log))
        server = await start("serve")
        async with engine_on(url, work=False) as engine:
            ids = [(await engine.submit(Kept(1))).id, (await engine.submit(Left(2))).id]
        await kill(await start("hold"))
        await kill(server)
        leased = lines(log, "taken")
        assert sorted(line["id"] for line in leased) == sorted(ids)
        async with engine_on(url, work=False) as engine:
            for line in leased:
                flow = (await engine.get(line["id"])).state.flow
                answer = await engine.external.report(
                    flow, line["id"], line["token"], RecordSent(attempts=1)
                )
                assert answer.status == "completed"
                # The answer was lost, and the report is made once more.
                assert (
                    await engine.external.report(
                        flow, line["id"], line["token"], RecordSent(attempts=1)
                    )
                    == answer
                )


@pytest.mark.slow
async def test_a_failure_reported_twice_across_processes_is_one_failed_attempt(url, tmp_path):
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(processes(url, tmp_path / "log"))
        await start("serve")
        report = RecordFailed(reason="busy", retryable=True, attempts=1, retry_after_sec=3600)
        async with engine_on(url, work=False) as engine:
            request = await engine.submit(Left(1))
            (item,) = await engine.external.take("shelf.left", wait_seconds=30, lease_seconds=60)
            first = await engine.external.report("shelf.left", item.id, item.token, report)
        async with engine_on(url, work=False) as other:
            assert await other.external.report("shelf.left", item.id, item.token, report) == first
            assert (await other.get(request.id)).state.attempts == 1


@pytest.mark.slow
async def test_nothing_is_lost_however_those_around_it_die(url, tmp_path):
    log, dice, ids = tmp_path / "log", random.Random(7), []
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(processes(url, log))
        server, pickers = await start("serve"), [await start("pick") for _ in range(2)]
        engine = await stack.enter_async_context(engine_on(url, work=False))
        for number in range(ROUNDS):
            before = len(lines(log, "taken"))
            ids += await submit(engine, number * EACH)

            async def goes_on(least: int = before + dice.randrange(1, EACH)) -> bool:
                return len(lines(log, "taken")) >= least

            await until(goes_on, "work is taken")
            await kill(pickers.pop(0))
            if number == 1:
                await kill(server)
                server = await start("serve")
            pickers.append(await start("pick"))

        async def at_rest() -> bool:
            states = [(await engine.get(name)).state for name in ids]
            return all(state.is_terminal or state.waits_for_a_person for state in states)

        await until(at_rest, "everything comes to rest")
        effects, leased = (
            Counter(line["id"] for line in lines(log, "effect")),
            Counter(line["id"] for line in lines(log, "taken")),
        )
        keys = {
            line["id"]: {other["key"] for other in lines(log, "taken") if other["id"] == line["id"]}
            for line in lines(log, "taken")
        }
        for name in ids:
            state = (await engine.get(name)).state
            assert len(keys.get(name, set())) <= 1, "every attempt of an intent has the same key"
            if FLOWS[state.flow] == "resend":
                assert state.status == "completed"
                assert effects[name] >= 1
            else:
                # What a process held when it died is visibly unknown, and no
                # other worker got it.
                assert (state.status, state.reason) in {("completed", ""), ("unknown", "no_report")}
                assert leased[name] <= 1
                assert (effects[name] == 1) if state.status == "completed" else (effects[name] <= 1)
        assert await engine.admin.quarantined() == []
