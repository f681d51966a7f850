"""A server that restarts, forgets its scripts or its data, or does not answer in time."""

import asyncio

import pytest

from gesta.errors import StoreError
from gesta.ports.job_queue import Ack, Job
from gesta.ports.stores import QueuePorts
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_queue
from gesta.stores.redis.connection import Redis, address_of
from gesta.stores.redis.job_queue import RedisJobQueue
from gesta.stores.redis.keys import OwnKeys, slot_of
from gesta.testing.contracts.samples import fresh_job
from gesta.testing.server_process import free_port
from gesta.testing.valkey_server import ValkeyCluster
from tests.interop.waiting import until

FLOW = "a.b"


async def take(ports, token="t", free=100):
    leased, _ = await ports.queue.take(token, {FLOW: free}, 10, durable=False)
    return leased


async def answered(call):
    """The answer, or None while the server is away."""
    try:
        return await call()
    except StoreError:
        return None


async def found(ports: QueuePorts, jobs: list[Job]) -> set[str]:
    assert ports.unique_jobs is not None
    return await ports.unique_jobs.find([job.id for job in jobs])


async def test_scripts_that_the_server_forgot_are_loaded_again(ports, raw):
    jobs = [fresh_job(FLOW) for _ in range(10)]
    await ports.queue.put(jobs[:5])
    await raw.command("SCRIPT FLUSH")
    assert await ports.queue.put(jobs) == [False] * 5 + [True] * 5
    await raw.command("SCRIPT FLUSH")
    assert len(await take(ports)) == 10


async def test_a_restarted_server_has_every_job_and_lease(server):
    ports = await open_queue(server.url, SystemRuntime())
    try:
        jobs = [fresh_job(FLOW) for _ in range(20)]
        await ports.queue.put(jobs)
        held = await take(ports, free=5)
        server.halt()
        with pytest.raises(StoreError, match="does not answer"):
            await ports.queue.put([fresh_job(FLOW)])
        await server.start()
        assert await until(lambda: answered(lambda: ports.queue.extend("t", 10)))
        assert await found(ports, jobs) == {job.id for job in jobs}
        settled = await ports.queue.settle([Ack(one.job.id, "t") for one in held])
        assert settled == ["done"] * 5
        assert len(await take(ports)) == 15  # R2-25
    finally:
        await ports.close()


async def test_after_a_loss_of_all_data_jobs_can_be_put_again(ports, raw):
    job = fresh_job(FLOW)
    await ports.queue.put([job])
    (leased,) = await take(ports)
    await raw.command("FLUSHALL")
    assert await ports.queue.extend("t", 10) is False
    assert await ports.queue.settle([Ack(job.id, leased.token)]) == ["absent"]
    assert await ports.queue.put([job]) == [True]  # K-11
    assert [one.job.id for one in await take(ports)] == [job.id]


async def test_a_call_that_is_not_answered_in_time_is_sent_once(server):
    redis = Redis(address_of(server.url), timeout_seconds=0.3)
    queue = RedisJobQueue(redis, SystemRuntime())
    try:
        await queue.put([fresh_job(FLOW)])
        server.command("CONFIG", "RESETSTAT")
        server.command("CLIENT", "PAUSE", "1500", "WRITE")
        job = fresh_job(FLOW)
        with pytest.raises(StoreError, match="it may have been written"):
            await queue.put([job])
        await asyncio.sleep(2)
        stats = server.command("INFO", "commandstats")
        sent = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
        assert not sent or "calls=1," in sent[0]
        await queue.put([job])
        leased, _ = await queue.take("t", {FLOW: 100}, 10, durable=False)
        assert [one.job.id for one in leased].count(job.id) == 1
    finally:
        await redis.close()


async def test_a_closed_port_is_reported_as_nothing_written():
    redis = Redis(address_of(f"redis://127.0.0.1:{free_port(SystemRuntime())}"), timeout_seconds=1)
    try:
        with pytest.raises(StoreError, match="nothing was written") as refusal:
            await RedisJobQueue(redis, SystemRuntime()).put([fresh_job(FLOW)])
        assert "may have been written" not in str(refusal.value)
    finally:
        await redis.close()


async def test_a_connection_that_is_cut_is_made_again(server):
    ports = await open_queue(server.url, SystemRuntime())
    try:
        await ports.queue.put([fresh_job(FLOW)])
        server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await answered(lambda: ports.queue.put([fresh_job(FLOW)]))
        assert await ports.queue.put([fresh_job(FLOW)]) == [True]
    finally:
        await ports.close()


async def test_a_worker_is_woken_by_the_put_of_another_process(redis_url):
    worker, other = [await open_queue(redis_url, SystemRuntime()) for _ in range(2)]
    try:
        assert await take(worker) == []
        waiting = asyncio.ensure_future(worker.queue.ready(60))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await other.queue.put([fresh_job(FLOW)])
        await asyncio.wait_for(waiting, 5)
    finally:
        await worker.close()
        await other.close()


async def test_a_failover_of_the_cluster_loses_nothing_that_was_replicated():
    async with ValkeyCluster() as cluster:
        ports = await open_queue(cluster.url, SystemRuntime())
        try:
            jobs = [fresh_job(FLOW) for _ in range(50)]
            await ports.queue.put(jobs)
            held = await take(ports, free=10)
            slot = slot_of(OwnKeys("{bull}")["jobs"])
            primary = cluster.servers[0 if slot <= 5_460 else 1 if slot <= 10_922 else 2]

            async def is_replicated():
                lines = primary.command("INFO", "replication").splitlines()
                facts = dict(line.split(":", 1) for line in lines if ":" in line)
                return f"offset={facts['master_repl_offset']}," in facts["slave0"]

            await until(is_replicated)
            primary.kill()
            assert await until(lambda: answered(lambda: ports.queue.extend("t", 20)))
            assert await found(ports, jobs) == {job.id for job in jobs}
            settled = await ports.queue.settle([Ack(one.job.id, "t") for one in held])
            assert settled == ["done"] * 10
            assert len(await take(ports)) == 40
        finally:
            await ports.close()
