"""What a job costs and looks like in Redis."""

from math import ceil

import msgspec
import pytest

from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Ack, Hold, Release
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_queue
from gesta.stores.redis.job_queue import SETTLED
from gesta.stores.redis.keys import OwnKeys, QueueKeys, RequestKeys
from gesta.testing.contracts.samples import fresh_job
from gesta.testing.valkey_server import ValkeyServer

SLACK = "notification.slack"
WAITING_BYTES_MAX = 900
#: With `hash-max-listpack-value 128`, which deploy/compose.yaml sets.
COMPACT_BYTES_MAX = 700


async def test_a_job_is_a_bullmq_hash_with_the_pointer(ports, raw):
    job = fresh_job(SLACK, priority=3, due_ms=ports.now_ms() + 60_000)
    await ports.queue.put([job])
    keys = QueueKeys(raw.address.prefix, SLACK)
    found = await raw.command("HGETALL", keys[job.id])
    assert found["name"] == "send-message-request"  # R0-6
    assert msgspec.json.decode(found["data"]) == {
        "messageRequestId": job.request_id,
        "tenant": "acme",
    }  # R0-1, R0-21
    options = msgspec.json.decode(found["opts"])
    # The clocks of two processes differ by a moment.
    assert 59_000 < options.pop("delay") < 60_100  # R0-9
    assert options == {
        "attempts": 1,  # R0-7
        "removeOnComplete": 100,  # R0-8
        "removeOnFail": 50,  # R0-8
        "priority": 3,  # R0-9
    }
    assert int(found["timestamp"]) + int(found["delay"]) == job.due_ms
    assert int(await raw.command("ZSCORE", keys["delayed"], job.id)) // 4096 == job.due_ms


async def test_the_usual_priority_is_left_out_of_the_options(ports, raw):
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    opts = await raw.command("HGET", QueueKeys(raw.address.prefix, SLACK)[job.id], "opts")
    assert opts == '{"attempts":1,"removeOnComplete":100,"removeOnFail":50}'  # R0-7, R0-8
    assert job.priority == 5


async def test_the_newest_100_completed_jobs_are_kept(ports, raw):
    keys = QueueKeys(raw.address.prefix, SLACK)
    jobs = [fresh_job(SLACK) for _ in range(240)]
    for first in (0, 80, 160):
        batch = jobs[first : first + 80]
        await ports.queue.put(batch)
        await ports.queue.take("t", {SLACK: 80}, 10, durable=False)
        await ports.queue.settle([Ack(job.id, "t") for job in batch])
    kept = await raw.command("ZRANGE", keys["completed"], 0, -1)
    assert len(kept) == 100  # R0-8
    assert {job.id for job in jobs[160:]} <= set(kept)
    assert len(await raw.command("KEYS", f"{keys.base}*-1")) == 100


async def test_of_a_job_that_a_node_worker_had_first_nothing_is_left_in_the_end(ports, raw):
    """BullMQ deletes these keys with the record of a job, and so does gesta."""
    keys = QueueKeys(raw.address.prefix, SLACK)
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    # An earlier start, of whatever worker, counts in `ats`.
    await raw.command("HSET", keys[job.id], "ats", 1)
    await raw.command("HSET", f"{keys[job.id]}:processed", "child", "1")
    others = [fresh_job(SLACK) for _ in range(100)]
    for batch in ([job], others):
        await ports.queue.take("t", {SLACK: 100}, 10, durable=False)
        await ports.queue.settle([Ack(one.id, "t") for one in batch])
        await ports.queue.put(others)
    assert await raw.command("KEYS", f"{keys[job.id]}*") == []


async def test_nothing_of_a_finished_job_is_left_but_its_record(ports, raw):
    """R2-25: a job is removed by its ack, not before."""
    jobs = [fresh_job(SLACK) for _ in range(3)]
    await ports.queue.put(jobs)
    await ports.queue.take("t", {SLACK: 3}, 10, durable=False)
    await ports.queue.settle(
        [Ack(jobs[0].id, "t"), Release(jobs[1].id, "t", 0), Hold(jobs[2].id, "t", "s")]
    )
    own, keys = OwnKeys(raw.address.prefix), QueueKeys(raw.address.prefix, SLACK)
    assert await raw.command("SCARD", own.lease("t")) == 0
    assert await raw.command("LLEN", keys["active"]) == 0
    assert await raw.command("KEYS", f"{keys.base}*:lock") == []
    # Other tests use the same server.
    locks = [RequestKeys(job.flow, job.tenant, job.request_id).lock for job in jobs]
    assert await raw.command("EXISTS", *locks) == 0


@pytest.mark.parametrize(
    ("options", "bytes_max"),
    [((), WAITING_BYTES_MAX), (("--hash-max-listpack-value", "128"), COMPACT_BYTES_MAX)],
)
async def test_a_waiting_job_costs_less_than_900_bytes(options, bytes_max):
    async with ValkeyServer(*options) as server:
        ports = await open_queue(server.url, SystemRuntime())
        # Buffers and scripts have their full size before the count begins.
        await ports.queue.put([fresh_job("a.b") for _ in range(6_000)])
        before = used_bytes(server)
        await ports.queue.put([fresh_job(SLACK) for _ in range(20_000)])
        spent = used_bytes(server) - before
        await ports.close()
    # The average of a large batch: a table that has just doubled is half empty.
    assert spent / 20_000 < bytes_max


def used_bytes(server):
    lines = server.command("INFO", "memory").splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith("used_memory:"))


async def test_a_worker_with_many_free_slots_comes_again_at_once_for_the_rest(ports):
    await ports.queue.put([fresh_job(SLACK) for _ in range(700)])
    leased, next_due = await ports.queue.take("t", {SLACK: 1_000}, 10.0, durable=False)
    assert (len(leased), next_due) == (500, 0)
    leased, next_due = await ports.queue.take("t", {SLACK: 500}, 10.0, durable=False)
    assert (len(leased), next_due) == (200, None)


@pytest.mark.parametrize("count", [10, 500])
async def test_a_call_carries_many_jobs(ports, raw, count):
    async def scripts():
        stats = await raw.command("INFO", "commandstats")
        return stats.get("cmdstat_evalsha", {"calls": 0})["calls"]

    jobs = [fresh_job(SLACK) for _ in range(count)]
    await ports.queue.put(jobs[:1])
    await ports.queue.take("t", {SLACK: 1}, 10, durable=False)
    await ports.queue.extend("t", 10)
    await ports.queue.settle([Ack(jobs[0].id, "t")])
    before = await scripts()
    await ports.queue.put(jobs)
    await ports.queue.take("t", {SLACK: count}, 10, durable=False)
    await ports.queue.extend("t", 10)
    await ports.queue.settle([Ack(job.id, "t") for job in jobs])
    # Put, take and lock, extend, settle and unlock. Only settling is in parts, of 300 jobs.
    assert await scripts() - before == 5 + ceil(count / SETTLED)
    before, fresh = await scripts(), [fresh_job(SLACK) for _ in range(count)]
    free_slots = FreeSlots("t", {SLACK: count}, 10, durable=False)
    await ports.eager_jobs.put_leased(fresh, free_slots)
    assert [one.job for one in free_slots.leased] == fresh
    # Put and lock.
    assert await scripts() - before == 2
