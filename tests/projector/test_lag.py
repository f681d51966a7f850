"""Views in another database: new requests wait while the projector is far behind, as long as it
gets on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import pytest

from gesta import Done
from gesta.engine.environment import Environment, Wiring
from gesta.errors import StoreError
from gesta.projector import projector
from gesta.projector.projector import STUCK_SECONDS
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.settings import Settings
from gesta.testing.contracts.samples import fresh_append
from gesta.testing.plugin import Harness
from tests.world import URL, Note, Ports, Provider, engine_of, let_run, pass_time

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


@pytest.fixture
def busy(gesta: Harness, lagging: asyncio.Event, ports: Ports) -> Callable[[], None]:
    """Call it with an engine open: from then on other processes append all the time, so that its
    projector never reaches the end of the log.
    """

    async def follow(original, after, limit):
        await sleep(gesta.runtime, STUCK_SECONDS / 4)
        await gesta._databases[URL].stores().events.append([fresh_append()])
        return await original(after, limit)

    return lambda: ports.events.replace("follow", follow)


async def is_accepted_soon(gesta, engine, ports) -> bool:
    late = spawn(engine.submit(Note("late")), "late")
    await pass_time(gesta, STUCK_SECONDS)
    is_accepted = late.done()
    ports.events.heal()
    await pass_time(gesta, STUCK_SECONDS)
    await late
    return is_accepted


async def test_a_new_request_does_not_wait_for_events_that_another_process_has_folded(
    gesta, ports, busy
):
    leader = engine_of(Provider())
    await leader.start()
    await let_run(gesta)
    async with engine_of(Provider()) as engine:
        busy()
        await engine.submit_many([Note(str(number)) for number in range(100 * LAG)])
        await pass_time(gesta, 2)
        await leader.stop()
        await pass_time(gesta, 5)
        assert engine.pipeline.projector.is_here
        assert await is_accepted_soon(gesta, engine, ports)


async def test_a_new_request_does_not_wait_for_folded_events_although_the_log_never_ends(
    gesta, ports, busy
):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        busy()
        await engine.submit_many([Note(str(number)) for number in range(100 * LAG)])
        await pass_time(gesta, 5)
        assert await is_accepted_soon(gesta, engine, ports)


async def test_a_new_request_does_not_wait_for_events_that_were_refused(gesta, ports, busy):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        await engine.submit(Note("hello"), key="k")
        busy()
        await pass_time(gesta, 2)
        again = [spawn(engine.submit(Note("hello"), key="k"), "again") for _ in range(100 * LAG)]
        await let_run(gesta)
        assert await is_accepted_soon(gesta, engine, ports)
        assert {(await one).verdict for one in again} == {"duplicate"}


async def test_a_new_request_waits_although_the_positions_of_the_store_are_bytes(
    gesta, lagging, ports
):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)

        async def follow_one(original, after, limit):
            """The first event, and far from the one before."""
            await lagging.wait()
            lagging.clear()
            found = await original(after // 1_000, 1)
            return [msgspec.structs.replace(one, position=one.position * 1_000) for one in found]

        ports.events.replace("follow", follow_one)
        lagging.clear()
        await engine.submit_many([Note(str(number)) for number in range(2 * LAG)])
        lagging.set()
        await let_run(gesta)
        late = spawn(engine.submit(Note("late")), "late")
        await let_run(gesta)
        is_accepted = late.done()
        ports.events.heal()
        lagging.set()
        await late
        assert not is_accepted
