"""The pipeline's own test rows, shown on a server as they are on memory and SQLite."""

from __future__ import annotations

from gesta import Attempt, Done, Flow, Outcome, Rejected
from gesta.domain.commands import Rules
from gesta.domain.events import Completed, Created
from gesta.ports.event_store import Append, Appended, Stale
from gesta.testing.contracts.samples import fresh_append
from tests.stores.postgresql.places import Note, engine_at, fresh_url, opened, projected


async def refuse_some(payload: Note, attempt: Attempt) -> Outcome:
    return Rejected("no") if payload.text == "refused" else Done(id=payload.text)


FLOW = Flow("test.note", Note, refuse_some, Rules(on_unknown="resend"))


async def test_an_append_at_a_version_that_has_moved_is_refused():
    async with opened(await fresh_url()) as stores:
        append = fresh_append()
        late = Append(append.stream, 0, fresh_append().events)
        assert await stores.events.append([append]) == [Appended(len(append.events))]
        # R1-35: the expected revision decides, and a late caller gets the actual one.
        assert await stores.events.append([late]) == [Stale(len(append.events))]
        # R1-49: of a conflict nothing is written.
        assert len(await stores.events.read([(append.stream, 0)])) == len(append.events)


async def test_a_submit_appends_the_right_event_with_its_metadata():
    url = await fresh_url()
    async with engine_at(url, FLOW) as engine:
        request = await engine.submit(
            Note("hello"), key="k", tenant="acme", correlation_id="order-7"
        )
        await request.outcome(timeout=60)
        history = await engine.history(request.id, tenant="acme")
        # R1-49: the right events, in order, and their metadata.
        assert [type(event) for _, event, _ in history] == [Created, Completed]
        meta = history[0][2]
        assert (meta.tenant, meta.flow, meta.request_id, meta.correlation_id) == (
            "acme",
            "test.note",
            request.id,
            "order-7",
        )


async def test_the_projection_is_right_dispatches_once_and_keeps_its_indexes():
    url = await fresh_url()
    async with engine_at(url, FLOW, work=False) as engine:
        sent, refused = await engine.submit(Note("completed")), await engine.submit(Note("refused"))
        while await engine.pipeline.projector.step():
            pass
        jobs = await engine.pipeline.environment.stores.job_inspection.jobs("", 10)
        # R1-50: one job for each, and none more when the same events are met again.
        assert [one.job.request_id for one in jobs] == sorted([sent.id, refused.id])
        await engine.admin.rebuild()
        assert await engine.pipeline.environment.stores.job_inspection.jobs("", 10) == jobs
    async with engine_at(url, FLOW) as engine:
        for one in (sent, refused):
            await (await engine.request(one.id)).outcome(timeout=60)
        await projected(engine)
        views = {view.state.id: view for view in await engine.find()}
        # R1-50: the snapshot is right, and an id is under one status only.
        assert {name: (view.state.status, view.state.version) for name, view in views.items()} == {
            sent.id: ("completed", 2),
            refused.id: ("failed", 2),
        }
        assert [view.state.id for view in await engine.find(status="failed")] == [refused.id]
        assert await engine.admin.counts() == {
            ("test.note", "completed"): 1,
            ("test.note", "failed"): 1,
        }
