"""The whole pipeline with its jobs in SQS: moto's server, a fake of it, in a process of its own."""

from __future__ import annotations

import asyncio

from gesta import Done, Engine, Payload, Retry, RetryPolicy, flow
from gesta.ports.job_queue import Job
from gesta.runtime.settings import load

SOON = RetryPolicy(attempts=5, base_seconds=0.1, cap_seconds=0.1)


class Parcel(Payload, frozen=True):
    number: int


class Post:
    """Counts what was sent."""

    def __init__(self, *script) -> None:
        self.calls: list[str] = []
        self.script = list(script)

    def flow(self):
        @flow("test.parcel", on_unknown="resend", retry=SOON)
        async def send(payload: Parcel, attempt) -> Done | Retry:
            self.calls.append(attempt.request_id)
            return self.script.pop(0) if self.script else Done(id=str(payload.number))

        return send


def engine_on(moto, prefix, tmp_path, post) -> Engine:
    settings = load(
        {"url": f"sqlite:///{tmp_path}/gesta.db", "queue_url": moto.queue_url(prefix, 5)}
    )
    return Engine(flows=[post.flow()], settings=settings)


async def test_requests_are_executed_once_each_also_after_a_retry(moto, prefix, tmp_path):
    post = Post(Retry("busy"))
    async with engine_on(moto, prefix, tmp_path, post) as engine:
        requests = [await engine.submit(Parcel(number=n)) for n in range(12)]
        for request in requests:
            assert isinstance(await request.outcome(timeout=30), Done)
    assert len(post.calls) == 13
    assert set(post.calls) == {request.id for request in requests}


async def test_two_copies_of_a_job_make_one_call(moto, prefix, tmp_path):
    post = Post()
    async with engine_on(moto, prefix, tmp_path, post) as engine:
        stores = engine.pipeline.environment.stores
        request = await engine.submit(Parcel(number=1))
        state = (await request.view()).state
        job = Job(state.job_id, state.tenant, state.flow, state.id, state.dispatch_version)
        await stores.queue.put([job])
        await stores.queue.put([job])
        assert isinstance(await request.outcome(timeout=30), Done)
        await until_empty(stores)
    assert post.calls == [request.id]


async def until_empty(stores) -> None:
    async with asyncio.timeout(30):
        while await stores.job_inspection.count(10):
            await asyncio.sleep(0.1)


async def test_a_pause_holds_jobs_in_the_store_until_it_ends(moto, prefix, tmp_path):
    post = Post()
    async with engine_on(moto, prefix, tmp_path, post) as engine:
        await engine.admin.pause(flow="test.parcel", reason="maintenance")
        request = await engine.submit(Parcel(number=1))
        stores = engine.pipeline.environment.stores
        async with asyncio.timeout(30):
            while not await stores.job_holds.held():
                await asyncio.sleep(0.05)
        assert post.calls == []
        await engine.admin.resume(flow="test.parcel")
        assert isinstance(await request.outcome(timeout=30), Done)
        await until_empty(stores)
    assert post.calls == [request.id]


async def test_a_cancelled_request_is_not_executed_by_the_job_that_is_left(moto, prefix, tmp_path):
    post = Post(Retry("busy", after_seconds=3))
    async with engine_on(moto, prefix, tmp_path, post) as engine:
        request = await engine.submit(Parcel(number=1))
        async with asyncio.timeout(20):
            while (await request.view()).state.attempts == 0:
                await asyncio.sleep(0.02)
        assert await request.cancel() == "cancelled"
        await until_empty(engine.pipeline.environment.stores)
        assert await request.status() == "cancelled"
    assert len(post.calls) == 1
