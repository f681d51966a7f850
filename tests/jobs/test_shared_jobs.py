"""Jobs that another service created in Redis are executed, and their hashes completed."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from gesta import Engine
from gesta.domain.stored_job import job_at
from gesta.jobs import JobFailed
from gesta.jobs.fastapi import Endpoints
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_jobs
from gesta.testing.harnesses.redis import SharedServer
from tests.jobs.shops import Report

NAME = "reports.build"
ID = "0a1b2c3d-0000-4000-8000-0000000000{:02x}"


@asynccontextmanager
async def open_shop(tmp_path):
    """An engine beside a Redis of which other services use the same keys, and the calls made."""
    runtime, calls = SystemRuntime(), []
    url = f"{await SharedServer.url()}?layout=shared&prefix=f{runtime.random_bytes(6).hex()}"
    engine = Engine(f"sqlite:///{tmp_path}/gesta.db")
    jobs, app = Endpoints(engine, jobs_url=url), FastAPI()
    app.mount("/jobs", jobs.app)

    @app.post("/reports/{copies}", status_code=202)
    @jobs.endpoint(NAME, on_unknown="resend", headers=["X-Trace"])
    async def build(report: Report, copies: int = 1) -> dict[str, int]:
        calls.append((report.title, copies))
        if report.title == "reject":
            raise JobFailed("NO_PAPER", "out of paper")
        return {"pages": report.pages * copies}

    other = await open_jobs(url, runtime)
    try:
        async with engine:
            yield engine, other.job_store, app, calls
    finally:
        await other.close()


def foreign(number, **more):
    body = {"title": "q1", "pages": 2} | more.pop("body", {})
    now = SystemRuntime().now_ms()
    return job_at(
        now,
        id=ID.format(number),
        name=NAME,
        payload=json.dumps(body),
        route_params={"copies": "3"},
        headers={"Authorization": ["Bearer s3cret"], "X-Trace": ["t-1"]},
        **more,
    )


async def ended(store, job_id):
    while True:
        (found,) = await store.get([job_id])
        if found.value is not None and found.value.completed_at is not None:
            return found.value
        await asyncio.sleep(0.05)


async def test_a_job_of_another_service_is_a_request_of_its_own_id(tmp_path):
    async with open_shop(tmp_path) as (engine, store, _, calls):
        await store.create([foreign(1)])
        done = await ended(store, ID.format(1))
        # The other service reads Status, Result and Error as if it had written them.
        assert (done.status, done.result, done.error) == (400, '{"pages":6}', None)
        assert calls == [("q1", 3)]
        view = await engine.get(ID.format(1))
        assert (view.state.status, view.state.flow) == ("completed", NAME)
        payload = await (await engine.request(ID.format(1))).payload()
        assert payload.headers == {"x-trace": ["t-1"]}


async def test_a_failure_is_written_as_code_and_message(tmp_path):
    async with open_shop(tmp_path) as (_, store, __, calls):
        await store.create([foreign(2, body={"title": "reject"})])
        done = await ended(store, ID.format(2))
        assert done.status == 500
        assert (done.error.code, done.error.message) == ("NO_PAPER", "out of paper")
        assert len(calls) == 1  # S4-27


@pytest.mark.parametrize("payload", ["{", "[]", '{"pages": "many"}'])
async def test_a_job_that_does_not_fit_fails_and_the_next_one_runs(tmp_path, payload):
    async with open_shop(tmp_path) as (_, store, __, calls):
        bad = job_at(0, id=ID.format(3), name=NAME, payload=payload)
        await store.create([bad, foreign(4)])
        first, second = await ended(store, ID.format(3)), await ended(store, ID.format(4))
        assert (first.status, second.status) == (500, 400)
        assert first.error.code in ("PARSE_ERROR", "BAD_ARGUMENTS")
        assert calls == [("q1", 3)]


async def test_a_call_over_http_has_a_hash_that_others_read(tmp_path):
    async with open_shop(tmp_path) as (_, store, app, calls):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.post("/reports/2", json={"title": "q1", "pages": 4})
        done = await ended(store, answer.json()["id"])
        assert (done.name, done.status, done.result) == (NAME, 400, '{"pages":8}')
        assert calls == [("q1", 2)]


async def test_jobs_of_other_names_are_left_to_others(tmp_path):
    async with open_shop(tmp_path) as (_, store, __, ___):
        await store.create([job_at(0, id=ID.format(5), name="other.name"), foreign(6)])
        await ended(store, ID.format(6))
        (other,) = await store.get([ID.format(5)])
        assert other.value.status == 100


async def test_an_engine_that_stops_gives_its_jobs_back(tmp_path):
    async with open_shop(tmp_path) as (engine, store, _, __):
        await engine.admin.pause(flow=NAME)
        await store.create([foreign(7)])
        while not await engine.find(flow=NAME):
            await asyncio.sleep(0.02)
        assert (await store.get([ID.format(7)]))[0].value.status == 300
        await engine.stop()
        found = (await store.get([ID.format(7)]))[0].value
        # S4-26, S4-31: without a lost retry.
        assert (found.status, found.retry_count, found.worker_id) == (200, 0, None)
