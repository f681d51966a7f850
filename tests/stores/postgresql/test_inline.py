"""Projected in the commit that appends: views and jobs are written before the events have their
positions, and never stay where those went elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from gesta import Done, Flow
from gesta.domain.commands import Rules
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Appended, Claimed
from gesta.ports.transactions import Projection
from gesta.runtime.clock import ManualRuntime, spawn
from gesta.stores.postgresql import open_at
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import Connections
from gesta.stores.postgresql.transactions import ALONE_SECONDS, PostgresqlTransactions
from gesta.testing.contracts.samples import (
    fresh_append,
    fresh_claim,
    fresh_job,
    fresh_name,
    fresh_view,
    key_of,
)
from tests.short_leases import shorten_leases
from tests.stores.postgresql.places import Note, connected, engine_at, fresh_url
from tests.stores.postgresql.test_gaps import Writer


@asynccontextmanager
async def opened(url, runtime):
    address = address_of(url)
    stores = await open_at(address, runtime, Connections(address), runtime.now_ms)
    try:
        yield stores
    finally:
        await stores.close()


async def another_waits(connection, writing):
    while not writing.done():
        rows = await connection.fetch(
            "select 1 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
        )
        if rows:
            return
        await asyncio.sleep(0.01)


async def test_events_after_an_append_of_another_process_are_left_to_the_projector():
    url, runtime, name, flow = await fresh_url(), ManualRuntime(), fresh_name(), fresh_name()
    async with (
        opened(url, runtime) as stores,
        connected(url) as (connection, database),
        connected(url) as (looking, _),
    ):
        view, job = fresh_view(), fresh_job(flow)
        free_slots = FreeSlots("worker", {flow: 1}, 4.0, durable=True)
        projection = Projection([view], [job], {name: 0}, free_slots=free_slots)
        other = Writer(connection, database)
        await other.begin()
        await other.append(fresh_append())
        writing = spawn(stores.transactions.append([fresh_append()], projection), "test")
        await another_waits(looking, writing)
        await other.commit()
        assert await writing == [Appended(1)]
        assert await stores.events.end() == 2
        # Nothing of it stands, although all of it was written when the other's event came first.
        assert (
            projection.reached,
            free_slots.leased,
            await stores.checkpoints.position(name),
        ) == (
            None,
            [],
            0,
        )
        assert await stores.read_model.get([key_of(view)]) == {}
        assert await stores.queue.find([job.id]) == set()


async def test_inline_projection_is_tried_once_a_second_while_another_process_appends():
    url, runtime, name = await fresh_url(), ManualRuntime(), fresh_name()
    async with (
        opened(url, runtime) as stores,
        connected(url) as (connection, database),
        connected(url) as (looking, _),
    ):
        other = Writer(connection, database)
        await other.begin()
        await other.append(fresh_append())
        writing = spawn(
            stores.transactions.append([fresh_append()], Projection([], [], {name: 0})), "test"
        )
        await another_waits(looking, writing)
        await other.commit()
        assert await writing == [Appended(1)]
        await stores.checkpoints.move([Move(name, 0, 2)])
        soon = Projection([fresh_view()], [], {name: 0})
        assert await stores.transactions.append([fresh_append()], soon) == [Appended(1)]
        assert (soon.reached, await stores.checkpoints.position(name)) == (None, 2)
        await stores.checkpoints.move([Move(name, 2, 3)])
        runtime.advance(ALONE_SECONDS)
        later = Projection([fresh_view()], [], {name: 0})
        assert await stores.transactions.append([fresh_append()], later) == [Appended(1)]
        assert later.reached == await stores.checkpoints.position(name) == 4


async def test_a_key_that_another_transaction_claims_stops_the_inline_projection_of_the_batch():
    """Of two who bring one key at the same time, the second waits for the first, with its views and
    jobs already written.
    """
    url, runtime, name, flow, claim = (
        await fresh_url(),
        ManualRuntime(),
        fresh_name(),
        fresh_name(),
        fresh_claim(),
    )
    async with (
        opened(url, runtime) as stores,
        connected(url) as (connection, database),
        connected(url) as (looking, _),
    ):
        views, jobs = [fresh_view(), fresh_view()], [fresh_job(flow), fresh_job(flow)]
        other = Writer(connection, database)
        await other.begin()
        await other.append(fresh_append(claim=claim))
        appends = [fresh_append(), fresh_append(claim=fresh_claim(claim.name))]
        projection = Projection(views, jobs, {name: 0})
        writing = spawn(stores.transactions.append(appends, projection), "test")
        await another_waits(looking, writing)
        await other.commit()
        first, second = await writing
        assert first == Appended(1)
        assert isinstance(second, Claimed)
        assert projection.reached is None
        assert await stores.read_model.get([key_of(view) for view in views]) == {}
        assert await stores.queue.find([job.id for job in jobs]) == set()


async def test_two_processes_execute_every_request_once():
    calls: Counter[str] = Counter()

    async def note(payload, attempt):
        calls[payload.text] += 1
        return Done(id=payload.text)

    flow = Flow("test.note", Note, note, Rules(on_unknown="manual"))
    url = await fresh_url()
    async with engine_at(url, flow) as one, engine_at(url, flow, work=False) as other:
        requests = await asyncio.gather(
            *[
                engine.submit(Note(f"{number}"))
                for number in range(300)
                for engine in (one if number % 2 else other,)
            ]
        )
        outcomes = await asyncio.gather(*[request.outcome() for request in requests])
    assert {outcome.id for outcome in outcomes if isinstance(outcome, Done)} == set(calls)
    assert set(calls.values()) == {1}
    assert len(calls) == 300


class Sender:
    """A flow whose calls last for as long as their texts say, and those that it was asked for."""

    def __init__(self):
        self.calls: list[str] = []
        self.began = asyncio.Event()

    async def send(self, payload, attempt):
        self.calls.append(payload.text)
        self.began.set()
        await asyncio.sleep(float(payload.text))
        return Done(id=payload.text)

    @asynccontextmanager
    async def at_work(self, url):
        """Standing at the end of the log, with a queue that was found empty."""
        flow = Flow("test.note", Note, self.send, Rules(on_unknown="manual"), timeout_seconds=30)
        async with engine_at(url, flow) as engine:
            await (await engine.submit(Note("0"))).outcome()
            projector = engine.pipeline.projector
            while (
                projector.checkpoints_at_end() is None
                or not engine.pipeline.pool.eager_dispatcher._drained
            ):
                await asyncio.sleep(0.02)
            self.calls.clear()
            self.began.clear()
            yield engine


@pytest.fixture
def short_leases(monkeypatch):
    shorten_leases(2.0, 0.5, monkeypatch.setattr)


async def ended(request):
    async with asyncio.timeout(30):
        while (status := await request.status()) == "queued":
            await asyncio.sleep(0.05)
    return status


@pytest.mark.slow
@pytest.mark.parametrize(
    "comes_between", [True, False], ids=["its event comes between", "no event"]
)
async def test_an_append_that_waits_for_another_commit_ends_no_attempt(short_leases, comes_between):
    """It held the lease of all calls meanwhile, and no call could renew it."""
    url, sender = await fresh_url(), Sender()
    async with sender.at_work(url) as engine, connected(url) as (connection, database):
        long = await engine.submit(Note("3.5"))
        await sender.began.wait()
        other = Writer(connection, database)
        await other.begin()
        if comes_between:
            await other.append(fresh_append())
        else:
            await connection.fetch(f"select 1 from {database.address.schema}.head for update")
        submitting = spawn(engine.submit(Note("0")), "test")
        # Longer than a lease.
        await asyncio.sleep(2.5)
        await other.commit()
        assert await ended(await submitting) == "completed"
        assert await ended(long) == "completed"
    assert sorted(sender.calls) == ["0", "3.5"]


@pytest.mark.slow
async def test_a_request_that_was_never_called_is_not_unknown_because_its_append_waited(
    short_leases,
):
    """Its lease began before the wait, and was over when the commit stood."""
    url, sender = await fresh_url(), Sender()
    async with sender.at_work(url) as engine, connected(url) as (connection, database):
        await connection.execute("begin")
        await connection.fetch(f"select 1 from {database.address.schema}.head for update")
        submitting = spawn(engine.submit(Note("0")), "test")
        await asyncio.sleep(2.5)
        await connection.execute("rollback")
        assert await ended(await submitting) == "completed"
    assert sender.calls == ["0"]


PATHS = ["put", "taken", "one waits", "one is live", "another is between", "the key is claimed"]


@pytest.mark.parametrize("default", ["off", "on", "remote_write"])
@pytest.mark.parametrize("pipeline", PATHS)
async def test_an_append_is_on_disk_whatever_the_default_of_the_server(
    monkeypatch, default, pipeline
):
    url, runtime, name, flow = await fresh_url(), ManualRuntime(), fresh_name(), fresh_name()
    async with opened(url, runtime) as stores, connected(url) as (connection, database):
        job, claim = fresh_job(flow), None
        if pipeline == "one waits":
            await stores.queue.put([fresh_job(flow)])
        elif pipeline == "one is live":
            await stores.queue.put([job])
            await stores.queue.take("another", {flow: 1}, 4.0, durable=True)
        elif pipeline == "another is between":
            await stores.events.append([fresh_append()])
        elif pipeline == "the key is claimed":
            first = fresh_claim()
            await stores.events.append([fresh_append(claim=first)])
            await stores.checkpoints.move([Move(name, 0, 1)])
            claim = fresh_claim(first.name)
        free_slots = (
            None
            if pipeline in ("put", "another is between")
            else FreeSlots("worker", {flow: 1}, 4.0, durable=False)
        )
        modes: list[str] = []

        async def fetch(text, *values):
            await connection.execute(f"set synchronous_commit = {default}; begin")
            rows = await connection.fetch(text, *values)
            modes.append((await connection.fetch("show synchronous_commit"))[0][0])
            await connection.execute("commit")
            return rows

        monkeypatch.setattr(database, "ask_text", fetch)
        views, queue = stores.read_model, stores.queue
        commits = PostgresqlTransactions(
            database, events=stores.events, views=views, queue=queue, runtime=runtime
        )
        projection = Projection([fresh_view()], [job], {name: 0}, free_slots=free_slots)
        await commits.append([fresh_append(claim=claim)], projection)
        assert modes == ["on" if default == "off" else default]
        assert (projection.reached is not None) == (pipeline in ("put", "taken"))
