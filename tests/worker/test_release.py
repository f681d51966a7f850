"""A job that is released and ready at once: it may come again before the worker that released it
has heard that it could.
"""

from __future__ import annotations

import asyncio

from gesta.flows.deferrals import Postponed
from tests.world import Note, Provider, engine_of, let_run


async def test_a_job_that_comes_back_immediately_does_not_mean_a_lost_lease(gesta, ports, caplog):
    async def answer_late(original, entries):
        answer = await original(entries)
        for _ in range(10):
            await asyncio.sleep(0)
        return answer

    provider = Provider(Postponed(0))
    async with engine_of(provider) as engine:
        ports.transactions.replace("record", answer_late)
        request = await engine.submit(Note())
        await let_run(gesta)
        assert (await request.status(), len(provider.calls)) == ("completed", 2)
    assert "lease lost" not in caplog.text
