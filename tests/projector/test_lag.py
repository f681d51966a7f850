"""Views in another database: new requests wait while the projector is far behind, as long as it
gets on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gesta import Done
from gesta.engine.environment import Environment, Wiring
from gesta.errors import StoreError
from gesta.projector import projector
from gesta.projector.projector import STUCK_SECONDS
from gesta.runtime.clock import spawn
from gesta.runtime.settings import Settings
from tests.world import Note, Ports, Provider, engine_of, let_run, pass_time

LAG = 5


@pytest.fixture
def lagging(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """Every engine opened from here on reads the log while the event is set, and has its views
    elsewhere.
    """
    monkeypatch.setattr(projector, "LAG_MAX", LAG)
    before, may_read = Wiring.wire, asyncio.Event()
    may_read.set()

    async def wire(settings: Settings) -> Environment:
        environment = await before(settings)

        async def follow(original, after, limit):
            await may_read.wait()
            return await original(after, limit)

        ports.events.replace("follow", follow)
        return replace(environment, stores=replace(environment.stores, has_separate_views=True))

    monkeypatch.setattr(Wiring, "wire", staticmethod(wire))
    yield may_read
    may_read.set()


async def test_a_new_request_waits_while_many_events_are_to_be_folded(gesta, lagging):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        lagging.clear()
        await engine.submit_many([Note(str(number)) for number in range(LAG)])
        late = spawn(engine.submit(Note("late")), "late")
        await let_run(gesta)
        assert not late.done()
        lagging.set()
        request = await late
        await pass_time(gesta, 2)
        assert await request.outcome() == Done(f"provider-{LAG + 1}")


async def test_a_new_request_does_not_wait_for_a_projector_that_is_stuck(gesta, lagging):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        lagging.clear()
        await engine.submit_many([Note(str(number)) for number in range(LAG)])
        late = spawn(engine.submit(Note("late")), "late")
        await pass_time(gesta, STUCK_SECONDS)
        await let_run(gesta)
        assert late.done()
        lagging.set()


async def test_requests_that_were_not_stored_count_no_longer_once_the_log_is_folded(
    gesta, lagging, ports
):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        ports.events.fail("append")
        with pytest.raises(StoreError):
            await engine.submit_many([Note(str(number)) for number in range(LAG)])
        await pass_time(gesta, 2)
        lagging.clear()
        await asyncio.wait_for(engine.submit(Note()), 1)
        lagging.set()
