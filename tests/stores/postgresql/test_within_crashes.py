"""Processes and the server die around a caller's commit: what was committed has one effect, what
was not has none.

Counted at a receiver.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace

import asyncpg  # type: ignore[import-untyped]
import pytest

from gesta.sandbox.server import SandboxServer
from gesta.stores.postgresql.address import address_of
from gesta.testing.postgres_server import PostgresServer
from tests.crash.stage import PROCESSES, eventually
from tests.stores.postgresql.places import fresh_url, projected
from tests.stores.postgresql.within_program import Parcel, Plan, ask, engine_of, main

pytestmark = pytest.mark.slow


async def killed(plan: Plan) -> None:
    """Run the program until it has died at its point."""
    child = PROCESSES.Process(target=main, args=(plan,))
    child.start()
    try:
        await eventually(lambda: child.exitcode is not None, "the point was never reached")
        assert child.exitcode == -signal.SIGKILL
    finally:
        child.kill()
        child.join()


async def make_orders(url: str) -> None:
    """The caller's own table."""
    connection = await asyncpg.connect(address_of(url).server)
    await connection.execute("create table if not exists orders (schema text, n integer)")
    await connection.close()


async def found(url: str, statement: str) -> list[int]:
    connection = await asyncpg.connect(address_of(url).server)
    try:
        return sorted(
            row[0]
            for row in await connection.fetch(
                statement.replace("{schema}", f'"{address_of(url).schema}"')
            )
        )
    finally:
        await connection.close()


async def orders(url: str) -> list[int]:
    return await found(url, f"select n from orders where schema = '{address_of(url).schema}'")


def effects(server: SandboxServer) -> Counter[tuple[str, int]]:
    return Counter(
        (effect.data["flow"], effect.data["n"]) for effect in server.sandbox.http.effects
    )


async def check_each_once(plan: Plan, server: SandboxServer, numbers: list[int]) -> None:
    """A successor works until nothing is left: each committed order has its two effects, once, and
    nothing else has any.
    """
    wanted = Counter({(flow, n): 1 for n in numbers for flow in ("test.parcel", "test.crate")})
    async with engine_of(plan) as engine:

        async def is_over() -> bool:
            counts = await engine.admin.counts()
            return sum(counts.values()) >= len(wanted) and not any(
                status == "queued" for _, status in counts
            )

        await eventually(is_over, "not everything came to its end")
        # One more, so that whatever else lies there has been drained before it.
        last = await engine.submit(Parcel(99))
        await last.outcome()
        await projected(engine)
        counts = {(flow, "completed"): len(numbers) for flow, _ in wanted}
        assert await engine.admin.counts() == counts | {
            ("test.parcel", "completed"): len(numbers) + 1
        }
        assert await found(plan.url, "select 1 from {schema}.outbox") == []
    assert effects(server) == wanted + Counter({("test.parcel", 99): 1})
    assert await orders(plan.url) == numbers


@pytest.mark.parametrize("point", ["not committed", "committed"])
async def test_a_caller_dies_around_its_commit(point):
    async with SandboxServer() as server:
        plan = Plan(await fresh_url(), server.url, number=2)
        await make_orders(plan.url)
        # One that surely stands, so that there is something to wait for.
        await killed(replace(plan, point="committed", number=1))
        await killed(replace(plan, point=point))
        assert effects(server) == Counter()
        await check_each_once(plan, server, [1] if point == "not committed" else [1, 2])


@pytest.mark.parametrize("point", ["not drained", "drained, not committed", "drained"])
async def test_the_drain_dies_around_its_commit(point):
    async with SandboxServer() as server:
        plan = Plan(await fresh_url(), server.url)
        await make_orders(plan.url)
        for number in (1, 2):
            await killed(replace(plan, point="committed", number=number))
        await killed(replace(plan, point=point))
        rows = len(await found(plan.url, "select 1 from {schema}.outbox"))
        events = len(
            await found(
                plan.url, "select 1 from {schema}.events where version = 1 and stream like 'test.%'"
            )
        )
        # Appended and removed together, or neither.
        assert (rows, events) == ((0, 4) if point == "drained" else (4, 0))
        await check_each_once(plan, server, [1, 2])


async def test_the_server_dies_around_a_callers_commit():
    async with SandboxServer() as server, PostgresServer() as database:
        plan = Plan(database.url, server.url, number=1)
        await make_orders(plan.url)
        async with engine_of(plan, work=False) as engine:
            connections = [await asyncpg.connect(database.url) for _ in range(2)]
            for number, connection in enumerate(connections, start=1):
                await connection.execute("begin")
                await ask(replace(plan, number=number), engine, connection)
            await connections[0].execute("commit")
            database.kill()
            for connection in connections:
                connection.terminate()
            await database.start()
        await check_each_once(plan, server, [1])
