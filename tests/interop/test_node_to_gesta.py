"""Jobs that the real BullMQ puts, in the hands of gesta."""

import asyncio

import pytest

from gesta.ports.foreign_jobs import Completed, Failed, PutBack
from gesta.ports.job_queue import Ack
from gesta.stores.redis.foreign_jobs import DATA_BYTES_MAX
from gesta.testing.contracts.samples import fresh_job
from tests.interop.waiting import until

EMAIL = "notification.email"
QUEUE = "email-send"
FAST = {"lockDuration": 1_000, "stalledInterval": 500, "drainDelay": 1}


@pytest.mark.every_setting
async def test_a_job_is_leased_and_its_producer_gets_the_result(ports, node):
    added = await add(node, {"outboxId": "o-1"}, jobId="outbox-1")
    node.tell("result", queue=QUEUE, id=added)
    await node.event("listening")
    (job,) = await take(ports)
    assert (job.flow, job.id, job.name, job.starts) == (EMAIL, "outbox-1", "send", 1)
    assert job.data == '{"outboxId":"o-1"}'
    assert (await ports.queue.foreign.take("other", {EMAIL: 10}, 10)) == []
    assert await ports.queue.foreign.settle([Completed(job, {"status": "SENT"})]) == ["done"]
    assert await node.answer() == {"result": {"status": "SENT"}}
    assert (await node.ask("job", queue=QUEUE, id=added))["state"] == "completed"


async def test_a_refused_job_fails_with_its_message(ports, node):
    added = await add(node, {}, attempts=5, removeOnFail=False)
    (job,) = await take(ports)
    reason = "recipient.email must match to"
    assert await ports.queue.foreign.settle([Failed(job, reason)]) == ["done"]
    found = await node.ask("job", queue=QUEUE, id=added)
    assert (found["state"], found["job"]["failedReason"]) == ("failed", f'"{reason}"')


async def test_a_delayed_job_comes_when_it_is_due(ports, node):
    before = ports.now_ms()
    await add(node, {}, delay=1_200)
    assert await take(ports) == []
    (job,) = await until(lambda: take(ports))
    assert (job.starts, ports.now_ms() - before >= 1_200) == (1, True)


async def test_prioritised_jobs_come_in_their_order_and_after_plain_ones(ports, node):
    low = await add(node, {}, priority=9)
    high = await add(node, {}, priority=2)
    plain = await add(node, {})
    delayed = await add(node, {}, priority=5, delay=300)
    jobs = [await until(lambda: take(ports, free=1)) for _ in range(3)]
    assert [one.id for (one,) in jobs] == [plain, high, low]
    (last,) = await until(lambda: take(ports))
    assert last.id == delayed


async def test_a_job_that_node_retries_comes_with_its_next_start(ports, node):
    added = await add(node, {}, attempts=3, backoff={"type": "fixed", "delay": 1_000})
    await node.ask("work", queue=QUEUE, mode="failOnce", options=FAST)
    await node.event("failed")
    await node.ask("begin")
    (job,) = await until(lambda: take(ports))
    assert (job.id, job.starts) == (added, 2)


async def test_a_job_of_a_killed_node_worker_comes_to_gesta(ports, node):
    added = await add(node, {})
    await node.ask("work", queue=QUEUE, mode="hang", options=FAST)
    await node.event("begun")
    node.kill()
    (job,) = await until(lambda: take(ports))
    assert (job.id, job.starts) == (added, 2)


async def test_a_job_of_a_dead_gesta_worker_comes_to_node(ports, node):
    added = await add(node, {})
    (job,) = await take(ports, lease_seconds=1)
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    assert (await node.event("completed"))["id"] == added
    assert await ports.queue.foreign.settle([Completed(job, None)]) == ["lost"]  # S0-6


async def test_an_extended_lease_keeps_the_job_from_node(ports, node):
    added = await add(node, {})
    (job,) = await take(ports, lease_seconds=1.5)
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    for _ in range(4):
        await asyncio.sleep(0.7)
        assert await ports.queue.extend("t", 1.5)
    assert await ports.queue.foreign.settle([Completed(job, None)]) == ["done"]
    assert (await node.ask("job", queue=QUEUE, id=added))["job"]["attemptsStarted"] == 1


async def test_a_job_that_was_put_back_goes_to_the_next_worker(ports, node):
    added = await add(node, {})
    (job,) = await take(ports)
    assert await ports.queue.foreign.settle([PutBack(job)]) == ["done"]
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    assert (await node.event("completed"))["id"] == added


async def test_both_kinds_of_jobs_in_one_queue_are_never_mixed_up(ports, node):
    ours = [fresh_job(EMAIL) for _ in range(20)]
    await ports.queue.put(ours[:10])
    theirs = {await add(node, {"n": n}, priority=n % 3) for n in range(10)}
    await ports.queue.put(ours[10:])
    leased, _ = await ports.queue.take("t", {EMAIL: 100}, 10, durable=False)
    assert {one.job.id for one in leased} == {job.id for job in ours}
    assert {one.id for one in await take(ports)} == theirs
    answers = await ports.queue.settle([Ack(job.id, "t") for job in ours])
    assert answers == ["done"] * 20
    counts = await node.ask("counts", queue=QUEUE)
    assert (counts["active"], counts["completed"]) == (10, 20)


async def test_a_huge_job_is_not_fetched(ports, node):
    added = await add(node, {"html": "x" * 10_000_000})
    (job,) = await take(ports)
    assert (job.id, job.data) == (added, None)
    assert job.size > DATA_BYTES_MAX
    assert await ports.queue.foreign.settle([Failed(job, "data is too large")]) == ["done"]


async def test_a_job_with_remove_on_complete_is_removed_when_it_is_done(ports, node):
    added = await add(node, {}, removeOnComplete=True, jobId="outbox-7")  # R2-23
    (job,) = await take(ports)
    await ports.queue.foreign.settle([Completed(job, None)])
    assert (await node.ask("job", queue=QUEUE, id=added))["state"] is None


async def add(node, data, **opts):
    return (await node.ask("add", queue=QUEUE, name="send", data=data, opts=opts))["id"]


async def take(ports, *, free=100, lease_seconds=10.0):
    return await ports.queue.foreign.take("t", {EMAIL: free}, lease_seconds)
