"""The queue in another database than the rest: jobs are written down beside the views, and the
relay carries them over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gesta import Done, Engine, Retry
from gesta.domain.ids import job_id
from gesta.engine.environment import open_ports
from gesta.errors import BadSettings, QueueRefused, StoreError
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Stale
from gesta.ports.job_queue import Drop
from gesta.ports.transactions import Entry
from gesta.projector.job_relay import Relay
from gesta.projector.partitions import Partitions
from gesta.requests.dispatch import job_for
from gesta.runtime.clock import spawn
from gesta.runtime.settings import load
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.separate_queue import with_separate_queue
from gesta.testing.contracts.samples import fresh_append, fresh_job, fresh_view
from tests.world import (
    URL,
    Faulty,
    Gate,
    Note,
    Provider,
    die,
    events_of,
    let_run,
    note_flow,
    pass_time,
    result,
)

QUEUE = "memory:queue"


def engine_with_separate_queue(provider, **options):
    return Engine(
        flows=[note_flow(provider, **options)], settings=load({"url": URL, "queue_url": QUEUE})
    )


def databases(gesta):
    """That of events and views, and that of the queue."""
    return gesta._databases[URL], gesta._databases[QUEUE]


@pytest.mark.parametrize("policy", ["resend", "manual"])
async def test_a_request_goes_through_the_whole_pipeline(gesta, policy):
    provider = Provider(Retry("throttled"))
    async with engine_with_separate_queue(provider, on_unknown=policy) as engine:
        request = await engine.submit(Note(), key="k")
        assert await request.outcome() == Done("provider-2")
        main, queue = databases(gesta)
        assert (main.queue._rows, queue.queue._rows) == ({}, {})
        assert await main.read_model.undispatched(10) == []


async def test_where_the_ports_share_a_database_nothing_is_pending_and_no_relay_runs(gesta, ports):
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        await (await engine.submit(Note())).outcome()
        assert "relay" not in engine.pipeline.components.tasks
        assert ports.read_model.calls.keys().isdisjoint(
            {"save_with_jobs", "undispatched", "find_undispatched", "remove_undispatched"}
        )


async def test_a_queue_that_is_down_stops_no_view(gesta, ports):
    async with engine_with_separate_queue(Provider()) as engine:
        await let_run(gesta)
        ports.queue.fail("put", times=10_000)
        ports.queue.fail("put_leased", times=10_000)
        ports.queue.fail("take", times=10_000)
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        (view,) = await engine.find()
        assert view.state.status == "queued"
        assert await engine.admin.unseen() == 0
        ports.queue.heal()
        await pass_time(gesta, 3)
        assert await result(request) == Done("provider-1")


async def test_a_pending_job_counts_as_live_so_the_sweep_restores_none(gesta, ports):
    """One that it restored would be possibly executed, and this flow would leave it to a person."""

    async def put(original, jobs):
        if not any(job.possibly_executed for job in jobs):
            raise StoreError("the relay cannot reach the queue, and the sweep can")
        return await original(jobs)

    async with engine_with_separate_queue(Provider(), on_unknown="manual") as engine:
        await let_run(gesta)
        ports.queue.replace("put", put)
        request = await engine.submit(Note())
        await pass_time(gesta, 200, step_seconds=1)
        ports.queue.heal()
        await pass_time(gesta, 3)
        assert await result(request) == Done("provider-1")  # S0-1


async def test_cancelling_takes_a_pending_job_away(gesta, ports):
    provider = Provider()
    async with engine_with_separate_queue(provider) as engine:
        await let_run(gesta)
        ports.queue.fail("put", times=10_000)
        ports.queue.fail("put_leased", times=10_000)
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert len(await databases(gesta)[0].read_model.undispatched(10)) == 1
        assert await request.cancel() == "cancelled"
        assert await databases(gesta)[0].read_model.undispatched(10) == []
        ports.queue.heal()
        await gesta.settle()
        assert provider.calls == []


async def test_a_request_whose_running_attempt_the_queue_forgot_is_not_cancelled(gesta):
    """Seed 21221 of the simulation: the queue was lost with a lease, so a person's retry was taken
    for the first attempt, and the effect happened twice.
    """
    gate = Gate()
    async with engine_with_separate_queue(Provider(gate)) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert gate.reached.is_set()
        queue = databases(gesta)[1].queue
        queue.__init__(gesta.runtime)
        assert await request.cancel() == "queued"
        gate.opened.set()
        await pass_time(gesta, 2)
        assert await result(request) == Done("through the gate")


async def test_while_the_queue_is_down_a_cancel_is_refused_and_takes_nothing_away(gesta, ports):
    async with engine_with_separate_queue(Provider()) as engine:
        request = await engine.submit(
            Note(), deliver_at=datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + 600, UTC)
        )
        await let_run(gesta)
        inner = databases(gesta)[1].queue
        original, inner.settle = inner.settle, _down
        with pytest.raises(StoreError):
            await request.cancel()
        inner.settle = original
        await gesta.settle()
        assert await result(request) == Done("provider-1")


async def _down(*_):
    raise StoreError("the queue is out of reach")


async def test_a_failed_append_restores_the_dropped_job_as_clean(gesta):
    async with engine_with_separate_queue(Provider(), on_unknown="manual") as engine:
        request = await engine.submit(
            Note(), deliver_at=datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + 600, UTC)
        )
        await let_run(gesta)
        events = databases(gesta)[0].events
        original, events.append = events.append, _down
        with pytest.raises(StoreError):
            await request.cancel()
        events.append = original
        await gesta.settle()
        assert await result(request) == Done("provider-1")


async def _scheduled(gesta, engine):
    """A request whose job waits in the queue."""
    request = await engine.submit(
        Note(), deliver_at=datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + 600, UTC)
    )
    await let_run(gesta)
    (standing,) = await databases(gesta)[1].queue.jobs("", 10)
    return request, standing.job


async def test_a_job_that_a_relay_is_about_to_put_is_not_put_when_its_request_is_cancelled(
    gesta,
):
    async with engine_with_separate_queue(Provider()) as engine:
        request, job = await _scheduled(gesta, engine)
        events, queue = databases(gesta)[0].events, databases(gesta)[1].queue
        append, put = events.append, []

        async def put_and_append(appends):
            put.extend(await queue.put([job]))
            return await append(appends)

        events.append = put_and_append
        assert await request.cancel() == "cancelled"
        assert put == [False]
        assert await queue.find([job.id]) == set()


async def test_a_crash_before_a_decision_is_recorded_leaves_the_job_clean(gesta):
    provider = Provider()
    engine = engine_with_separate_queue(provider, on_unknown="manual")
    await engine.start()
    request, job = await _scheduled(gesta, engine)
    events = databases(gesta)[0].events
    original, events.append = events.append, _never
    cancelling = asyncio.ensure_future(request.cancel())
    await let_run(gesta)
    await die(engine)
    cancelling.cancel()
    events.append = original
    assert await databases(gesta)[1].queue.find([job.id]) == {job.id}
    async with engine_with_separate_queue(provider, on_unknown="manual") as engine:
        await pass_time(gesta, 700, step_seconds=1)
        assert await result(await engine.request(request.id)) == Done("provider-1")


async def _never(*_):
    await asyncio.Event().wait()


async def test_a_death_between_drop_and_append_loses_no_request(gesta):
    """The job is gone and nothing says why: the sweeper restores it as possibly executed."""
    provider = Provider()
    engine = engine_with_separate_queue(provider)
    await engine.start()
    request = await engine.submit(
        Note(), deliver_at=datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + 60, UTC)
    )
    await let_run(gesta)
    job = job_id(request.id, 1)
    assert await engine.pipeline.environment.stores.queue.settle([Drop(job)]) == ["done"]
    await die(engine)
    async with engine_with_separate_queue(provider) as engine:
        await pass_time(gesta, 200, step_seconds=1)
        again = await engine.request(request.id)
        assert await result(again) == Done("provider-1")
        assert len(provider.calls) == 1


async def test_an_outcome_is_on_record_though_the_queue_went_down_during_the_call(gesta):
    async def call(_payload, _attempt):
        databases(gesta)[1].queue.settle = _down
        return Done("p")

    provider = Provider(call)
    async with engine_with_separate_queue(provider) as engine:
        await let_run(gesta)
        inner = databases(gesta)[1].queue
        original = inner.settle
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert await result(request) == Done("p")  # S1-6: acked only after the append
        assert len(await inner.find([job_id(request.id, 1)])) == 1
        inner.settle = original
        await pass_time(gesta, 2)
        assert await inner.find([job_id(request.id, 1)]) == set()
        # The append that was repeated with each try is one event.
        assert len(await events_of(engine, request.id)) == 2
    assert len(provider.calls) == 1


async def test_a_rebuild_sends_nothing_again(gesta):
    provider = Provider()
    async with engine_with_separate_queue(provider) as engine:
        await (await engine.submit(Note())).outcome()
        before = await engine.find()
        await engine.admin.rebuild()
        await pass_time(gesta, 130, step_seconds=1)
        assert await engine.find() == before  # S0-4
    assert len(provider.calls) == 1


async def test_relays_at_once_put_a_job_once(gesta):
    provider = Provider()
    async with engine_with_separate_queue(provider) as engine:
        await let_run(gesta)
        stores = engine.pipeline.environment.stores
        relays = [
            Relay(stores, Partitions(1, stores.read_model, process), process)
            for n in range(3)
            for process in [replace(engine.pipeline.process, owner=str(n))]
        ]
        job = fresh_job("other.flow")
        await stores.undispatched_jobs.save_with_jobs([], [job], [], [])
        await asyncio.gather(*(relay.step() for relay in relays))
        assert await stores.undispatched_jobs.undispatched(10) == []
        leased, _ = await stores.queue.take("t", {"other.flow": 10}, 10, durable=False)
        assert [one.job for one in leased] == [job]


async def test_a_refused_queue_with_more_than_a_page_of_jobs_blocks_no_other(gesta):
    async with engine_with_separate_queue(Provider()) as engine:
        await let_run(gesta)
        stores, process = engine.pipeline.environment.stores, engine.pipeline.process
        put, is_refused = stores.queue.put, True

        async def refuse(jobs):
            stuck = [job.id for job in jobs if job.flow == "stuck.flow"]
            answers = await put([job for job in jobs if not is_refused or job.id not in stuck])
            if is_refused and stuck:
                raise QueueRefused("another program uses a key of this queue", stuck)
            return answers

        queue = Replaced(stores.queue, put=refuse)
        relay = Relay(replace(stores, queue=queue), engine.pipeline.projector.partitions, process)
        stuck = [fresh_job("stuck.flow") for _ in range(1_500)]
        job = fresh_job("other.flow")
        await stores.undispatched_jobs.save_with_jobs([], [*stuck, job], [], [])
        await relay.step()
        await relay.step()
        assert await stores.queue.find([job.id, stuck[0].id]) == {job.id}
        # Once the queue can be used, its jobs follow by themselves.
        is_refused = False
        gesta.advance(5)
        while await relay.step():
            pass
        assert len(await stores.queue.find([one.id for one in stuck])) == 1_500


class Replaced:
    """A port with other methods here and there."""

    def __init__(self, port, **methods):
        self._port = port
        vars(self).update(methods)

    def __getattr__(self, name):
        return getattr(self._port, name)


async def test_a_queue_url_that_names_no_store_is_refused_with_its_setting(tmp_path, gesta):
    with pytest.raises(BadSettings, match=r"queue_url: .*nowhere"):
        await open_ports(
            load({"url": f"sqlite:///{tmp_path}/a.db", "queue_url": "nowhere:x"}), gesta.runtime
        )


@pytest.mark.parametrize("by", ["environment", "file"])
async def test_the_queue_has_a_file_of_its_own(tmp_path, monkeypatch, by):
    monkeypatch.chdir(tmp_path)
    if by == "environment":
        monkeypatch.setenv("GESTA_QUEUE_URL", "sqlite:///queue.db")
    else:
        (tmp_path / "gesta.toml").write_text("queue_url = 'sqlite:///queue.db'\n")
    async with Engine("sqlite:///main.db", flows=[note_flow(Provider())]) as engine:
        assert await (await engine.submit(Note(), ttl=timedelta(hours=1))).outcome() == Done(
            "provider-1"
        )
    assert {path.name for path in tmp_path.glob("*.db")} == {"main.db", "queue.db"}


async def test_the_relay_of_a_process_that_projects_nothing_reads_no_jobs(gesta):
    async with engine_with_separate_queue(Provider()) as engine:
        await let_run(gesta)
        stores, reads = engine.pipeline.environment.stores, []

        async def undispatched(*args):
            reads.append(args)
            return []

        watched = replace(
            stores, undispatched_jobs=Replaced(stores.undispatched_jobs, undispatched=undispatched)
        )
        other = replace(engine.pipeline.process, owner="another")
        relay = Relay(watched, Partitions(1, stores.leases, other), other)
        running = spawn(relay.run(), "gesta-test")
        await pass_time(gesta, 3)
        assert reads == []
        await engine.pipeline.projector.partitions.give_up()
        await pass_time(gesta, 3)
        assert reads != []
        running.cancel()


async def test_a_new_job_reaches_its_worker_without_being_written_down(gesta, ports):
    provider = Provider()
    async with engine_with_separate_queue(provider) as engine:
        await (await engine.submit(Note())).outcome()
        before = ports.queue.calls["put_leased"]
        await (await engine.submit(Note())).outcome()
        assert ports.queue.calls["put_leased"] == before + 1
        assert ports.queue.calls["put"] == 0
        assert len(provider.calls) == 2


async def test_a_job_that_was_put_early_is_put_again_after_a_crash_and_executed_once(gesta, ports):
    """The process died before its checkpoint moved."""
    provider = Provider()

    async def never(_original, *_args):
        await asyncio.Event().wait()

    engine = engine_with_separate_queue(provider)
    await engine.start()
    await (await engine.submit(Note())).outcome()
    ports.transactions.replace("project", never)
    request = await engine.submit(Note())
    await pass_time(gesta, 1)
    assert len(provider.calls) == 2
    await die(engine)
    ports.transactions.heal()
    async with engine_with_separate_queue(provider) as engine:
        await pass_time(gesta, 10)
        (view,) = [one for one in await engine.find() if one.state.id == request.id]
        assert view.state.status == "completed"
        assert databases(gesta)[1].queue._rows == {}
    assert len(provider.calls) == 2  # K-3


async def test_a_projector_that_has_to_fold_again_puts_no_job_again(gesta, ports):
    """The queue may have lost the job while it is executed: then only the sweep restores it."""
    gate = Gate()
    async with engine_with_separate_queue(Provider(Done("first"), gate)) as engine:
        await (await engine.submit(Note())).outcome()

        async def lose(_original, *_args):
            databases(gesta)[1].queue._rows.clear()
            ports.transactions.heal()
            return False

        before = ports.queue.calls["put_leased"]
        ports.transactions.replace("project", lose)
        await engine.submit(Note())
        await pass_time(gesta, 2)
        assert gate.reached.is_set()
        assert ports.queue.calls["put_leased"] == before + 1
        gate.opened.set()


@pytest.mark.parametrize("ending", ["refused", "lost"])
async def test_a_job_on_its_way_to_the_queue_survives_a_drop_that_came_to_nothing(gesta, ending):
    """The placeholder of the drop kept it out of the queue, and was removed again."""
    main, other = MemoryDatabase(gesta.runtime), MemoryDatabase(gesta.runtime)
    view = fresh_view()
    job, append = job_for(view.state), fresh_append(expected=1)
    events = Faulty(main.events)
    stores = with_separate_queue(
        replace(main.stores(), events=events), other.stores(), gesta.runtime
    )

    async def put_meanwhile(original, appends):
        free_slots = FreeSlots("t", {}, 4, durable=False)
        assert await other.queue.put_leased([job], free_slots) == [False]
        if ending == "lost":
            raise StoreError("the events cannot be written")
        return await original(appends)

    events.replace("append", put_meanwhile)
    entry = Entry(append, Drop(job.id), job, view)
    with suppress(StoreError):
        (recording,) = await stores.transactions.record([entry])
        assert isinstance(recording.verdict, Stale)
    assert await other.queue.find([job.id]) == set()
    assert await main.read_model.undispatched(10) == [job]


async def test_an_outcome_is_recorded_while_the_job_of_another_one_is_settled(gesta, monkeypatch):
    may_settle = asyncio.Event()
    async with engine_with_separate_queue(Provider()) as engine:
        _, queue = databases(gesta)
        original = queue.queue.settle

        async def settle(settlements):
            await may_settle.wait()
            return await original(settlements)

        monkeypatch.setattr(queue.queue, "settle", settle)
        await let_run(gesta)
        recorded = []
        for text in ("first", "second"):
            request = await engine.submit(Note(text))
            await pass_time(gesta, 0.5)
            recorded.append(len(await events_of(engine, request.id)))
        may_settle.set()
        assert recorded == [2, 2]
