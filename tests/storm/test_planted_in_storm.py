"""The storm's checker has to be able to fail: a store broken on purpose is found by it."""

from __future__ import annotations

import asyncpg  # type: ignore[import-untyped]
import pytest

from gesta.testing.postgres_server import PostgresServer
from tests.crash.stage import Stage, eventually, stage
from tests.storm.proxy import Proxy
from tests.storm.storm import NUMBERS, SLOTS, Storm
from tests.storm.test_storm import ACTIONS, check

#: One in three or so finds it; the pinned one is tried first.
SEEDS_MAX = 20
PINNED_SEED = 6

#: What is wrong → what stands in a function of the store, what stands there instead.
EARLY_ANSWER = ("if not is_durable then", "if true then")
NO_TRACE = ("lease_count = t.lease_count + 1", "lease_count = 1")

#: The server writes its log only when a commit demands it, so a crash loses every other commit.
LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
#: The server crashes after every so many acknowledgements; the first or second time finds it.
ACKNOWLEDGEMENTS = 3
CRASHES = NUMBERS // ACKNOWLEDGEMENTS


async def plant(url: str, right: str, wrong: str) -> None:
    """Replace a text in the function of the store that has it."""
    connection = await asyncpg.connect(url)
    try:
        functions = await connection.fetch(
            "select pg_get_functiondef(oid) as text from pg_proc"
            " where pronamespace = 'gesta'::regnamespace and position($1 in prosrc) > 0",
            right,
        )
        assert functions, f"no function of the store has {right!r}: plant the bug anew"
        for function in functions:
            await connection.execute(function["text"].replace(right, wrong))
    finally:
        await connection.close()


async def lost(on: Stage) -> set[str]:
    """Acknowledged ids that are not in the log."""
    known = on.acknowledged()
    async with on.look() as engine:
        events, after, streams = engine.pipeline.environment.stores.events, 0, set[str]()
        while page := await events.follow(after, 1_000):
            after = page[-1].position
            streams |= {recorded.stream for recorded in page}
    ids = {request_id for request_ids in known.values() for request_id in request_ids}
    return {one for one in ids if not any(stream.endswith(one) for stream in streams)}


async def crashes_until_lost(folder, crashes: int, *planted: str) -> int | None:
    """After how many crashes of the server alone something acknowledged is lost; None: never."""
    async with (
        PostgresServer(options=LAZY) as server,
        Proxy(server.port) as proxy,
        # A long lease: its renewals would write the log.
        stage(folder, 0, layout="server", url=server.url, lease_seconds=20.0) as on,
    ):
        async with on.look():
            if planted:
                await plant(server.url, *planted)
        storm = Storm(on, server, proxy, 0)
        try:
            storm.start(1)
            for crash in range(1, crashes + 1):
                wanted = crash * ACKNOWLEDGEMENTS
                await eventually(
                    lambda wanted=wanted: len(on.acknowledged()) >= wanted,
                    "the program stopped submitting",
                )
                await storm.crash_server()
                # Nothing has to come to rest: what is not in the log now never will be.
                if await lost(on):
                    return crash
        finally:
            storm.close()
        return None


async def breaks(folder, seed: int, planted: tuple[str, str]) -> bool:
    """Whether a storm of this seed finds the bug."""
    async with (
        PostgresServer() as server,
        Proxy(server.port) as proxy,
        stage(
            folder, seed, layout="server", url=server.url, lost_ms=2_000, call_seconds=0.02
        ) as on,
    ):
        async with on.look():
            await plant(server.url, *planted)
        storm = Storm(on, server, proxy, seed)
        try:
            await storm.run(ACTIONS)
            if await lost(on):
                return True
            wanted = sum(len(storm.numbers(slot)) for slot in range(SLOTS))
            async with on.look() as engine:
                try:
                    states = await on.at_rest(engine, at_least=wanted)
                except AssertionError:
                    # Impatience shows nothing by itself.
                    return False
                try:
                    await check(on, engine, states)
                except AssertionError:
                    return True
        finally:
            storm.close()
        return False


@pytest.mark.slow
async def test_crashes_find_an_answer_before_the_commit_is_on_disk(tmp_path):
    assert await crashes_until_lost(tmp_path, CRASHES, *EARLY_ANSWER) is not None


@pytest.mark.slow
async def test_crashes_of_the_server_alone_lose_nothing(tmp_path):
    assert await crashes_until_lost(tmp_path, 2) is None


@pytest.mark.slow
async def test_the_storm_finds_a_lease_that_leaves_no_trace(tmp_path):
    for seed in dict.fromkeys((PINNED_SEED, *range(1, SEEDS_MAX + 1))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if await breaks(folder, seed, NO_TRACE):
            return
    pytest.fail(f"{SEEDS_MAX} storms did not find it")
