"""G6, told by order and not by time: whatever one tenant floods the engine with, another tenant's request is among the next."""

from __future__ import annotations

from gesta import Engine, Options, runtime
from tests.stations.world import FLOW, Gate, Note, Provider, engine_of, let_run, note_flow

FLOOD = 2_000
SLOTS = 16


async def _passed_by(engine: Engine, provider: Provider, gate: Gate, settle) -> int:
    """How many calls of the flood came before the other tenant's, once all slots had been full with the flood."""
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
    async with Engine(f"sqlite:///{tmp_path / 'gesta.db'}", flows=[note_flow(provider, concurrency=SLOTS)]) as engine:

        async def settled() -> None:
            while len(provider.calls) < SLOTS or await engine.operating.unseen():
                await runtime.turn()

        passed_by = await _passed_by(engine, provider, gate, settled)
        # While the job is on its way into the queue, slots that fall free are the flood's.
        assert passed_by <= 2 * SLOTS


async def test_a_paused_flood_delays_nobody(gesta):
    provider = Provider()
    async with engine_of(provider, concurrency=SLOTS) as engine:
        await engine.operating.pause(tenant="flood")
        await engine.submit_many([(Note(), Options(tenant="flood")) for _ in range(FLOOD)])
        request = await engine.submit(Note(), tenant="other")
        await let_run(gesta)
        assert [call.request_id for call in provider.calls] == [request.id]
        assert (await engine.operating.held())[0].scope == "tenant:flood"


async def test_a_batch_waits_while_much_is_left_to_be_projected(gesta):
    """What it appends would stand in the log before theirs."""
    async with engine_of(Provider()) as engine:
        projector = engine.road.projector
        await engine.submit(Note())
        await let_run(gesta)
        projector._is_behind = True
        waiting = runtime.spawn(engine.submit_many([Note()] * 50), "batch")
        await runtime.turn()
        await runtime.turn()
        assert not waiting.done()
        assert len(await engine.submit_many([Note()] * 49)) == 49
        await let_run(gesta)
        assert waiting.done()


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
