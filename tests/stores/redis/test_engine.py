"""The whole engine with its queue on Redis."""

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager

from gesta import Done
from gesta.stores.redis.connection import Redis, address_of
from gesta.stores.redis.keys import QueueKeys
from tests.processes.member import Log
from tests.processes.members import PATIENCE_SECONDS, ROOT, Lines
from tests.stores.redis.shop import Order, Parcel, engine_on

COUNT = 200


@contextmanager
def worker(folder, queue_url):
    """A worker process, killed at the end."""
    command = [sys.executable, "-m", "tests.stores.redis.shop", str(folder), queue_url]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_every_request_is_executed_once(tmp_path, redis_url):
    log = Log(tmp_path)
    async with engine_on(tmp_path, redis_url, log, work=True) as engine:
        requests = [await engine.submit(Order(n), key=str(n)) for n in range(COUNT)]
        outcomes = [await request.outcome(PATIENCE_SECONDS) for request in requests]
    assert [one.id for one in outcomes if isinstance(one, Done)] == [str(n) for n in range(COUNT)]
    assert Counter(line["n"] for line in Lines(tmp_path).of("effect")) == Counter(range(COUNT))


async def test_a_worker_that_is_killed_loses_nothing(tmp_path, redis_url):
    lines = Lines(tmp_path)
    async with engine_on(tmp_path, redis_url, work=False) as engine:
        requests = [await engine.submit(Order(n), key=str(n)) for n in range(COUNT)]
        with worker(tmp_path, redis_url) as first:
            await asyncio.to_thread(
                lines.wait_for, lambda: len(lines.of("effect")) >= COUNT // 4, "some effects"
            )
            first.kill()
        assert len(lines.of("effect")) < COUNT
        with worker(tmp_path, redis_url) as second:
            outcomes = [await request.outcome(PATIENCE_SECONDS) for request in requests]
            assert second.poll() is None
    assert [one.id for one in outcomes if isinstance(one, Done)] == [
        str(n) for n in range(COUNT)
    ]  # S0-5
    effects = lines.of("effect")
    assert {line["n"] for line in effects} == set(range(COUNT))
    repeated = [n for n, count in Counter(line["n"] for line in effects).items() if count > 1]
    # Only what the killed worker had begun is repeated, and under the same key.
    assert len(repeated) <= 8
    assert len({line["key"] for line in effects}) == COUNT


async def test_a_queue_that_cannot_be_used_stops_no_other_flow(tmp_path, redis_url):
    redis = Redis(address_of(redis_url))
    meta = QueueKeys(redis.address.prefix, "shop.parcel")["meta"]
    await redis.command("HSET", meta, "version", "bullmq:7.0.0")
    async with engine_on(tmp_path, redis_url, Log(tmp_path), work=True) as engine:
        stuck = await engine.submit(Parcel(1))
        requests = [await engine.submit(Order(n)) for n in range(10)]
        outcomes = [await request.outcome(PATIENCE_SECONDS) for request in requests]
        assert [one.id for one in outcomes if isinstance(one, Done)] == [str(n) for n in range(10)]
        assert await stuck.status() == "queued"
        await redis.command("HSET", meta, "version", "bullmq:6.7.0")
        assert isinstance(await stuck.outcome(PATIENCE_SECONDS), Done)
    await redis.close()
