"""The hash store next to the string store that it replaced, and claims per second.

`python -m benchmarks.job_store` prints one line for each figure, as JSON.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

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


class StringStore:
    """The document's "before": a job is one JSON text, read and written whole."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.round_trips = 0

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
        self.round_trips += 1
        return await self._redis.command(*parts)


def _text(job: StoredJob) -> bytes:
    return msgspec.json.encode(job)


def fresh_job() -> StoredJob:
    runtime = SystemRuntime()
    new = id_text(runtime.random_bytes(16))
    return job_at(runtime.now_ms(), id=new, name=NAME, payload=PAYLOAD, headers={"a": ["b"]})


async def costs(url: str) -> list[Cost]:
    redis = Redis(address_of(url))
    old, ports = StringStore(redis), await open_jobs(url, SystemRuntime())
    try:
        # Loads the scripts.
        await _life(ports.job_store, fresh_job())
        before = await _traffic(redis)
        for _ in range(LIVES):
            await old.life(fresh_job())
        middle = await _traffic(redis)
        for _ in range(LIVES):
            await _life(ports.job_store, fresh_job())
        after = await _traffic(redis)
    finally:
        await ports.close()
        await redis.close()
    return [
        Cost("string", old.round_trips / LIVES, (middle - before) / LIVES),
        Cost("hash", 4, (after - middle) / LIVES),
    ]


async def _life(store: Jobs, job: StoredJob) -> None:
    """Four calls, each one round trip."""
    await store.create([job])
    answer = await store.claim(Claim(worker_id=job.id, names=(NAME,)))
    assert answer.value is not None
    (claimed,) = answer.value
    assert claimed.value is not None
    await store.complete([Completion(claimed.value.held, RESULT)])
    await store.get([job.id])


async def _traffic(redis: Redis) -> int:
    found = await redis.command("INFO", "stats")
    if not isinstance(found, dict):
        found = dict(line.split(":") for line in found.splitlines() if ":" in line)
    return int(found["total_net_input_bytes"]) + int(found["total_net_output_bytes"])


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


if __name__ == "__main__":
    sys.exit(main())
