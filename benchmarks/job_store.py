"""The hash store next to the string store that it replaced, and claims per second.

`make bench ARGS=--jobs` prints one line for each figure, as JSON. Bytes and round trips are counted
on the wire, between client and server.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from gesta.domain.ids import id_text
from gesta.domain.stored_job import JobStatus, StoredJob, job_at, moment
from gesta.ports.job_store import Claim, Completion, Jobs
from gesta.runtime.clock import SystemRuntime, spawn
from gesta.stores.redis import open_jobs
from gesta.stores.redis.connection import Redis, address_of
from gesta.testing.valkey_server import ValkeyServer

NAME, WORKERS, JOBS, LIVES = "bench.jobs", (1, 4, 16), 4_000, 50
PAYLOAD = msgspec.json.encode({"text": "x" * 2_000}).decode()
RESULT = '{"ok":true}'


@dataclass(frozen=True)
class Cost:
    """Of one life of a job: created, claimed, completed, read."""

    store: str
    round_trips: float
    bytes: float


@dataclass(frozen=True)
class Claims:
    workers: int
    per_second: float
    #: Jobs that were claimed twice or not at all.
    wrong: int


class Wire:
    """Stands between client and server, passes everything on, and counts."""

    def __init__(self) -> None:
        self.bytes = self.round_trips = 0

    @asynccontextmanager
    async def to(self, url: str) -> AsyncIterator[str]:
        """The URL of the server through this wire."""
        parts = urlsplit(url)
        serving: dict[asyncio.Task[None] | None, StreamWriter] = {}

        async def serve(reader: StreamReader, writer: StreamWriter) -> None:
            serving[asyncio.current_task()] = writer
            there = await asyncio.open_connection(parts.hostname, parts.port)
            is_asked = [False]
            answers = spawn(self._pass(there[0], writer, is_asked, asks=False), "answers")
            await self._pass(reader, there[1], is_asked, asks=True)
            there[1].close()
            await answers

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield parts._replace(netloc=f"127.0.0.1:{port}").geturl()
        finally:
            server.close()
            for writer in serving.values():
                writer.close()
            await asyncio.gather(*filter(None, serving), return_exceptions=True)

    async def _pass(
        self, reader: StreamReader, writer: StreamWriter, is_asked: list[bool], *, asks: bool
    ) -> None:
        while part := await reader.read(65_536):
            self.bytes += len(part)
            # A question that comes in several parts is one round trip.
            self.round_trips += asks and not is_asked[0]
            is_asked[0] = asks
            writer.write(part)
            await writer.drain()
        writer.close()


class StringStore:
    """The document's "before": a job is one JSON text, read and written whole."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def life(self, job: StoredJob) -> None:
        key, now = f"old:job:{job.id}", moment(SystemRuntime().now_ms())
        await self._command("EXISTS", key)
        await self._command("SET", key, _text(job))
        await self._command("ZADD", "old:jobs:queue", 1, job.id)
        (found,) = await self._command("ZRANGEBYSCORE", "old:jobs:queue", 0, 2, "LIMIT", 0, 1)
        read = msgspec.json.decode(await self._command("GET", f"old:job:{found}"), type=StoredJob)
        claimed = replace(read, status=JobStatus.IN_PROGRESS, worker_id=job.id, started_at=now)
        await self._command("SET", key, _text(claimed))
        await self._command("ZREM", "old:jobs:queue", job.id)
        await self._command("EXISTS", key)
        done = replace(claimed, status=JobStatus.COMPLETED, result=RESULT, completed_at=now)
        await self._command("SET", key, _text(done))
        await self._command("ZREM", "old:jobs:queue", job.id)
        await self._command("GET", key)

    async def _command(self, *parts: Any) -> Any:
        return await self._redis.command(*parts)


def _text(job: StoredJob) -> bytes:
    return msgspec.json.encode(job)


def fresh_job() -> StoredJob:
    runtime = SystemRuntime()
    new = id_text(runtime.random_bytes(16))
    return job_at(runtime.now_ms(), id=new, name=NAME, payload=PAYLOAD, headers={"a": ["b"]})


async def costs(url: str) -> list[Cost]:
    wire = Wire()
    async with wire.to(url) as counted:
        redis, ports = Redis(address_of(counted)), await open_jobs(counted, SystemRuntime())
        old = StringStore(redis)
        try:
            return [
                await _cost("string", wire, old.life),
                await _cost("hash", wire, partial(_life, ports.job_store)),
            ]
        finally:
            await ports.close()
            await redis.close()


async def _cost(store: str, wire: Wire, life: Callable[[StoredJob], Awaitable[None]]) -> Cost:
    # The first one connects and loads scripts.
    await life(fresh_job())
    wire.bytes = wire.round_trips = 0
    for _ in range(LIVES):
        await life(fresh_job())
    return Cost(store, wire.round_trips / LIVES, wire.bytes / LIVES)


async def _life(store: Jobs, job: StoredJob) -> None:
    await store.create([job])
    answer = await store.claim(Claim(worker_id=job.id, names=(NAME,)))
    assert answer.value is not None
    (claimed,) = answer.value
    assert claimed.value is not None
    await store.complete([Completion(claimed.value.held, RESULT)])
    await store.get([job.id])


async def claims(url: str, workers: int, jobs: int = JOBS) -> Claims:
    """How fast so many workers, each with its own connection, claim all jobs, ten at a time."""
    runtime = SystemRuntime()
    ports = [await open_jobs(url, runtime) for _ in range(workers)]
    new = [replace(fresh_job(), payload="") for _ in range(jobs)]
    for start in range(0, jobs, 500):
        await ports[0].job_store.create(new[start : start + 500])
    seen: Counter[str] = Counter()

    async def work(store: Jobs, worker: str) -> None:
        while True:
            answer = await store.claim(Claim(worker_id=worker, names=(NAME,), limit=10))
            if not answer.value:
                return
            seen.update(one.value.job.id for one in answer.value if one.value)

    began = runtime.monotonic()
    tasks = [
        spawn(work(one.job_store, id_text(runtime.random_bytes(16))), "claims") for one in ports
    ]
    await asyncio.gather(*tasks)
    took = runtime.monotonic() - began
    for one in ports:
        await one.close()
    wrong = sum(seen[job.id] != 1 for job in new)
    return Claims(workers, jobs / took, wrong)


async def measure() -> list[Cost | Claims]:
    async with ValkeyServer() as server:
        found = [await claims(server.url, workers) for workers in WORKERS]
        return [*await costs(server.url), *found]


def main() -> int:
    found = asyncio.run(measure())
    for one in found:
        sys.stdout.write(f"{msgspec.json.encode(asdict(one)).decode()}\n")
    return int(any(isinstance(one, Claims) and one.wrong for one in found))
