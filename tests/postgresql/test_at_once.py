"""Projected in the commit that appends: views and jobs are written before the events have their positions, and never stay where those went elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

from gesta import Done, Flow
from gesta.adapters.postgresql import open_at
from gesta.adapters.postgresql.address import address_of
from gesta.adapters.postgresql.commits import ALONE_SECONDS
from gesta.adapters.postgresql.connections import Connections
from gesta.commits import Projection
from gesta.contracts.samples import fresh_append, fresh_claim, fresh_job, fresh_name, fresh_view, key_of
from gesta.domain.commands import Rules
from gesta.event_store import Appended, Claimed
from gesta.offer import Offer
from gesta.runtime import ManualRuntime, spawn
from gesta.views import Move
from tests.postgresql.places import Note, connected, engine_at, fresh_url
from tests.postgresql.test_gaps import Writer


@asynccontextmanager
async def opened(url, runtime):
    address = address_of(url)
    stores = await open_at(address, runtime, Connections(address), runtime.now_ms)
    try:
        yield stores
    finally:
        await stores.close()


async def somebody_waits(connection, writing):
    while not writing.done():
        rows = await connection.fetch("select 1 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0")
        if rows:
            return
        await asyncio.sleep(0.01)


async def test_what_another_appends_meanwhile_is_left_to_the_projector():
    url, runtime, name, flow = await fresh_url(), ManualRuntime(), fresh_name(), fresh_name()
    async with opened(url, runtime) as stores, connected(url) as (connection, database), connected(url) as (looking, _):
        view, job = fresh_view(), fresh_job(flow)
        offer = Offer("worker", {flow: 1}, 4.0, durable=True)
        projection = Projection([view], [job], {name: 0}, offer)
        other = Writer(connection, database)
        await other.begin()
        await other.append(fresh_append())
        writing = spawn(stores.commits.append([fresh_append()], projection), "test")
        await somebody_waits(looking, writing)
        await other.commit()
        assert await writing == [Appended(1)]
        assert await stores.events.end() == 2
        # Nothing of it stands, although all of it was written when the other's event came first.
        assert (projection.reached, offer.taken, await stores.views.checkpoint(name)) == (None, [], 0)
        assert await stores.views.get([key_of(view)]) == {}
        assert await stores.queue.find([job.id]) == set()


async def test_beside_somebody_who_appends_all_the_time_it_is_tried_once_a_second():
    url, runtime, name = await fresh_url(), ManualRuntime(), fresh_name()
    async with opened(url, runtime) as stores, connected(url) as (connection, database), connected(url) as (looking, _):
        other = Writer(connection, database)
        await other.begin()
        await other.append(fresh_append())
        writing = spawn(stores.commits.append([fresh_append()], Projection([], [], {name: 0})), "test")
        await somebody_waits(looking, writing)
        await other.commit()
        assert await writing == [Appended(1)]
        await stores.views.save([], [], Move(name, 0, 2))
        soon = Projection([fresh_view()], [], {name: 0})
        assert await stores.commits.append([fresh_append()], soon) == [Appended(1)]
        assert (soon.reached, await stores.views.checkpoint(name)) == (None, 2)
        await stores.views.save([], [], Move(name, 2, 3))
        runtime.advance(ALONE_SECONDS)
        later = Projection([fresh_view()], [], {name: 0})
        assert await stores.commits.append([fresh_append()], later) == [Appended(1)]
        assert later.reached == await stores.views.checkpoint(name) == 4


async def test_a_key_that_is_being_claimed_keeps_the_whole_batch_out_of_the_views():
    """Of two who bring one key at the same time, the second waits for the first, with its views and jobs already written."""
    url, runtime, name, flow, claim = await fresh_url(), ManualRuntime(), fresh_name(), fresh_name(), fresh_claim()
    async with opened(url, runtime) as stores, connected(url) as (connection, database), connected(url) as (looking, _):
        views, jobs = [fresh_view(), fresh_view()], [fresh_job(flow), fresh_job(flow)]
        other = Writer(connection, database)
        await other.begin()
        await other.append(fresh_append(claim=claim))
        appends = [fresh_append(), fresh_append(claim=fresh_claim(claim.name))]
        projection = Projection(views, jobs, {name: 0})
        writing = spawn(stores.commits.append(appends, projection), "test")
        await somebody_waits(looking, writing)
        await other.commit()
        first, second = await writing
        assert first == Appended(1)
        assert isinstance(second, Claimed)
        assert projection.reached is None
        assert await stores.views.get([key_of(view) for view in views]) == {}
        assert await stores.queue.find([job.id for job in jobs]) == set()


async def test_beside_another_process_everything_is_done_once():
    calls: Counter[str] = Counter()

    async def note(payload, attempt):
        calls[payload.text] += 1
        return Done(id=payload.text)

    flow = Flow("test.note", Note, note, Rules(on_unknown="park"))
    url = await fresh_url()
    async with engine_at(url, flow) as one, engine_at(url, flow, work=False) as other:
        requests = await asyncio.gather(
            *[engine.submit(Note(f"{number}")) for number in range(300) for engine in (one if number % 2 else other,)]
        )
        outcomes = await asyncio.gather(*[request.outcome() for request in requests])
    assert {outcome.id for outcome in outcomes if isinstance(outcome, Done)} == set(calls)
    assert set(calls.values()) == {1}
    assert len(calls) == 300
