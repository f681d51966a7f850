"""Refusal at intake: what is too much is not accepted, and nothing is looked at more often than
once a second.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gesta import Engine, Overloaded, Settings
from gesta.engine.environment import Wiring
from gesta.intake.admission import MEGABYTE
from tests.world import URL, Note, Provider, all_events, let_run, note_flow, pass_time


def _engine(provider, *, work=True, **settings):
    return Engine(settings=Settings(url=URL, **settings), flows=[note_flow(provider)], work=work)


async def test_beyond_the_backlog_requests_are_refused_and_nothing_is_written(gesta):
    async with _engine(Provider(), backlog_max=2, work=False) as engine:
        await engine.submit(Note())
        await engine.submit(Note())
        gesta.advance(1.1)
        # This one is still let in: the look goes on behind its back.
        await engine.submit(Note())
        await let_run(gesta)
        with pytest.raises(
            Overloaded, match=r"2 requests or more are waiting.*backlog_max.*nothing was written"
        ) as refused:
            await engine.submit(Note(), key="k")
        with pytest.raises(Overloaded):
            await engine.submit_many([Note()])
        assert refused.value.retry_after_seconds == 10
        assert len(await all_events(engine)) == 3


async def test_live_jobs_count_and_when_they_are_done_requests_are_accepted_again(gesta):
    provider = Provider()
    async with _engine(provider, backlog_max=2) as engine:
        await engine.admin.pause(tenant="default")
        for _ in range(2):
            await engine.submit(Note())
        await pass_time(gesta, 2)
        await engine.submit(Note())
        await let_run(gesta)
        with pytest.raises(Overloaded):
            await engine.submit(Note())
        await engine.admin.resume(tenant="default")
        await pass_time(gesta, 2)
        await engine.submit(Note())
        await let_run(gesta)
        assert len(provider.calls) == 4


async def test_an_engine_that_starts_looks_before_it_accepts(gesta):
    async with _engine(Provider(), work=False) as engine:
        await engine.submit(Note())
    async with _engine(Provider(), backlog_max=1, work=False) as engine:
        with pytest.raises(Overloaded):
            await engine.submit(Note())


@pytest.fixture
def disk(gesta, monkeypatch):
    free = {"bytes": 201 * MEGABYTE}

    async def disk_free():
        return free["bytes"]

    async def wire(settings):
        environment = await gesta.wire(settings)
        return replace(environment, stores=replace(environment.stores, disk_free=disk_free))

    monkeypatch.setattr(Wiring, "wire", staticmethod(wire))
    return free


async def test_when_the_disk_is_nearly_full_requests_are_refused_and_what_was_accepted_goes_on(
    gesta, disk
):
    provider = Provider()
    async with _engine(provider) as engine:
        await engine.submit(Note())
        disk["bytes"] = 199 * MEGABYTE
        gesta.advance(1.1)
        await engine.submit(Note())
        await let_run(gesta)
        with pytest.raises(
            Overloaded, match=r"199 MB are free.*200 MB of disk_free_min_mb.*Free space"
        ):
            await engine.submit(Note())
        assert len(provider.calls) == 2
        disk["bytes"] = 300 * MEGABYTE
        gesta.advance(1.1)
        # A refusal is never based on old figures.
        await engine.submit(Note())


async def test_a_file_on_a_disk_without_the_room_that_was_asked_for_takes_no_request(tmp_path):
    url = f"sqlite:///{tmp_path / 'gesta.db'}"
    # An exabyte is more than any disk of ours has, so the file's real disk is what is found too
    # small.
    settings = Settings(url=url, disk_free_min_mb=10**12)
    async with Engine(settings=settings, flows=[note_flow(Provider())]) as engine:
        with pytest.raises(
            Overloaded,
            match=(
                r"gesta\.db: [\d,]+ MB are free.*1,000,000,000,000 MB of disk_free_min_mb.*Free"
                r" space"
            ),
        ):
            await engine.submit(Note(), key="k")
        with pytest.raises(Overloaded):
            await engine.submit_many([Note()])
        assert await all_events(engine) == []
        assert await engine.find() == []
    # With less to be left free, the same disk has room for the same key.
    async with Engine(
        settings=Settings(url=url, disk_free_min_mb=1), flows=[note_flow(Provider())]
    ) as engine:
        assert (await engine.submit(Note(), key="k")).verdict == "created"


async def test_looking_is_not_done_for_each_request_and_not_without_one(gesta, ports):
    async with _engine(Provider()) as engine:
        for _ in range(20):
            await engine.submit(Note())
        assert ports.queue.calls["count"] == 1
        await pass_time(gesta, 30)
        assert ports.queue.calls["count"] == 1
        await engine.submit_many([Note()] * 20)
        await let_run(gesta)
        assert ports.queue.calls["count"] == 2


async def test_a_failed_poll_changes_nothing(gesta, ports):
    async with _engine(Provider()) as engine:
        ports.queue.fail("count")
        await engine.submit(Note())
        await engine.submit(Note())
        assert ports.queue.calls["count"] == 1
        gesta.advance(1.1)
        await engine.submit(Note())
        await let_run(gesta)
        assert ports.queue.calls["count"] == 2


async def test_a_caller_that_gives_up_does_not_end_the_check_for_the_others(gesta, monkeypatch):
    async with _engine(Provider(), work=False) as engine:
        asked, goes_on = asyncio.Event(), asyncio.Event()
        stores = engine.pipeline.environment.stores

        async def slow() -> int | None:
            asked.set()
            await goes_on.wait()
            return None

        monkeypatch.setattr(engine.pipeline.intake._admission, "_stores", _with_disk(stores, slow))
        impatient = asyncio.ensure_future(engine.submit(Note("impatient")))
        patient = asyncio.ensure_future(engine.submit(Note("patient")))
        await asked.wait()
        await let_run(gesta)
        impatient.cancel()
        await let_run(gesta)
        goes_on.set()
        assert (await patient).verdict == "created"
        assert len(await all_events(engine)) == 1


async def test_a_slow_check_runs_for_a_twentieth_of_the_time_at_most(gesta, monkeypatch):
    async with _engine(Provider(), work=False) as engine:
        looks: list[float] = []
        stores = engine.pipeline.environment.stores

        async def slow() -> int | None:
            looks.append(gesta.runtime.monotonic())
            gesta.runtime.advance(1)
            return None

        monkeypatch.setattr(engine.pipeline.intake._admission, "_stores", _with_disk(stores, slow))
        for _ in range(30):
            await engine.submit(Note())
            await pass_time(gesta, 1)
        first, second, *_ = looks
        assert second - first >= 20


def _with_disk(stores, disk_free):
    return SimpleNamespace(
        name=stores.name,
        disk_free=disk_free,
        events=stores.events,
        job_inspection=stores.job_inspection,
        outbox=stores.outbox,
    )
