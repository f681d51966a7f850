"""Something that a handler or a component awaits is cancelled, and they themselves are not: that is
a failure like any other, and they go on.
"""

from __future__ import annotations

import asyncio

from gesta import Event
from tests.world import FLOW, Note, Provider, engine_of, let_run, pass_time


async def test_a_component_that_awaits_something_cancelled_is_started_again(gesta, ports, caplog):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        ports.queue.fail("take", asyncio.CancelledError())
        request = await engine.submit(Note())
        await pass_time(gesta, 15)
        assert await request.status() == "completed"
        assert engine.pipeline.components.broken() == {}
    assert "component crashed" in caplog.text


async def test_a_handler_that_awaits_something_cancelled_gets_the_same_event_again(gesta):
    reported: list[str] = []
    cancelled = asyncio.Event()

    async def take(event: Event) -> None:
        if not cancelled.is_set():
            cancelled.set()
            raise asyncio.CancelledError
        reported.append(event.status)

    engine = engine_of(Provider())
    engine.on(FLOW, name="ledger")(take)
    async with engine:
        await engine.submit(Note())
        await pass_time(gesta, 5)
        assert reported == ["created", "completed"]
        assert engine.pipeline.components.broken() == {}
