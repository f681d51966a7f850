"""The whole pipeline with its jobs in SQS: moto's server, a fake of it, in a process of its own."""

from __future__ import annotations

import asyncio

import msgspec

from gesta import Done, Engine, Payload, Retry, RetryPolicy, flow
from gesta.ports.job_queue import Ack, Job, Release
from gesta.runtime.clock import ManualRuntime, SystemRuntime
from gesta.runtime.settings import load
from gesta.stores.sqs import open_queue, open_queue_at
from gesta.stores.sqs.address import address_of
from gesta.stores.sqs.client import Outgoing, Sqs
from gesta.stores.sqs.job_queue import SqsJobQueue
from gesta.stores.sqs.queues import Queues

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
        {"url": f"sqlite:///{tmp_path}/gesta.db", "queue_url": moto.queue_url(prefix, 20)}
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
        async with asyncio.timeout(60):
            while (await request.view()).state.attempts == 0:
                await asyncio.sleep(0.02)
        assert await request.cancel() == "cancelled"
        await until_empty(engine.pipeline.environment.stores)
        assert await request.status() == "cancelled"
    assert len(post.calls) == 1


async def test_a_copy_that_another_worker_takes_during_the_call_is_deleted(moto, prefix, tmp_path):
    called, let_go, calls = asyncio.Event(), asyncio.Event(), []

    @flow("test.parcel", on_unknown="resend", retry=SOON)
    async def send(payload: Parcel, attempt) -> Done:
        calls.append(attempt.request_id)
        called.set()
        await let_go.wait()
        return Done()

    url = f"sqlite:///{tmp_path}/gesta.db"
    settings = load({"url": url, "queue_url": moto.queue_url(prefix, 120)})
    async with Engine(flows=[send], settings=settings) as first:
        queue = first.pipeline.environment.stores.job_counts
        assert isinstance(queue, SqsJobQueue)
        # No call of the first worker waits at SQS when the copy comes.
        queue._long_poll._is_on = False
        request = await first.submit(Parcel(number=1))
        await asyncio.wait_for(called.wait(), 60)
        async with Engine(flows=[send], settings=settings) as second:
            # Only the second worker asks for more: the first has no free slot.
            first.pipeline.pool._free["test.parcel"] = 0
            state = (await request.view()).state
            job = Job(state.job_id, state.tenant, state.flow, state.id, state.dispatch_version)
            await second.pipeline.environment.stores.queue.put([job])
            async with asyncio.timeout(30):
                # The message of the call itself stays.
                while (await queue.backlog())["test.parcel"].leased != 1 or (await queue.backlog())[
                    "test.parcel"
                ].ready:
                    await asyncio.sleep(0.1)
            assert (await request.view()).state.status == "queued"
            let_go.set()
            assert isinstance(await request.outcome(timeout=30), Done)
    assert calls == [request.id]


async def test_a_released_job_whose_copy_comes_before_the_answer_is_not_lost(
    moto, prefix, monkeypatch
):
    """The copy is a new lease and no duplicate of the job that is leaving."""
    ports = await open_queue(moto.queue_url(prefix, 20), SystemRuntime())
    queue = ports.queue
    job = Job("r-1", "acme", "test.parcel", "r", 1)
    await queue.put([job])
    await queue.take("t", {"test.parcel": 1}, 4.0, durable=False)
    delete, taken = Sqs.delete, []

    async def late(self, url, receipts):
        taken.extend((await queue.take("t", {"test.parcel": 1}, 4.0, durable=False))[0])
        return await delete(self, url, receipts)

    monkeypatch.setattr(Sqs, "delete", late)
    await queue.settle([Release(job.id, "t", 0)])
    monkeypatch.undo()
    assert [one.job.id for one in taken] == ["r-1"]
    assert await queue.leased_by("t") == taken
    assert await queue.settle([Ack(job.id, "t")]) == ["done"]
    await ports.close()


async def test_a_job_that_is_due_later_than_sqs_can_delay_comes_when_it_is_due(moto, prefix):
    runtime = ManualRuntime(SystemRuntime().now_ms())
    ports = await open_queue(moto.queue_url(prefix, 20), runtime)
    due_ms = runtime.now_ms() + 3_600_000
    early = Job("r-1", "acme", "test.parcel", "r", 1, due_ms=due_ms, possibly_executed=True)
    await ports.queue.put([early])
    sqs = Sqs(address_of(moto.queue_url(prefix)), SystemRuntime())
    counts = await Queues(sqs).counts(f"{prefix}-test-parcel")
    assert (counts.delayed, counts.ready) == (1, 0)
    # As if the longest delay were over.
    await sqs.send(
        await Queues(sqs).url(f"{prefix}-test-parcel"),
        [Outgoing(msgspec.json.encode(early).decode())],
    )
    assert (await ports.queue.take("t", {"test.parcel": 5}, 4.0, durable=False))[0] == []
    counts = await Queues(sqs).counts(f"{prefix}-test-parcel")
    assert (counts.delayed, counts.ready, counts.in_flight) == (2, 0, 0)
    await sqs.close()
    await ports.close()


async def test_a_message_that_is_delivered_twice_to_one_worker_is_one_lease(moto, prefix):
    """It was taken for a lost lease, which cut every running call of the worker."""
    ports = await open_queue_at(
        address_of(moto.queue_url(prefix, 20)), SystemRuntime(), is_polling=False
    )
    queue, flows = ports.queue, {"test.parcel": 5}
    assert isinstance(queue, SqsJobQueue)
    await queue.put([Job("r-1", "acme", "test.parcel", "r", 1)])
    (leased,), _ = await queue.take("t", flows, 4.0, durable=False)
    sqs = Sqs(address_of(moto.queue_url(prefix)), SystemRuntime())
    url = await Queues(sqs).url(f"{prefix}-test-parcel")
    await sqs.hide(url, [queue._held["r-1"].receipt], 0)
    assert await queue.take("t", flows, 4.0, durable=False) == ([], None)
    assert [one.job for one in await queue.leased_by("t")] == [leased.job]
    assert await queue.extend("t", 4.0)
    # Under another token the lease was lost, and whether it was executed is for the journal to say.
    await sqs.hide(url, [queue._held["r-1"].receipt], 0)
    (again,), _ = await queue.take("u", flows, 4.0, durable=False)
    assert again.is_possibly_executed
    assert await queue.settle([Ack("r-1", "u")]) == ["done"]
    assert (await Queues(sqs).counts(f"{prefix}-test-parcel")).live == 0
    await sqs.close()
    await ports.close()
