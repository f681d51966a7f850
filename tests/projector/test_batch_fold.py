"""Folding a batch: what was folded before changes nothing, and what a batch closes needs no job."""

from __future__ import annotations

from collections.abc import Sequence

from gesta import Engine
from gesta.ports.event_store import Recorded
from gesta.ports.read_model import Key, View
from gesta.projector.batch_fold import Folded, Folding
from tests.world import FLOW, URL, Note, Provider, append_raw, note_flow


async def fold(engine: Engine, batch: Sequence[Recorded], quiet_until: int = 0) -> Folded:
    """Fold onto the views of the store, and log as the projector does."""
    stores, pipeline = engine.pipeline.environment.stores, engine.pipeline

    async def known(keys: Sequence[Key]) -> dict[Key, View]:
        return await stores.read_model.get(keys)

    folding = Folding(stores.events, known, pipeline.process)
    folded = await folding.fold(list(batch), quiet_until)
    folding.log_quarantined()
    return folded


def quarantined_total(engine: Engine) -> float | None:
    registry = engine.pipeline.telemetry.registry
    return registry.get_sample_value("gesta_quarantined_total", {"what": "event"})


async def log_of(engine: Engine) -> list[Recorded]:
    return await engine.pipeline.environment.stores.events.follow(0, 100)


async def test_an_event_that_the_view_shows_already_gives_no_view_and_no_job(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        await (await engine.submit(Note())).cancel()
        await engine.pipeline.projector.step()
        _, cancelled = await log_of(engine)
        assert await fold(engine, [cancelled]) == Folded([], [], [], [])


async def test_a_request_that_a_batch_opens_and_closes_gets_no_job(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        closed, open_one = await engine.submit(Note()), await engine.submit(Note())
        await closed.cancel()
        folded = await fold(engine, await log_of(engine))
        assert {view.state.id for view in folded.views} == {closed.id, open_one.id}
        assert [job.request_id for job in folded.jobs] == [open_one.id]


async def test_a_poison_event_is_logged_by_the_first_fold_only(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        request = await engine.submit(Note())
        await append_raw(engine, request.id, 1, "Completed.v1", b"{")
        log = await log_of(engine)
        assert len((await fold(engine, log, quiet_until=log[-1].position)).quarantined) == 1
        assert quarantined_total(engine) is None
        (poison,) = (await fold(engine, log, quiet_until=log[-1].position - 1)).quarantined
        assert (poison.stream, poison.version) == (f"{FLOW}.request-default-{request.id}", 2)
        assert quarantined_total(engine) == 1
