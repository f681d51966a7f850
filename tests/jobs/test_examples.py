"""The examples, as a user runs them: a server process, two workers, one of them killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.testing.server_process import free_port

ROOT = Path(__file__).parents[2]
JOBS = 12

StartWorker = Callable[[], Awaitable[asyncio.subprocess.Process]]


@asynccontextmanager
async def served(name: str, tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, StartWorker]]:
    """An example that answers, and how to start a worker beside it."""
    env = {
        **os.environ,
        "GESTA_URL": f"sqlite:///{tmp_path}/gesta.db",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    port, started = free_port(SystemRuntime()), list[asyncio.subprocess.Process]()

    async def start(*command: str) -> asyncio.subprocess.Process:
        program = (sys.executable, "-m", "tests.jobs.short_program", *command)
        started.append(await asyncio.create_subprocess_exec(*program, cwd=tmp_path, env=env))
        return started[-1]

    async def start_worker() -> asyncio.subprocess.Process:
        return await start("gesta", "worker", "--app", f"examples.{name}:engine")

    try:
        server = await start("uvicorn", f"examples.{name}:app", "--port", str(port))
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base, timeout=90) as client:
            while True:
                try:
                    await client.get("/jobs/7")
                    break
                except httpx.ConnectError:
                    assert server.returncode is None
                    await asyncio.sleep(0.05)
            yield client, start_worker
    finally:
        for one in started:
            if one.returncode is None:
                one.kill()
            await one.wait()


async def ended(client: httpx.AsyncClient, place: str) -> dict[str, object]:
    while True:
        job = (await client.get(place, params={"wait": "20s"})).json()
        if job["completedAt"] is not None or job["status"] == "Unknown":
            return dict(job)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fastapi_reports", "starlette_reports", "litestar_reports"])
async def test_every_job_completes_although_a_worker_is_killed(name, tmp_path):
    async with served(name, tmp_path) as (client, start_worker):
        answers = [
            await client.post("/reports", json={"title": f"r{n}", "pages": 5}) for n in range(JOBS)
        ]
        assert [one.status_code for one in answers] == [202] * JOBS
        places = [one.headers["location"] for one in answers]
        first, _ = await start_worker(), await start_worker()
        # On a slow machine the first may have ended before anyone looks.
        begun = {"InProgress", "Completed"}
        while not begun & {(await client.get(one)).json()["status"] for one in places}:
            await asyncio.sleep(0.02)
        first.kill()
        await first.wait()
        for number, place in enumerate(places):
            job = await ended(client, place)
            assert job["status"] == "Completed", job
            assert job["result"] == {"title": f"r{number}", "words": 1500}


@pytest.mark.slow
async def test_a_job_that_was_canceled_when_its_worker_was_killed_ends_canceled(tmp_path):
    async with served("fastapi_reports", tmp_path) as (client, start_worker):
        answer = await client.post("/reports", json={"title": "long", "pages": 10_000})
        place = answer.headers["location"]
        worker = await start_worker()
        while (await client.get(place)).json()["status"] != "InProgress":
            await asyncio.sleep(0.02)
        assert (await client.delete(place)).status_code == 202
        worker.kill()
        await worker.wait()
        await start_worker()
        job = await ended(client, place)
        assert (job["status"], job["result"]) == ("Canceled", None)
        # It has ended, and a second cancel changes nothing.
        assert (await client.delete(place)).json() == job
