"""G6, shown by order and not by time: whatever one tenant floods the engine with, another tenant's
request is among the next.
"""

from __future__ import annotations

import pytest

from gesta import Engine, Options, Request
from gesta.errors import PartlyAccepted, StoreError
from gesta.intake.batch_throttle import WAIT_SECONDS_MAX, BatchThrottle
from gesta.runtime import clock as runtime
from gesta.runtime.clock import spawn
from tests.world import FLOW, Gate, Note, Provider, engine_of, let_run, note_flow, pass_time

FLOOD = 2_000
SLOTS = 16


async def _passed_by(engine: Engine, provider: Provider, gate: Gate, settle) -> int:
    """How many calls of the flood came before the other tenant's, once all slots had been full with
    the flood.
    """
    flood = [(Note(), Options(tenant="flood")) for _ in range(FLOOD)]
    await engine.submit_many(flood)
    await gate.reached.wait()
    await settle()
    begun = len(provider.calls)
    assert begun == SLOTS
    await engine.submit(Note(), tenant="other")
    await settle()
    gate.opened.set()
    while "other" not in (tenants := [call.tenant for call in provider.calls[begun:]]):
        await runtime.turn()
    return tenants.index("other")


async def test_a_flood_queues_behind_itself(gesta):
    gate = Gate()
    provider = Provider(*[gate] * SLOTS)
    async with engine_of(provider, concurrency=SLOTS) as engine:
        passed_by = await _passed_by(engine, provider, gate, lambda: let_run(gesta))
        assert passed_by <= 2


async def test_a_flood_on_a_file_queues_behind_itself(tmp_path):
    gate = Gate()
    provider = Provider(*[gate] * SLOTS)
    async with Engine(
        f"sqlite:///{tmp_path / 'gesta.db'}", flows=[note_flow(provider, concurrency=SLOTS)]
    ) as engine:

        async def settled() -> None:
            while len(provider.calls) < SLOTS or await engine.admin.unseen():
                await runtime.turn()

        passed_by = await _passed_by(engine, provider, gate, settled)
        # While the job is on its way into the queue, slots that fall free are the flood's.
        assert passed_by <= 2 * SLOTS


async def test_a_paused_flood_delays_no_other_tenant(gesta):
    provider = Provider()
    async with engine_of(provider, concurrency=SLOTS) as engine:
        await engine.admin.pause(tenant="flood")
        await engine.submit_many([(Note(), Options(tenant="flood")) for _ in range(FLOOD)])
        request = await engine.submit(Note(), tenant="other")
        await let_run(gesta)
        assert [call.request_id for call in provider.calls] == [request.id]
        assert (await engine.admin.held())[0].scope == "tenant:flood"


def _parts(ports) -> list[int]:
    """How many requests each append has from here on."""
    sizes: list[int] = []

    async def listen(append, appends):
        sizes.append(len(appends))
        return await append(appends)

    ports.events.replace("append", listen)
    return sizes


async def test_a_lone_tenant_s_batch_is_one_append(gesta, ports):
    async with engine_of(Provider()) as engine:
        sizes = _parts(ports)
        await engine.submit_many([Note()] * 250)
        assert sizes == [250]


async def test_a_batch_goes_in_parts_and_rests_while_others_are_at_work(gesta, ports):
    """What it appends stands in the log before the next request."""
    async with engine_of(Provider()) as engine:
        await engine.submit(Note(), tenant="other")
        await engine.submit(Note())
        sizes = _parts(ports)
        batch = runtime.spawn(engine.submit_many([Note()] * 250), "batch")
        await let_run(gesta)
        await engine.submit(Note(), tenant="other")
        while not batch.done():
            gesta.advance(0.1)
            await let_run(gesta)
        assert sorted(sizes, reverse=True) == [100, 100, 50, 1]
        assert len(await batch) == 250
        # A second later the others are gone.
        await engine.submit(Note())
        gesta.advance(1)
        sizes.clear()
        await engine.submit_many([Note()] * 250)
        assert sizes == [250]


async def test_a_part_waits_until_little_is_left_to_be_projected(gesta):
    async with engine_of(Provider()) as engine:
        projector = engine.pipeline.projector
        await engine.submit(Note())
        await let_run(gesta)
        projector._is_behind = True
        waiting, too_long = (
            runtime.spawn(projector.not_far_behind(seconds), "part") for seconds in (10.0, 0.4)
        )
        await runtime.turn()
        gesta.advance(0.5)
        await runtime.turn()
        await runtime.turn()
        assert (waiting.done(), too_long.done()) == (False, True)
        await engine.submit(Note())
        await let_run(gesta)
        assert waiting.done()


async def test_a_store_that_fails_between_two_parts_reports_what_was_accepted(gesta, ports):
    async with engine_of(Provider()) as engine:
        await engine.submit(Note(), tenant="other")
        calls = iter([False, True])

        async def fail_second(append, appends):
            if next(calls):
                raise StoreError("no room left")
            return await append(appends)

        ports.events.replace("append", fail_second)
        submitting = runtime.spawn(
            engine.submit_many([(Note(), Options(key=str(n))) for n in range(250)]), "batch"
        )
        while not submitting.done():
            gesta.advance(0.5)
            await let_run(gesta)
        with pytest.raises(
            PartlyAccepted,
            match="100 of 250 requests were accepted, then: no room left; submit the other 150",
        ) as partly:
            await submitting
        accepted = [one for one in partly.value.answers if isinstance(one, Request)]
        assert [one.verdict for one in accepted] == ["created"] * 100
        assert (await engine.get(accepted[99].id)).state.key == "99"


async def test_the_slots_of_a_flow_are_not_all_filled_by_one_take(gesta, ports):
    gate = Gate()
    slots = 80
    async with engine_of(Provider(*[gate] * slots), concurrency=slots) as engine:
        asked = []

        async def listen(take, token, flows, lease_seconds, *, durable):
            asked.append(flows[FLOW])
            return await take(token, flows, lease_seconds, durable=durable)

        ports.queue.replace("take", listen)
        await engine.submit_many([Note()] * FLOOD)
        await let_run(gesta)
        assert max(asked) == slots // 8
        gate.opened.set()


async def test_a_batch_waits_at_most_a_second_between_two_parts_however_long_one_took(gesta):
    async def not_far_behind(_: float) -> None: ...

    throttle = BatchThrottle(gesta.runtime, not_far_behind)
    began = gesta.runtime.monotonic()
    gesta.advance(5)
    waiting = spawn(throttle.give_way(began), "test")
    await let_run(gesta)
    await pass_time(gesta, WAIT_SECONDS_MAX)
    await let_run(gesta)
    assert waiting.done()
