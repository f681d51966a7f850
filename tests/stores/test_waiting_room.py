"""A queue without UniqueJobs beside a store: the engine makes up for what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from gesta import Done, Engine, Retry, external
from gesta.engine.environment import Environment, Wiring
from gesta.errors import BadSettings
from gesta.ports.stores import QueuePorts
from gesta.runtime.settings import Settings
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.stores.separate_queue import with_separate_queue
from gesta.testing.plugin import Harness
from tests.world import FLOW, URL, Gate, Note, Provider, note_flow, pass_time, types_of


class Forgetful(MemoryJobQueue):
    """Marks its jobs as a queue does that may have copies, and loses what the test names."""

    async def take(self, *args, **options):
        leased, next_due = await super().take(*args, **options)
        return [changed(one, may_be_copy=True) for one in leased], next_due

    async def moved(self) -> dict[str, int]:
        return {}

    def lose_everything(self) -> None:
        self._rows.clear()


@pytest.fixture
def queue(gesta: Harness) -> Iterator[Forgetful]:
    """The queue beside which every engine of the test runs."""
    before, queue = Wiring.wire, Forgetful(gesta.runtime)

    async def close() -> None: ...

    async def wire(settings: Settings) -> Environment:
        environment = await gesta.wire(settings)
        ports = QueuePorts(
            queue=queue,
            job_counts=queue,
            close=close,
            now_ms=gesta.runtime.now_ms,
            name="forgetful",
            leases_are_durable=False,
        )
        stores = with_separate_queue(environment.stores, ports, gesta.runtime)
        return replace(environment, stores=stores)

    Wiring.wire = staticmethod(wire)
    yield queue
    Wiring.wire = staticmethod(before)


async def test_every_attempt_is_journalled_before_its_call(gesta, queue):
    async with Engine(URL, flows=[note_flow(Provider(Retry("throttled")))]) as engine:
        request = await engine.submit(Note())
        assert await request.outcome() == Done("provider-2")
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "AttemptStarted",
            "AttemptFailed",
            "AttemptStarted",
            "Completed",
        ]


async def test_a_pause_holds_a_job_in_the_store_and_not_in_the_queue(gesta, queue):
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        await engine.admin.pause(flow=FLOW, reason="maintenance")
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        stores = engine.pipeline.environment.stores
        assert [one.count for one in await stores.job_holds.held()] == [1]
        assert await queue.count(10) == 0
        assert (await stores.job_inspection.backlog())[FLOW].held == 1
        await engine.admin.resume(flow=FLOW)
        assert await request.outcome() == Done("provider-1")
        await pass_time(gesta, 5)
        assert await stores.job_inspection.count(10) == 0


async def test_a_job_that_the_queue_lost_is_put_again_after_a_quarter_of_an_hour(gesta, queue):
    provider = Provider(Retry("busy", after_seconds=60))
    async with Engine(URL, flows=[note_flow(provider)]) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        queue.lose_everything()
        await pass_time(gesta, 60 + 14 * 60, 5)
        assert len(provider.calls) == 1
        await pass_time(gesta, 2 * 60 + 10, 5)
        assert len(provider.calls) == 2
        assert await request.status() == "completed"


async def test_a_request_is_cancelled_while_its_job_stays_in_the_queue(gesta, queue):
    provider = Provider(Retry("busy", after_seconds=60))
    async with Engine(URL, flows=[note_flow(provider)]) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        assert await request.cancel() == "cancelled"
        assert await queue.count(10) == 1
        await pass_time(gesta, 90)
        assert await queue.count(10) == 0
        assert len(provider.calls) == 1


async def test_a_cancellation_during_a_call_waits_for_its_end(gesta, queue):
    gate = Gate()
    async with Engine(URL, flows=[note_flow(Provider(gate))]) as engine:
        request = await engine.submit(Note())
        await gate.reached.wait()
        assert await request.cancel() == "queued"
        gate.opened.set()
        assert isinstance(await request.outcome(), Done)


async def test_flows_of_external_workers_and_a_list_of_jobs_are_refused_with_the_port(gesta, queue):
    with pytest.raises(BadSettings, match="forgetful does not implement ExternalLeases"):
        async with Engine(URL, flows=[external("test.job", on_unknown="manual", payload=Note)]):
            pass
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        stores = engine.pipeline.environment.stores
        assert "unique_jobs" not in stores.capabilities
        with pytest.raises(BadSettings, match="forgetful does not implement JobInspection"):
            await stores.job_inspection.jobs("", 1)
