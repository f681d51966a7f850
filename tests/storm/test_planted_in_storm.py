"""The storm's checker has to be able to fail: a store broken on purpose is found by it, within a
few seeds.
"""

from __future__ import annotations

from importlib.resources import files

import asyncpg  # type: ignore[import-untyped]
import pytest

from gesta.testing.postgres_server import PostgresServer
from tests.crash.stage import stage
from tests.storm.proxy import Proxy
from tests.storm.storm import SLOTS, Storm
from tests.storm.test_storm import ACTIONS, check

#: One in three or so finds it; the others cost nothing once one has.
SEEDS_MAX = 20

#: What is wrong → the migration whose function is replaced, what stands there, what stands there
#: instead.
PLANTED = {
    "an answer before the commit is on disk": (
        "0008_record.sql",
        "if not is_durable then",
        "if true then",
    ),
    "a take that leaves no trace": (
        "0011_take.sql",
        "lease_count = t.lease_count + 1",
        "lease_count = 1",
    ),
}


async def plant(url: str, migration: str, right: str, wrong: str) -> None:
    text = (
        files("gesta.stores.postgresql")
        .joinpath("migrations", migration)
        .read_text(encoding="utf-8")
    )
    assert text.count(right) == 1, f"{migration} has changed: plant the fault anew"
    connection = await asyncpg.connect(url)
    try:
        for statement in text.replace(right, wrong).split("\ncreate ")[1:]:
            await connection.execute("create or replace " + statement.replace("{schema}", "gesta"))
    finally:
        await connection.close()


async def breaks(folder, seed: int, fault: str) -> bool:
    """Whether a storm of this seed finds the fault."""
    async with (
        PostgresServer() as server,
        Proxy(server.port) as proxy,
        stage(
            folder, seed, layout="server", url=server.url, lost_ms=2_000, call_seconds=0.02
        ) as on,
    ):
        async with on.look():
            await plant(server.url, *PLANTED[fault])
        storm = Storm(on, server, proxy, seed)
        try:
            await storm.run(ACTIONS)
            async with on.look() as engine:
                try:
                    states = await on.at_rest(
                        engine, at_least=sum(len(storm.numbers(slot)) for slot in range(SLOTS))
                    )
                except AssertionError:
                    # Impatience shows nothing by itself: what was acknowledged has to be gone.
                    left = set(await on.states(engine))
                    return any(not ids <= left for ids in on.acknowledged().values())
                try:
                    await check(on, engine, states)
                except AssertionError:
                    return True
        finally:
            storm.close()
        return False


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
async def test_the_storm_finds(tmp_path, fault):
    for seed in range(1, SEEDS_MAX + 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if await breaks(folder, seed, fault):
            return
    pytest.fail(f"{SEEDS_MAX} storms passed over: {fault}")
