"""Jobs that gesta puts, in the hands of the real BullMQ."""

import asyncio

import pytest

from gesta.ports.job_queue import Ack, Drop, Release
from gesta.testing.contracts.samples import fresh_job
from tests.interop.waiting import until

SLACK = "notification.slack"
QUEUE = "MessageRequestQueue"
FAST = {"lockDuration": 1_000, "stalledInterval": 500, "drainDelay": 1}


@pytest.mark.every_setting
async def test_a_node_worker_executes_a_job_and_sees_the_pointer_only(ports, node):
    job = fresh_job(SLACK, priority=3)
    await ports.queue.put([job])
    standing = await node.ask("job", queue=QUEUE, id=job.id)
    assert standing["state"] == "prioritized"
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    begun = await node.event("begun")
    assert begun["name"] == "send-message-request"  # R0-6
    assert begun["data"] == {"messageRequestId": job.request_id, "tenant": "acme"}  # R0-1, R0-21
    assert begun["opts"]["attempts"] == 1  # R0-7
    assert begun["opts"]["removeOnComplete"] == 100  # R0-8
    assert begun["opts"]["removeOnFail"] == 50  # R0-8
    assert begun["opts"]["priority"] == 3  # R0-9
    assert (await node.event("completed"))["id"] == job.id
    assert await ports.queue.find([job.id]) == set()
    assert await ports.job_inspection.count(10) == 0
    assert await ports.queue.put([job]) == [True]  # S0-25: a finished job is replaced
    assert (await node.event("completed"))["id"] == job.id


async def test_another_flow_has_the_pointer_of_document_001(ports, node):
    job = fresh_job("notification.email")
    await ports.queue.put([job])
    await node.ask("work", queue="email-send", mode="complete", options=FAST)
    begun = await node.event("begun")
    assert begun["data"] == {"tenant": "acme", "requestId": job.request_id}  # R1-3, R1-20


async def test_a_waiting_node_worker_is_woken_by_a_put(ports, node):
    await node.ask("work", queue=QUEUE, mode="complete", options={"drainDelay": 50})
    await asyncio.sleep(0.5)
    before = asyncio.get_running_loop().time()
    await ports.queue.put([fresh_job(SLACK)])
    await node.event("completed")
    assert asyncio.get_running_loop().time() - before < 5


async def test_a_delayed_job_is_executed_by_node_when_it_is_due(ports, node):
    job = fresh_job(SLACK, due_ms=ports.now_ms() + 1_500)
    await ports.queue.put([job])
    assert (await node.ask("job", queue=QUEUE, id=job.id))["state"] == "delayed"
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    assert (await node.event("completed"))["id"] == job.id  # R0-9
    assert ports.now_ms() >= job.due_ms


async def test_a_job_that_node_promotes_comes_before_a_flood(ports, node):
    """Node gives a promoted job the number after `pc`: the present turn, not the end."""
    late = fresh_job(SLACK, due_ms=ports.now_ms() + 1_500)
    flood = [fresh_job(SLACK, "flood") for _ in range(50)]
    await ports.queue.put([late, *flood])
    while ports.now_ms() <= late.due_ms:
        await asyncio.sleep(0.05)
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    order = [(await node.event("begun"))["id"] for _ in range(51)]
    assert order.index(late.id) < 5


async def test_urgent_jobs_go_first_and_tenants_alternate_at_node_too(ports, node):
    many = [fresh_job(SLACK, "many") for _ in range(5)]
    few = [fresh_job(SLACK, "few") for _ in range(2)]
    urgent = fresh_job(SLACK, "many", priority=1)
    await ports.queue.put([*many, *few, urgent])
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    order = [(await node.event("begun"))["id"] for _ in range(8)]
    assert order[0] == urgent.id
    assert all(order.index(one.id) < 5 for one in few)


async def test_a_job_that_node_fails_is_no_longer_live(ports, node):
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    await node.ask("work", queue=QUEUE, mode="fail", options=FAST)
    assert (await node.event("failed"))["error"] == "no such channel"
    assert await ports.queue.find([job.id]) == set()
    assert (await node.ask("job", queue=QUEUE, id=job.id))["state"] == "failed"
    assert await ports.queue.put([job]) == [True]


async def test_a_job_of_a_killed_node_worker_comes_to_gesta_as_possibly_executed(ports, node):
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    await node.ask("work", queue=QUEUE, mode="hang", options=FAST)
    await node.event("begun")
    (standing,) = await ports.job_inspection.jobs(job.id[:-1], 1)
    assert standing.state == "leased"
    assert await ports.queue.settle([Drop(job.id)]) == ["active"]
    node.kill()
    leased = await until(lambda: take(ports, SLACK))
    assert [(one.job.id, one.takes) for one in leased] == [(job.id, 2)]  # S0-5
    assert await ports.queue.settle([Ack(job.id, leased[0].token)]) == ["done"]


async def test_node_respects_our_lease_and_recovers_the_job_after_it(ports, node):
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    await take(ports, SLACK, lease_seconds=2)
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    for _ in range(3):
        await asyncio.sleep(0.6)
        assert await ports.queue.extend("t", 2)
    assert (await node.ask("job", queue=QUEUE, id=job.id))["state"] == "active"
    # Not extended any more: as after kill -9 of our worker.
    assert (await node.event("completed"))["id"] == job.id
    assert await ports.queue.settle([Ack(job.id, "t")]) == ["absent"]


async def test_a_late_ack_is_refused_after_node_has_taken_the_job(ports, node):
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    await take(ports, SLACK, lease_seconds=0.5)
    await node.ask("work", queue=QUEUE, mode="hang", options=FAST)
    await node.event("begun")
    assert await ports.queue.settle([Ack(job.id, "t"), Release(job.id, "t", 0)]) == [
        "lost",
        "lost",
    ]  # S0-6


async def test_a_queue_that_node_paused_gives_nothing_until_it_is_resumed(ports, node):
    job = fresh_job(SLACK)
    await node.ask("pause", queue=QUEUE)
    await ports.queue.put([job])
    assert await take(ports, SLACK) == []
    await node.ask("resume", queue=QUEUE)
    assert [one.job.id for one in await take(ports, SLACK)] == [job.id]


async def test_the_global_rate_limit_of_a_queue_holds_for_gesta_and_node_together(ports, node):
    await node.ask("limit", queue=QUEUE, max=3, duration=60_000)
    await ports.queue.put([fresh_job(SLACK) for _ in range(5)])
    leased, _ = await ports.queue.take("t", {SLACK: 2}, 10, durable=False)
    assert len(leased) == 2
    await node.ask("work", queue=QUEUE, mode="complete", options=FAST)
    await node.event("completed")
    leased, next_due_ms = await ports.queue.take("t", {SLACK: 100}, 10, durable=False)
    assert leased == []
    assert ports.now_ms() < next_due_ms <= ports.now_ms() + 60_000
    assert (await node.ask("counts", queue=QUEUE))["prioritized"] == 2


async def test_a_queue_that_node_has_stopped_for_a_while_gives_nothing_until_then(ports, node):
    await node.ask("limit", queue=QUEUE, stop=700)
    await ports.queue.put([fresh_job(SLACK)])
    before = ports.now_ms()
    assert await take(ports, SLACK) == []
    assert await until(lambda: take(ports, SLACK))
    assert ports.now_ms() - before >= 500


async def test_bull_board_lists_our_queues(ports, node):
    ready, delayed, done = (
        fresh_job(SLACK),
        fresh_job(SLACK, due_ms=ports.now_ms() + 60_000),
        fresh_job(SLACK, priority=1),
    )
    await ports.queue.put([ready, delayed, done])
    await take(ports, SLACK, free=1)
    await ports.queue.settle([Ack(done.id, "t")])
    listed = (await node.ask("board", queues=[QUEUE, "email-send"]))["listed"]
    assert set(listed) == {QUEUE, "email-send"}
    counts = listed[QUEUE]["counts"]
    assert (counts["prioritized"], counts["delayed"], counts["completed"]) == (1, 1, 1)
    assert set(listed[QUEUE]["ids"]) == {ready.id, delayed.id, done.id}


async def take(ports, flow, *, lease_seconds=10.0, free=100):
    leased, _ = await ports.queue.take("t", {flow: free}, lease_seconds, durable=False)
    return leased
