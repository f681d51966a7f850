"""The store is out of reach for long, for one component after the other: none crashes, and each
goes on by itself once it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gesta import Done, Engine
from gesta.engine.health import FRESH_SECONDS, ProcessHealth
from gesta.engine.process_roles import Part, Work
from gesta.errors import StoreError
from gesta.runtime.settings import load
from gesta.runtime.telemetry import Telemetry
from gesta.worker.lease import LEASE_SECONDS
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)

#: Longer than every lease and every pause between two tries.
OUTAGE_SECONDS = 30.0
#: Every component looks at the store again this soon.
AGAIN_SECONDS = 15.0
REST: dict[Part, tuple[Part, ...]] = {
    "projector": ("worker", "sweeper"),
    "worker": ("projector", "sweeper"),
    "sweeper": ("projector", "worker"),
}


@pytest.fixture(autouse=True)
def crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A store that fails is no crash of a component: that would be logged as a bug of gesta."""
    found: list[str] = []
    monkeypatch.setattr(
        Telemetry, "crashed", lambda _, component, error: found.append(f"{component}: {error!r}")
    )
    yield found
    assert found == []


@asynccontextmanager
async def one_part(provider: Provider, part: Part, **settings: Any) -> Any:
    """An engine whose ports fail on demand runs this part alone; another one, whose ports do not,
    runs the rest of the pipeline.
    """

    def engine(*parts: Part) -> Engine:
        return Engine(
            flows=[note_flow(provider, on_unknown="manual")],
            settings=load({"url": URL} | settings),
            work=Work(frozenset(parts)),
        )

    async with engine(*REST[part]) as rest, engine(part) as alone:
        yield rest, alone


async def outage(gesta: Any, ports: Any) -> None:
    ports.go_down()
    await pass_time(gesta, OUTAGE_SECONDS)


async def back(gesta: Any, ports: Any) -> None:
    ports.come_back()
    await pass_time(gesta, AGAIN_SECONDS)


@pytest.mark.parametrize("part", ["projector", "worker"])
async def test_projector_and_worker_go_on(gesta, ports, part):
    provider = Provider()
    async with one_part(provider, part) as (rest, _):
        await pass_time(gesta, 2)
        await outage(gesta, ports)
        request = await rest.submit(Note())
        await pass_time(gesta, 5)
        assert provider.calls == []
        await back(gesta, ports)
        assert await result(request) == Done(id="provider-1")
        assert await types_of(rest, request.id) == ["RequestCreated", "Completed"]


@pytest.mark.parametrize("part", ["projector", "worker", "sweeper"])
async def test_a_part_that_starts_while_the_store_is_out_of_reach_begins_when_it_is_back(
    gesta, ports, part
):
    provider = Provider()
    async with one_part(provider, part) as (rest, alone):
        ports.go_down()
        health = ProcessHealth()
        health.watch(alone.pipeline)
        await pass_time(gesta, OUTAGE_SECONDS)
        assert alone.pipeline.not_begun() == [{"sweeper": "sweep"}.get(part, part)]
        assert health.not_live() == {}
        assert (await health.not_ready())["store"] == "cannot be used (StoreError)"
        await back(gesta, ports)
        assert await health.not_ready() == {}
        request = await rest.submit(Note())
        await pass_time(gesta, 5)
        assert await result(request) == Done(id="provider-1")


@pytest.mark.parametrize("what", ["everything", "the queue"])
async def test_the_relay_continues_after_an_outage(gesta, ports, what):
    provider = Provider()
    async with one_part(provider, "projector", queue_url="memory:queue") as (rest, _):
        await pass_time(gesta, 2)
        if what == "everything":
            ports.go_down()
        else:
            ports.queue.is_down = True
        request = await rest.submit(Note())
        await pass_time(gesta, OUTAGE_SECONDS)
        assert provider.calls == []
        await back(gesta, ports)
        assert await result(request) == Done(id="provider-1")
        assert await types_of(rest, request.id) == ["RequestCreated", "Completed"]


async def test_the_lease_is_renewed_again(gesta, ports):
    short, long = Gate(), Gate()
    provider = Provider(short, long)
    async with one_part(provider, "worker") as (rest, alone):
        request = await rest.submit(Note())
        await pass_time(gesta, 2)
        # Shorter than the lease: the call is not even cut.
        ports.go_down()
        await pass_time(gesta, 1.5)
        ports.come_back()
        await pass_time(gesta, 2 * LEASE_SECONDS)
        short.opened.set()
        await pass_time(gesta, 2)
        assert await result(request) == Done(id="through the gate")
        await outage(gesta, ports)
        request = await rest.submit(Note())
        await back(gesta, ports)
        await pass_time(gesta, 3 * LEASE_SECONDS)
        assert alone.pipeline.pool.lease.held == 1
        long.opened.set()
        await pass_time(gesta, 2)
        assert await types_of(rest, request.id) == ["RequestCreated", "Completed"]


async def test_a_call_that_the_outage_outlasts_is_cut_and_unknown_never_lost(gesta, ports):
    provider = Provider(Gate())
    async with one_part(provider, "worker") as (rest, alone):
        request = await rest.submit(Note())
        await pass_time(gesta, 2)
        await outage(gesta, ports)
        assert alone.pipeline.pool.in_flight == 1
        await back(gesta, ports)
        assert await types_of(rest, request.id) == ["RequestCreated", "OutcomeUnknown"]
        assert alone.pipeline.pool.in_flight == 0
        assert await (await rest.submit(Note())).outcome() == Done(id="provider-2")


async def test_the_sweep_continues_after_an_error(gesta, ports):
    provider = Provider()
    async with one_part(provider, "sweeper") as (rest, _):
        at = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(hours=1)
        request = await rest.submit(Note(), deliver_at=at)
        await let_run(gesta)
        ports.go_down()
        gesta.advance(3600 + OUTAGE_SECONDS)
        await pass_time(gesta, 5)
        assert provider.calls == []
        await back(gesta, ports)
        assert await result(request) == Done(id="provider-1")


async def test_retention_continues_after_an_outage(gesta, ports):
    async with one_part(Provider(), "sweeper", retention=timedelta(days=1)) as (rest, _):
        await rest.submit(Note())
        await pass_time(gesta, 2)
        ports.go_down()
        gesta.advance(2 * 86_400)
        await pass_time(gesta, OUTAGE_SECONDS)
        assert len(await rest.find()) == 1
        await back(gesta, ports)
        assert await rest.find() == []


async def test_jobs_that_a_resume_left_held_are_released(gesta, ports):
    provider = Provider()
    async with one_part(provider, "sweeper") as (rest, alone):
        await rest.admin.pause(flow=FLOW, reason="the provider moves")
        request = await rest.submit(Note())
        await pass_time(gesta, 2)
        ports.queue.fail("unhold")
        with pytest.raises(StoreError):
            await alone.admin.resume(flow=FLOW)
        await outage(gesta, ports)
        assert provider.calls == []
        await back(gesta, ports)
        assert await result(request) == Done(id="provider-1")


async def test_subscriptions_go_on_and_tell_everything_once(gesta, ports):
    reported: list[tuple[str, str]] = []
    rest = Engine(URL, flows=[note_flow(Provider())], work=Work(frozenset({"worker", "sweeper"})))
    alone = Engine(URL, flows=[note_flow(Provider())], work=Work(frozenset({"projector"})))

    @alone.on(FLOW, name="ledger")
    async def book(event: Any) -> None:
        reported.append((event.request_id, event.status))

    async with rest, alone:
        before = await rest.submit(Note())
        await pass_time(gesta, 2)
        await outage(gesta, ports)
        after = await rest.submit(Note())
        await back(gesta, ports)
        assert reported == [
            (one.id, word) for one in (before, after) for word in ("created", "completed")
        ]


@pytest.mark.parametrize("part", ["projector", "worker", "sweeper"])
async def test_readiness_follows_the_store_and_liveness_does_not(gesta, ports, part):
    async with one_part(Provider(), part) as (_, alone):
        health = ProcessHealth()
        assert await health.not_ready() == {"process": "is starting"}
        health.watch(alone.pipeline)
        await pass_time(gesta, 2)
        assert (await health.not_ready(), health.not_live()) == ({}, {})
        ports.go_down()
        await pass_time(gesta, 2)
        assert (await health.not_ready(), health.not_live()) == (
            {"store": "cannot be used (StoreError)"},
            {},
        )
        ports.come_back()
        await pass_time(gesta, FRESH_SECONDS)
        assert (await health.not_ready(), health.not_live()) == ({}, {})


async def test_a_store_that_is_silent_is_asked_once_and_logged(gesta, ports):
    async with one_part(Provider(), "worker") as (_, alone):
        health, silent = ProcessHealth(), asyncio.Event()
        health.watch(alone.pipeline)
        await pass_time(gesta, 2)

        async def hang(original: Any, *args: Any) -> Any:
            await silent.wait()
            return await original(*args)

        ports.read_model.replace("claim", hang)
        asking = [asyncio.ensure_future(health.not_ready()) for _ in range(5)]
        await pass_time(gesta, 3)
        assert [await one for one in asking] == [{"store": "has not answered for 2 s"}] * 5
        assert await health.not_ready() == {"store": "has not answered for 2 s"}
        assert ports.read_model.calls["claim"] == 1
        silent.set()
        await pass_time(gesta, FRESH_SECONDS)
        assert await health.not_ready() == {}


async def test_a_component_that_is_gone_or_crashes_is_not_alive(gesta, crashes):
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        health, pipeline = ProcessHealth(), engine.pipeline
        health.watch(pipeline)
        await pass_time(gesta, 2)

        async def broken() -> None:
            raise KeyError("a secret")

        pipeline.sweep.step = broken  # type: ignore[method-assign]
        pipeline.components.tasks["lease"].cancel()
        await pass_time(gesta, 0.5)
        assert health.not_live() == {
            "lease": "does not run",
            "sweep": "crashed (KeyError) and is being started again",
        }
        assert (await health.not_ready()).keys() == {"lease", "sweep"}
    assert crashes != []
    crashes.clear()
