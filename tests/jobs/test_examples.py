"""The examples, as a user runs them: a server process, two workers, one of them killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import httpx
import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.testing.server_process import free_port

ROOT = Path(__file__).parents[2]
JOBS = 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fastapi_reports", "starlette_reports", "litestar_reports"])
async def test_every_job_completes_although_a_worker_is_killed(name, tmp_path):
    env = {
        **os.environ,
        "GESTA_URL": f"sqlite:///{tmp_path}/gesta.db",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    port = free_port(SystemRuntime())

    async def start(*command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, cwd=tmp_path, env=env
        )

    server = await start("uvicorn", f"examples.{name}:app", "--port", str(port))
    workers = list[asyncio.subprocess.Process]()
    base = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=base, timeout=90) as client:
            while True:
                try:
                    await client.get("/jobs/7")
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.05)
            answers = [
                await client.post("/reports", json={"title": f"r{n}", "pages": 5})
                for n in range(JOBS)
            ]
            assert [one.status_code for one in answers] == [202] * JOBS
            places = [one.headers["location"] for one in answers]
            for _ in range(2):
                workers.append(await start("gesta", "worker", "--app", f"examples.{name}:engine"))
            # On a slow machine the first may have ended before anyone looks.
            begun = {"InProgress", "Completed"}
            while not begun & {(await client.get(one)).json()["status"] for one in places}:
                await asyncio.sleep(0.02)
            workers[0].kill()
            await workers[0].wait()
            for number, place in enumerate(places):
                while True:
                    job = (await client.get(place, params={"wait": "20s"})).json()
                    if job["completedAt"] is not None:
                        break
                assert job["status"] == "Completed", job
                assert job["result"] == {"title": f"r{number}", "words": 1500}
    finally:
        for one in (*workers, server):
            if one.returncode is None:
                one.kill()
            await one.wait()
