"""Processes with some roles each: together a whole pipeline, and each runs only its own."""

from __future__ import annotations

import asyncio
import os
import platform
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import pytest

from gesta import Done, Engine, Flow, Payload
from gesta.engine.process_roles import EVERYTHING, Part, Work
from gesta.errors import UnknownFlow
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.ports.leases import LEASE_SECONDS, RENEWAL_SECONDS, REPORT_LEASE_SECONDS, LiveProcess
from gesta.projector.partitions import CHECKPOINT
from gesta.projector.projector import BEHIND
from gesta.runtime import clock as runtime
from gesta.runtime.settings import load
from tests.world import URL, Gate, Note, Provider, let_run, note_flow, pass_time, result, types_of


class Card(Payload, frozen=True):
    cents: int = 1


def work(*parts: Part, flows: tuple[str, ...] = ()) -> Work:
    return Work(frozenset(parts), flows)


def part_of(provider: Provider, *parts: Part, **options: Any) -> Engine:
    return Engine(URL, flows=[note_flow(provider, **options)], work=work(*parts))


async def holders(engine: Engine) -> dict[str, str]:
    """Role → its owner, of the roles that are held now."""
    now = engine.pipeline.runtime.now_ms()
    return {
        role.name: role.owner
        for role in await engine.pipeline.environment.stores.leases.roles()
        if role.is_held(now)
    }


async def test_every_running_process_is_listed_with_its_roles_until_it_stops(gesta):
    provider = Provider()
    serving = part_of(provider)
    serving.web()
    async with part_of(provider) as asking:
        leases = asking.pipeline.environment.stores.leases
        async with part_of(provider, "projector", "sweeper") as first, serving:
            async with part_of(provider, "worker") as worker:
                await let_run(gesta)
                found = {one.id: one for one in await leases.processes()}
                assert {name: one.roles for name, one in found.items()} == {
                    first.pipeline.owner: ("projector", "sweeper"),
                    serving.pipeline.owner: ("api",),
                    worker.pipeline.owner: ("worker",),
                }
                one = found[worker.pipeline.owner]
                assert (one.host, one.pid, one.version) == (
                    platform.node(),
                    os.getpid(),
                    version("gesta"),
                )
                # Longer than the lease of a report.
                await pass_time(gesta, REPORT_LEASE_SECONDS + 1)
                assert len(await leases.processes()) == 3
            assert worker_gone(await leases.processes(), found)
        assert await leases.processes() == []


def worker_gone(left: list[LiveProcess], before: dict[str, LiveProcess]) -> bool:
    gone = before.keys() - {one.id for one in left}
    return [before[name].roles for name in gone] == [("worker",)]


async def test_a_projector_workers_and_a_sweeper_are_a_whole_pipeline(gesta):
    provider = Provider()
    async with (
        part_of(provider, "projector") as projector,
        part_of(provider, "worker"),
        part_of(provider, "worker"),
        part_of(provider, "sweeper") as sweeper,
        part_of(provider) as asking,
    ):
        request = await asking.submit(Note())
        assert await request.outcome() == Done(id="provider-1")
        late = await asking.submit(
            Note(),
            deliver_at=datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC)
            + timedelta(days=2),
        )
        await gesta.settle()
        assert await late.status() == "completed"
        assert await holders(asking) == {
            CHECKPOINT: projector.pipeline.owner,
            SWEEP: sweeper.pipeline.owner,
        }
    assert len(provider.calls) == 2


@pytest.mark.parametrize(
    ("missing", "others"),
    [("worker", ("projector", "sweeper")), ("projector", ("worker", "sweeper"))],
)
async def test_a_process_runs_only_its_roles(gesta, missing, others):
    provider = Provider()
    async with part_of(provider, *others) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 70)
        assert provider.calls == []
        async with part_of(provider, missing):
            await pass_time(gesta, 70)
            assert await request.status() == "completed"


async def test_a_worker_takes_jobs_of_its_flows_only(gesta):
    notes, cards, wires = Provider(), Provider(), Provider()

    class Wire(Payload, frozen=True):
        cents: int = 1

    declared = [
        note_flow(notes),
        Flow("pay.card", Card, cards.execute),
        Flow("pay.wire", Wire, wires.execute),
    ]
    async with Engine(
        URL, flows=declared, work=work("projector", "worker", flows=("pay.*",))
    ) as paying:
        await paying.submit(Note())
        await paying.submit(Card())
        await paying.submit(Wire())
        await pass_time(gesta, 10)
        assert (len(notes.calls), len(cards.calls), len(wires.calls)) == (0, 1, 1)
        async with Engine(
            URL, flows=declared, work=work("worker", flows=("test.note", "pay.wire"))
        ):
            await pass_time(gesta, 10)
            assert (len(notes.calls), len(cards.calls), len(wires.calls)) == (1, 1, 1)


@pytest.mark.parametrize("pattern", ["payments.*", "test", "test.notes", "test.note.*", ""])
async def test_a_pattern_that_fits_no_flow_is_refused_before_anything_is_opened(gesta, pattern):
    engine = Engine(
        URL, flows=[note_flow(Provider())], work=work("worker", flows=("test.*", pattern))
    )
    with pytest.raises(
        UnknownFlow, match=f"no flow '{pattern}'.*it has: test.note".replace("*'", r"\*'")
    ):
        await engine.start()
    assert gesta._databases == {}


async def test_only_the_process_of_the_projector_calls_handlers(gesta):
    reported: dict[str, list[str]] = {"projector": [], "worker": []}

    def listening(part: Part) -> Engine:
        engine = part_of(Provider(), part)

        @engine.on("test.note", "completed", name="ledger")
        async def book(event: Any) -> None:
            reported[part].append(event.request_id)

        return engine

    async with listening("worker") as worker, listening("projector"):
        request = await worker.submit(Note())
        await pass_time(gesta, 5)
    assert reported == {"projector": [request.id], "worker": []}


@pytest.mark.parametrize("is_separate", [False, True])
async def test_leader_roles_are_released_at_stop(gesta, is_separate):
    urls = {"url": URL} | ({"queue_url": "memory:queue"} if is_separate else {})

    def engine() -> Engine:
        made = Engine(flows=[note_flow(Provider())], settings=load(urls))
        made.on("test.note", name="ledger")(_ignore)
        return made

    first, second = engine(), engine()
    await first.start()
    await pass_time(gesta, 2)
    await second.start()
    await pass_time(gesta, 2)
    assert set((await holders(second)).values()) == {first.pipeline.owner}
    assert len(await holders(second)) == 3
    await first.stop()
    assert await holders(second) == {}
    # A process on standby looks once in RENEWAL_SECONDS; a lease that was kept would last for two
    # looks more.
    assert RENEWAL_SECONDS * 2 < LEASE_SECONDS
    await pass_time(gesta, RENEWAL_SECONDS)
    assert set((await holders(second)).values()) == {second.pipeline.owner}
    assert len(await holders(second)) == 3
    await second.stop()


async def _ignore(_: object) -> None:
    """Does nothing."""


async def test_the_sweep_goes_to_another_process_while_an_attempt_still_runs(gesta):
    gate = Gate()
    first = part_of(Provider(gate), *EVERYTHING.parts)
    await first.start()
    object.__setattr__(first.pipeline.environment, "drain_seconds", 22.0)
    request = await first.submit(Note())
    await let_run(gesta)
    async with part_of(Provider()) as asking:
        stopping = asyncio.ensure_future(first.stop())
        await pass_time(gesta, 2)
        # It goes on projecting: one process has to, until the attempt has ended.
        assert set(await holders(asking)) == {CHECKPOINT}
        gate.opened.set()
        await stopping
        assert await holders(asking) == {}
        assert await result(await asking.request(request.id)) == Done(id="through the gate")


async def test_leased_jobs_that_did_not_begin_are_released_at_stop_without_an_attempt(gesta, ports):
    """This flow would leave a job that was taken without a recorded end to a person."""
    provider, loading, go_on = Provider(), asyncio.Event(), asyncio.Event()
    engine = part_of(provider, *EVERYTHING.parts, on_unknown="manual")
    await engine.start()
    object.__setattr__(engine.pipeline.environment, "drain_seconds", 22.0)
    original = engine.pipeline.loader.load

    async def slow_load(*args: Any) -> Any:
        loading.set()
        await go_on.wait()
        return await original(*args)

    engine.pipeline.loader.load = slow_load  # type: ignore[assignment,method-assign]
    request = await engine.submit(Note())
    await loading.wait()
    stopping = asyncio.ensure_future(engine.stop())
    await let_run(gesta)
    go_on.set()
    await stopping
    assert provider.calls == []
    async with part_of(provider, *EVERYTHING.parts, on_unknown="manual") as engine:
        await gesta.settle()
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]


async def test_a_part_of_a_batch_waits_for_another_process_that_projects(gesta):
    provider = Provider()
    async with part_of(provider) as submitting:
        waited = runtime.spawn(submitting.pipeline.projector.not_far_behind(1.0), "part")
        await let_run(gesta)
        assert waited.done()
        await submitting.submit_many([Note(str(n)) for n in range(BEHIND)])
        waiting = runtime.spawn(submitting.pipeline.projector.not_far_behind(60.0), "part")
        await pass_time(gesta, 0.2, 0.05)
        assert not waiting.done()
        async with part_of(provider, "projector"):
            await let_run(gesta)
            await pass_time(gesta, 0.05, 0.05)
            assert waiting.done()


async def test_a_stuck_projector_delays_a_stop_only_briefly(gesta):
    async with part_of(Provider()) as submitting:
        await submitting.submit_many([Note(str(n)) for n in range(BEHIND)])
        waiting = runtime.spawn(submitting.pipeline.projector.not_far_behind(60.0), "part")
        await pass_time(gesta, 0.5, 0.05)
        assert waiting.done()
