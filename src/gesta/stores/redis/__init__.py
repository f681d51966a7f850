"""Views and a job queue on Redis, Valkey or their Cluster; the queue has the layout of BullMQ 5
and 6.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gesta.ports.stores import JobPorts, QueuePorts, ViewPorts
from gesta.runtime.clock import Runtime, spawn
from gesta.stores.job_results import JobResults
from gesta.stores.redis.connection import Address, Redis, ServerClock, address_of, host_name
from gesta.stores.redis.fences import RedisFences
from gesta.stores.redis.job_hashes import RedisJobHashes, jobs_address
from gesta.stores.redis.job_queue import RedisJobQueue
from gesta.stores.redis.read_model import RedisReadModel


async def open_queue(url: str, runtime: Runtime) -> QueuePorts:
    """Open the queues below `redis://host:6379?prefix=bull`; `rediss://` with TLS, and
    `redis+cluster://host1,host2` or `rediss+cluster://` on a Cluster.
    """
    return await open_queue_at(address_of(url), runtime)


async def open_queue_at(
    address: Address, runtime: Runtime, now_ms: Callable[[], int] | None = None
) -> QueuePorts:
    """As `open_queue`. With `now_ms` the time is that one, else the server's."""
    redis = Redis(address)
    background: list[asyncio.Task[None]] = []

    queue = RedisJobQueue(redis, runtime, now_ms=now_ms)

    async def close() -> None:
        await queue.wake_up.close()
        for task in background:
            task.cancel()
        for task in background:
            # However it ended, the others and the connections are closed.
            with suppress(asyncio.CancelledError, Exception):
                await task
        await redis.close()

    try:
        await redis.check()
        if now_ms is None:
            clock = ServerClock(redis, runtime)
            await clock.measure()
            now_ms = clock.now_ms
            background.append(spawn(clock.keep(), "gesta-redis-clock"))
    except BaseException:
        await close()
        raise
    return QueuePorts(
        queue=queue,
        unique_jobs=queue,
        eager_jobs=queue,
        job_inspection=queue,
        job_holds=queue,
        external_leases=queue,
        foreign_jobs=queue.foreign,
        fences=RedisFences(redis, queue),
        close=close,
        now_ms=now_ms,
        name=address.name,
        leases_are_durable=False,
    )


async def open_views(url: str, runtime: Runtime) -> ViewPorts:
    """Raises StoreError for a server that may drop keys or does not answer."""
    redis = Redis(address_of(url))
    try:
        await redis.check()
    except BaseException:
        await redis.close()
        raise
    model = RedisReadModel(redis, runtime)
    return ViewPorts(
        read_model=model,
        sweep_index=model,
        positions=model,
        close=redis.close,
        name=redis.address.name,
    )


def job_places(url: str) -> frozenset[tuple[object, ...]]:
    """Each node of a Cluster is a way to the same jobs."""
    address, layout, prefix = jobs_address(url)
    return frozenset(
        (host_name(host), port, address.database, layout, prefix) for host, port in address.nodes
    )


async def open_jobs(
    url: str, runtime: Runtime, now_ms: Callable[[], int] | None = None
) -> JobPorts:
    """Open the jobs at `redis://host:6379?layout=shared`, which .NET services can share, or at
    `?layout=cluster`, the default of `redis+cluster://`. With `now_ms` the time is that one, else
    the server's.
    """
    address, layout, prefix = jobs_address(url)
    redis = Redis(address)
    try:
        await redis.check()
        table = RedisJobHashes(redis, layout=layout, prefix=prefix, now_ms=now_ms)
    except BaseException:
        await redis.close()
        raise
    return JobPorts(
        job_store=JobResults(table, runtime),
        close=redis.close,
        now_ms=now_ms or runtime.now_ms,
        name=address.name,
    )
