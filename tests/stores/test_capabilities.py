"""A store declares what it can do; the engine makes up for the rest, or says what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gesta import Done, Engine, Retry, external
from gesta.engine.environment import Environment, Wiring
from gesta.errors import BadSettings
from gesta.ports.fences import Fence
from gesta.ports.stores import PORTS, QueuePorts
from gesta.runtime.settings import Settings
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.separate_queue import with_separate_queue
from gesta.testing.plugin import Harness
from tests.contracts.adapters import harness_types
from tests.world import FLOW, URL, Note, Provider, note_flow, pass_time


def small_queue(gesta: Harness) -> QueuePorts:
    """A queue that can do no more than the engine needs."""
    queue = MemoryDatabase(gesta.runtime).queue

    async def close() -> None: ...

    return QueuePorts(
        queue=queue,
        unique_jobs=queue,
        job_holds=queue,
        close=close,
        now_ms=gesta.runtime.now_ms,
        name="small",
    )


@pytest.fixture
def beside_a_small_queue(gesta: Harness) -> Iterator[None]:
    before = Wiring.wire

    async def wire(settings: Settings) -> Environment:
        environment = await gesta.wire(settings)
        stores = with_separate_queue(environment.stores, small_queue(gesta), gesta.runtime)
        return replace(environment, stores=stores)

    Wiring.wire = staticmethod(wire)
    yield
    Wiring.wire = staticmethod(before)


async def test_a_queue_without_inspection_serves_the_whole_pipeline(gesta, beside_a_small_queue):
    async with Engine(URL, flows=[note_flow(Provider(Retry("throttled")))]) as engine:
        stores = engine.pipeline.environment.stores
        assert "job_inspection" not in stores.capabilities
        request = await engine.submit(Note())
        assert await request.outcome() == Done("provider-2")
        # The sweeper measures the backlog once a minute.
        await pass_time(gesta, 70)
        assert await stores.job_inspection.backlog() == {}
        with pytest.raises(BadSettings, match=r"small does not implement JobInspection \(count, "):
            await stores.job_inspection.jobs("", 1)


async def test_a_pause_holds_and_resumes_jobs_of_a_small_queue(gesta, beside_a_small_queue):
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        await engine.admin.pause(flow=FLOW, reason="maintenance")
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        assert [one.count for one in await engine.pipeline.environment.stores.job_holds.held()] == [
            1
        ]
        await engine.admin.resume(flow=FLOW)
        assert await request.outcome() == Done("provider-1")


async def test_an_external_flow_is_refused_where_the_queue_lacks_external_leases(
    gesta, beside_a_small_queue
):
    with pytest.raises(BadSettings, match="small does not implement ExternalLeases"):
        async with Engine(URL, flows=[external("test.job", on_unknown="manual", payload=Note)]):
            pass


async def test_a_queue_that_cannot_hold_jobs_is_refused(gesta):
    queue = replace(small_queue(gesta), job_holds=None)
    stores = MemoryDatabase(gesta.runtime).stores()
    with pytest.raises(BadSettings, match=r"small does not implement JobHolds \(unhold, held\)"):
        with_separate_queue(stores, queue, gesta.runtime)


async def test_a_store_without_undispatched_jobs_takes_no_separate_queue(gesta):
    stores = replace(MemoryDatabase(gesta.runtime).stores(), undispatched_jobs=None)
    with pytest.raises(BadSettings, match="memory does not implement UndispatchedJobs"):
        with_separate_queue(stores, small_queue(gesta), gesta.runtime)


async def test_a_store_beside_a_queue_without_fences_cannot_be_left(gesta):
    stores = MemoryDatabase(gesta.runtime).stores()
    separate = with_separate_queue(stores, small_queue(gesta), gesta.runtime)
    with pytest.raises(BadSettings, match="small does not implement Fences"):
        await separate.fences.put_up(Fence("left", "another"))
    assert await stores.fences.standing() == []


@pytest.mark.parametrize("name", ["memory", "sqlite"])
async def test_a_harness_declares_what_its_store_has(tmp_path, name):
    harness = harness_types()[name](tmp_path)
    ports = await harness.open_ports()
    assert ports.capabilities == harness.capabilities & PORTS.keys()
    await ports.close()
