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
from gesta.domain.stream_names import request_stream
from gesta.errors import BadSettings, NotFound, StoreError
from gesta.jobs import JobFailed, shared
from gesta.jobs.fastapi import Endpoints
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_jobs
from gesta.tenants.flow_records import TenantRecords
from gesta.testing.harnesses.redis import SharedServer
from tests.jobs.shops import Report
from tests.world import append_raw

NAME = "reports.build"
ID = "0a1b2c3d-0000-4000-8000-0000000000{:02x}"


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    """Between two looks at Redis."""
    monkeypatch.setattr(shared, "IDLE_SECONDS", 0.05)


async def fresh_url():
    prefix = f"f{SystemRuntime().random_bytes(6).hex()}"
    return f"{await SharedServer.url()}?layout=shared&prefix={prefix}"


@asynccontextmanager
async def open_shop(tmp_path, *, acme=None, **options):
    """An engine beside a Redis of which other services use the same keys, and the calls made."""
    runtime, calls = SystemRuntime(), []
    url = await fresh_url()
    engine = Engine(f"sqlite:///{tmp_path}/gesta.db")
    jobs_url = url if acme is None else {"default": url, "acme": acme}
    jobs = Endpoints(engine, jobs_url=jobs_url, tenant=lambda one: one.get("x-tenant", "default"))
    app = FastAPI()
    app.mount("/jobs", jobs.app)

    @app.post("/reports/{copies}", status_code=202)
    @jobs.endpoint(NAME, on_unknown="resend", headers=["X-Trace"], **options)
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


async def test_a_job_at_which_the_programs_own_function_fails_blocks_no_other(tmp_path):
    def priority(call):
        if call.id == ID.format(1):
            raise AttributeError("a bug of the program")
        return 3

    async with open_shop(tmp_path, priority=priority) as (_, store, __, calls):
        await store.create([foreign(1), foreign(2)])
        first, second = await ended(store, ID.format(1)), await ended(store, ID.format(2))
        assert (first.status, first.error.code, second.status) == (500, "PARSE_ERROR", 400)
        assert len(calls) == 1


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


async def test_another_service_cancels_a_job_that_is_held_here(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "BEAT_SECONDS", 0.05)
    async with open_shop(tmp_path) as (engine, store, _, calls):
        await engine.admin.pause(flow=NAME)
        await store.create([foreign(8)])
        while not await engine.find(flow=NAME):
            await asyncio.sleep(0.02)
        (answer,) = await store.cancel([ID.format(8)])
        assert answer.value == "requested"
        # S4-31: the heartbeat says so, the request is cancelled, and the hash follows it.
        assert (await ended(store, ID.format(8))).status == 600
        assert (await engine.get(ID.format(8))).state.status == "cancelled"
        assert calls == []


async def test_a_job_that_another_service_overwrites_as_canceled_is_not_executed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shared, "BEAT_SECONDS", 0.05)
    async with open_shop(tmp_path) as (engine, store, _, calls):
        await engine.admin.pause(flow=NAME)
        await store.create([foreign(9), foreign(10)])
        while len(await engine.find(flow=NAME)) < 2:
            await asyncio.sleep(0.02)
        # As AsyncEndpoints does it: the hash says so, and nothing else.
        table = store.table
        await table._redis.command("HSET", table.keys.job(ID.format(9)), "Status", "600")
        async with asyncio.timeout(10):
            while (await engine.get(ID.format(9))).state.status != "cancelled":
                await asyncio.sleep(0.02)
        await engine.admin.resume(flow=NAME)
        assert (await ended(store, ID.format(10))).status == 400
        (found,) = await store.get([ID.format(9)])
        assert (found.value.status, len(calls)) == (600, 1)  # S4-31


async def test_each_tenant_has_its_jobs_at_its_own_url(tmp_path):
    place = await fresh_url()
    other = await open_jobs(place, SystemRuntime())
    async with open_shop(tmp_path, acme=place) as (engine, store, app, _):
        await other.job_store.create([foreign(9)])
        assert (await ended(other.job_store, ID.format(9))).status == 400
        assert (await engine.get(ID.format(9), tenant="acme")).state.status == "completed"
        with pytest.raises(NotFound):
            await engine.get(ID.format(9))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = {"X-Tenant": "acme"}
            answer = await client.post("/reports/2", json={"title": "q"}, headers=headers)
            ours = await client.post("/reports/2", json={"title": "q"})
        await ended(other.job_store, answer.json()["id"])
        await ended(store, ours.json()["id"])
        # Neither tenant's services can read the other's.
        ids = [ID.format(9), answer.json()["id"]]
        assert {one.code for one in await store.get(ids)} == {"JOB_NOT_FOUND"}
        (hidden,) = await other.job_store.get([ours.json()["id"]])
        assert hidden.code == "JOB_NOT_FOUND"
    await other.close()


async def test_tenants_take_turns_however_many_jobs_one_has(tmp_path):
    place = await fresh_url()
    other = await open_jobs(place, SystemRuntime())
    async with open_shop(tmp_path, acme=place, concurrency=1) as (engine, store, _, calls):
        await engine.admin.pause(flow=NAME)
        await store.create([foreign(n, body={"title": "many"}) for n in range(16, 28)])
        await other.job_store.create([foreign(n, body={"title": "few"}) for n in range(32, 35)])
        for tenant, count in (("default", 12), ("acme", 3)):
            while len(await engine.find(flow=NAME, tenant=tenant)) < count:
                await asyncio.sleep(0.02)
        await engine.admin.resume(flow=NAME)
        for n in range(32, 35):
            await ended(other.job_store, ID.format(n))
        titles = "".join(title[0] for title, _ in calls)
        before_the_last = titles[: titles.rindex("f")]
        assert "mmmm" not in before_the_last, titles  # S4-30: at most three in a row
    await other.close()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("redis://127.0.0.1/1", "redis://127.0.0.1/1"),
        ("redis://127.0.0.1/0", "redis://127.0.0.1:6379"),
        ("redis://127.0.0.1", "redis://LocalHost/"),
        ("redis://127.0.0.1", "redis://[::1]?layout=shared&prefix=ae"),
        ("rediss://user:one@h", "rediss://other:two@H:6379/0"),
        ("rediss+cluster://h1,h2", "rediss+cluster://h2,h3"),
        ("sqlite:///jobs.db", "sqlite:///./jobs.db"),
        ("postgresql://localhost/a", "postgresql://user@127.0.0.1:5432/a?schema=gesta"),
    ],
)
def test_two_tenants_cannot_have_the_same_jobs_however_the_url_is_written(tmp_path, first, second):
    engine = Engine(f"sqlite:///{tmp_path}/gesta.db")
    with pytest.raises(BadSettings, match="'a' and 'b' use the same jobs"):
        Endpoints(engine, jobs_url={"a": first, "b": second})


@pytest.mark.parametrize("second", ["redis://127.0.0.1/1", "redis://127.0.0.1:6380"])
def test_tenants_with_places_of_their_own_are_accepted(tmp_path, second):
    engine = Engine(f"sqlite:///{tmp_path}/gesta.db")
    Endpoints(engine, jobs_url={"a": "redis://127.0.0.1", "b": second})


async def held(engine, store, *numbers):
    """Jobs of another service that are adopted and wait for their requests, which are paused."""
    await engine.admin.pause(flow=NAME)
    await store.create([foreign(n) for n in numbers])
    while not {ID.format(n) for n in numbers} <= {
        one.state.id for one in await engine.find(flow=NAME)
    }:
        await asyncio.sleep(0.02)


async def test_a_job_whose_request_retention_removed_fails_and_blocks_no_other(
    tmp_path, monkeypatch
):
    settle, is_removed = shared.SharedJobs._settle, asyncio.Event()

    async def settle_later(jobs, pipeline):
        return await settle(jobs, pipeline) if is_removed.is_set() else None

    monkeypatch.setattr(shared.SharedJobs, "_settle", settle_later)
    async with asyncio.timeout(20), open_shop(tmp_path) as (engine, store, _, calls):
        await held(engine, store, 10)
        request = await engine.request(ID.format(10), flow=NAME)
        await request.cancel()
        stream = request_stream(NAME, "default", request.id)
        remove = engine.pipeline.environment.stores.transactions.remove
        # The events stay until every consumer of the log has read them.
        while not await remove([(stream, (await request.view()).state)]):
            await asyncio.sleep(0.02)
        is_removed.set()
        await engine.admin.resume(flow=NAME)
        await store.create([foreign(11)])
        assert (await ended(store, ID.format(11))).status == 400
        gone = await ended(store, ID.format(10))
        assert (gone.status, gone.error.code) == (500, "gone")
        assert calls == [("q1", 3)]


async def damage(engine, number):
    """Write an event that cannot be read to the request of a held job."""
    while not (state := (await engine.get(ID.format(number))).state).held:
        await asyncio.sleep(0.02)
    await append_raw(engine, state.id, state.version, "AttemptFailed.v1", b"{", flow=NAME)


def quarantined(engine):
    return engine.pipeline.telemetry.registry.get_sample_value(
        "gesta_quarantined_total", {"what": "shared job"}
    )


async def test_a_held_job_whose_request_cannot_be_read_blocks_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(shared, "BEAT_SECONDS", 0.2)
    async with asyncio.timeout(20), open_shop(tmp_path) as (engine, store, _, calls):
        await held(engine, store, 60, 61)
        await damage(engine, 60)
        await engine.admin.resume(flow=NAME)
        assert (await ended(store, ID.format(61))).status == 400
        # It is claimed again when its claim expires, and logged no more.
        for n in (62, 63):
            begun = (await store.get([ID.format(60)]))[0].value.last_updated_at
            while (await store.get([ID.format(60)]))[0].value.last_updated_at == begun:
                await asyncio.sleep(0.02)
            await store.create([foreign(n)])
            assert (await ended(store, ID.format(n))).status == 400
        assert quarantined(engine) == 1
        assert len(calls) == 3
        assert (await store.get([ID.format(60)]))[0].value.retry_count == 0


async def test_a_cancel_of_a_job_whose_request_cannot_be_read_blocks_no_other(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shared, "BEAT_SECONDS", 0.05)
    async with asyncio.timeout(20), open_shop(tmp_path) as (engine, store, _, __):
        await held(engine, store, 64, 65)
        await damage(engine, 64)
        await store.cancel([ID.format(64)])
        await engine.admin.resume(flow=NAME)
        assert (await ended(store, ID.format(65))).status == 400
        assert quarantined(engine) == 1


async def test_a_held_job_at_which_alone_the_store_fails_blocks_no_other(tmp_path, monkeypatch):
    result = TenantRecords.result

    async def one_fails(records, request_id):
        if request_id == ID.format(66):
            raise StoreError("its page of the database is damaged")
        return await result(records, request_id)

    monkeypatch.setattr(TenantRecords, "result", one_fails)
    async with asyncio.timeout(20), open_shop(tmp_path) as (engine, store, _, __):
        await store.create([foreign(66)])
        while not any(one.state.is_terminal for one in await engine.find(flow=NAME)):
            await asyncio.sleep(0.02)
        # While it is the only one, the store itself may have failed.
        await store.create([foreign(67)])
        assert (await ended(store, ID.format(67))).status == 400
        await held(engine, store, 68)
        while quarantined(engine) is None:
            await asyncio.sleep(0.02)
        assert (await store.get([ID.format(66)]))[0].value.status == 300


async def test_claimed_jobs_are_adopted_although_the_store_failed_at_the_first(
    tmp_path, monkeypatch
):
    async with open_shop(tmp_path) as (engine, store, _, calls):
        submit, failures = engine.submit, [StoreError("a moment"), StoreError("a moment")]

        async def submit_later(*args, **given):
            if failures:
                raise failures.pop()
            return await submit(*args, **given)

        monkeypatch.setattr(engine, "submit", submit_later)
        await store.create([foreign(n) for n in range(40, 45)])
        # Long before the claims expire.
        async with asyncio.timeout(shared.LEASE_SECONDS / 3):
            for n in range(40, 45):
                assert (await ended(store, ID.format(n))).status == 400
        assert (failures, len(calls)) == ([], 5)


async def test_a_held_job_that_another_program_overwrites_blocks_no_other(tmp_path):
    async with open_shop(tmp_path) as (engine, store, _, __):
        await engine.admin.pause(flow=NAME)
        await store.create([foreign(50), foreign(51)])
        while len(await engine.find(flow=NAME)) < 2:
            await asyncio.sleep(0.02)
        table = store.table
        await table._redis.command("SET", table.keys.job(ID.format(50)), "text")
        await engine.admin.resume(flow=NAME)
        assert (await ended(store, ID.format(51))).status == 400
        await store.create([foreign(52)])
        assert (await ended(store, ID.format(52))).status == 400
        (lost,) = await store.get([ID.format(50)])
        assert lost.value is None
        assert await table._redis.command("GET", table.keys.job(ID.format(50))) in ("text", b"text")
