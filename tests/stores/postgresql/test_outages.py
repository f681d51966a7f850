"""The server goes away and comes back: what was asked meanwhile is refused with a reason, and
everything goes on without a restart.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta import Done
from gesta.errors import StoreError
from gesta.testing.postgres_server import PostgresServer
from tests.stores.postgresql.places import Note, engine_at


async def _submitted(engine, note):
    """As soon as the store takes it again."""
    while True:
        try:
            return await engine.submit(note)
        except StoreError:
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("listen", ["on", "off"])
async def test_an_engine_outlives_its_server(listen):
    async with PostgresServer() as server, engine_at(f"{server.url}?listen={listen}") as engine:
        before = await engine.submit(Note("before"))
        assert await before.outcome(timeout=60) == Done("before")
        for number, end in enumerate((server.kill, server.halt)):
            end()
            with pytest.raises(StoreError, match=r"cannot be reached|connection was lost"):
                await engine.submit(Note("meanwhile"))
            await server.start()
            after = await _submitted(engine, Note(f"after {number}"))
            assert await after.outcome(timeout=30) == Done(f"after {number}")
        # What was accepted is there, and nothing twice.
        assert await engine.admin.counts() == {("test.note", "completed"): 3}


@pytest.mark.slow
async def test_a_request_accepted_while_the_server_dies_is_executed_once():
    """Submits go on while the server is killed under them: each is refused, or it is done."""
    done: list[str] = []

    async with PostgresServer() as server, engine_at(server.url) as engine:

        async def ask(number):
            for part in range(20):
                try:
                    done.append((await engine.submit(Note(f"{number}.{part}"))).id)
                except StoreError:
                    await asyncio.sleep(0.05)

        asking = [asyncio.create_task(ask(number)) for number in range(10)]
        while len(done) < 60:
            await asyncio.sleep(0.001)
        server.kill()
        await server.start()
        await asyncio.gather(*asking)
        await (await _submitted(engine, Note("last"))).outcome(timeout=30)
        for request_id in done:
            while (view := await engine.get(request_id)).state.status == "queued":
                await asyncio.sleep(0.05)
            assert view.state.status == "completed"
