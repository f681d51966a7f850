"""Workers in processes of their own, killed at random: every job is completed, by one claim."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from gesta.domain.ids import id_text
from gesta.domain.stored_job import JobStatus, job_at
from gesta.runtime.clock import SystemRuntime
from gesta.stores import open_jobs
from gesta.testing.harnesses.redis import SharedCluster, SharedServer

WORKERS, JOBS, KILLS, ROOT = 4, 300, 5, Path(__file__).parents[2]


def lines(log: Path) -> list[list[str]]:
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [line.split() for line in text.splitlines()]


async def start(url: str, name: str, log: Path) -> asyncio.subprocess.Process:
    worker = id_text(SystemRuntime().random_bytes(16))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.jobs.claimer", url, name, str(log), worker), cwd=ROOT
    )


@pytest.mark.parametrize("layout", ["shared", "cluster"])
async def test_every_job_is_completed_by_one_claim_although_workers_are_killed(
    layout, tmp_path, crash_seed
):
    dice, log, runtime = random.Random(crash_seed), tmp_path / "log", SystemRuntime()
    server = await (SharedServer if layout == "shared" else SharedCluster).url()
    url = f"{server}?layout={layout}&prefix=k{runtime.random_bytes(6).hex()}"
    ports = await open_jobs(url, runtime)
    store, name = ports.job_store, "killed.jobs"
    jobs = [
        job_at(runtime.now_ms(), id=id_text(runtime.random_bytes(16)), name=name, max_retries=99)
        for _ in range(JOBS)
    ]
    assert {one.code for one in await store.create(jobs)} == {""}
    workers = [await start(url, name, log) for _ in range(WORKERS)]
    try:
        for number in range(KILLS):
            # A kill after some more claims: while jobs are held.
            wanted = (number + 1) * JOBS // (KILLS + 2)
            while len([one for one in lines(log) if one[0] == "claimed"]) < wanted:
                await asyncio.sleep(0.01)
            victim = dice.choice(workers)
            victim.kill()
            await victim.wait()
            workers.remove(victim)
            workers.append(await start(url, name, log))
        while (await store.counts()).completed < JOBS:
            await asyncio.sleep(0.05)
    finally:
        for one in workers:
            one.kill()
            await one.wait()
    results = await store.get([job.id for job in jobs])
    found = [one.value for one in results if one.value is not None]
    assert len(found) == JOBS
    assert {one.status for one in found} == {JobStatus.COMPLETED}
    seen = Counter((word, job_id) for word, job_id, _ in lines(log))
    for job in found:
        # R4-18: one claim for each job, and one more for each claim whose worker was lost.
        assert 1 <= seen["claimed", job.id] <= job.retry_count + 1
        assert seen["completed", job.id] <= 1
    assert (await store.counts()).completed == JOBS
    once = [one for one in found if one.retry_count == 0]
    assert len(once) > JOBS / 2
    assert all(seen["claimed", one.id] == 1 for one in once)  # R4-18
    await ports.close()
