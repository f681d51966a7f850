"""Results go with their requests, and with the people they are about."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from gesta import Engine, Erased
from gesta.jobs.fastapi import Endpoints
from gesta.maintenance import retention
from gesta.runtime.clock import OnClock
from gesta.runtime.component import Process
from gesta.runtime.settings import Settings
from gesta.tenants.flow_records import TenantRecords
from tests.jobs.shops import Report
from tests.stores.postgresql.places import fresh_url

SECRET = "ada-lovelace"
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request, tmp_path):
    return f"sqlite:///{tmp_path}/gesta.db" if request.param == "sqlite" else await fresh_url()


def shop(url, vault_url=None, **options):
    engine = Engine(settings=Settings(url=url, vault_url=vault_url, master_key=KEY))
    app, jobs = FastAPI(), Endpoints(engine)
    app.mount("/jobs", jobs.app)

    @app.post("/reports", status_code=202)
    @jobs.endpoint("reports.build", on_unknown="resend", **options)
    async def build(report: Report) -> dict[str, str]:
        if report.pages == 2:
            # The person is erased while the handler runs.
            await engine.erase(report.title)
        return {"of": report.title}

    transport = httpx.ASGITransport(app)
    return engine, httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=30)


async def ended(client, answer):
    return (await client.get(answer.headers["location"], params={"wait": "20s"})).json()


def walk_of(engine, *, days):
    """Retention of one day, so many days later."""
    pipeline = engine.pipeline
    later = OnClock(pipeline.runtime, lambda: pipeline.runtime.now_ms() + round(days * 86_400_000))
    return retention.Retention(
        timedelta(days=1),
        flows=pipeline.flows,
        stores=pipeline.environment.stores,
        records=pipeline.records,
        process=Process(later, pipeline.process.ids, pipeline.telemetry, pipeline.owner),
    )


async def secrets(engine):
    """The versions in the vault that are a result and were not destroyed."""
    found = await engine.pipeline.environment.stores.vault.listed(("", "", 0), 1_000)
    return [one for one in found if one.name.startswith("record/result/") and one.box]


async def test_the_result_of_a_job_is_removed_with_its_request(url, monkeypatch):
    engine, client = shop(url)
    async with engine, client:
        own = {"X-Async-Request-Id": str(uuid4())}
        answer = await client.post("/reports", json={"title": "q1"}, headers=own)
        assert (await ended(client, answer))["result"] == {"of": "q1"}
        assert len(await secrets(engine)) == 1
        monkeypatch.setattr(retention, "PAUSE_SECONDS", 0.0)
        await walk_of(engine, days=0.5).step()
        assert len(await secrets(engine)) == 1
        walk = walk_of(engine, days=2)
        # The events of consumers that are behind stay until they were read.
        for _ in range(500):
            await walk.step()
            if (await client.get(answer.headers["location"])).status_code == 404:
                break
        assert await secrets(engine) == []
        again = await client.post("/reports", json={"title": "q1"}, headers=own)
        assert (again.status_code, again.json()["code"]) == (410, "gone")


async def test_a_result_in_a_vault_of_its_own_is_removed_with_its_request(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0.0)
    engine, client = shop(f"sqlite:///{tmp_path}/gesta.db", f"sqlite:///{tmp_path}/vault.db")
    async with engine, client:
        answer = await client.post("/reports", json={"title": "q1"})
        assert (await ended(client, answer))["result"] == {"of": "q1"}
        assert len(await secrets(engine)) == 1
        walk = walk_of(engine, days=2)
        for _ in range(500):
            await walk.step()
            if (await client.get(answer.headers["location"])).status_code == 404:
                break
        assert await secrets(engine) == []


async def test_a_job_that_stays_for_a_consumer_of_the_log_keeps_its_result(url, monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0.0)
    engine, client = shop(url)
    async with engine, client:
        answer = await client.post("/reports", json={"title": "q1"})
        await ended(client, answer)
        # A consumer that has read nothing yet: retention leaves all requests to it.
        await engine.pipeline.environment.stores.checkpoints.begin("behind", 0)
        walk = walk_of(engine, days=2)
        for _ in range(3):
            await walk.step()
        polled = await client.get(answer.headers["location"])
        assert (polled.status_code, polled.json()["result"]) == (200, {"of": "q1"})


async def test_a_job_removed_while_it_is_read_is_not_shown_without_its_result(url, monkeypatch):
    engine, client = shop(url)
    async with engine, client:
        answer = await client.post("/reports", json={"title": "q1"})
        await ended(client, answer)
        read, walk = TenantRecords.result, walk_of(engine, days=2)
        monkeypatch.setattr(retention, "PAUSE_SECONDS", 0.0)

        async def removed_first(records, request_id):
            while await secrets(engine):
                await walk.step()
            return await read(records, request_id)

        monkeypatch.setattr(TenantRecords, "result", removed_first)
        assert (await client.get(answer.headers["location"])).status_code == 404


async def test_erasing_a_person_erases_the_calls_and_results_about_them(url):
    engine, client = shop(url, subject=lambda call: call.arguments["report"]["title"])
    async with engine, client:
        answer = await client.post("/reports", json={"title": SECRET})
        other = await client.post("/reports", json={"title": "grace-hopper"})
        assert (await ended(client, answer))["result"] == {"of": SECRET}
        assert (await ended(client, other))["result"] == {"of": "grace-hopper"}
        events = await engine.pipeline.environment.stores.events.follow(0, 100)
        assert not any(SECRET.encode() in one.data for one in events)
        await engine.erase(SECRET)
        gone = await ended(client, answer)
        assert (gone["status"], gone["result"]) == ("Completed", None)
        with pytest.raises(Erased):
            await (await engine.request(gone["id"])).payload()
        assert (await ended(client, other))["result"] == {"of": "grace-hopper"}


async def test_no_result_is_kept_about_a_person_who_was_erased_meanwhile(url):
    engine, client = shop(url, subject=lambda call: call.arguments["report"]["title"])
    async with engine, client:
        answer = await client.post("/reports", json={"title": SECRET, "pages": 2})
        done = await ended(client, answer)
        assert (done["status"], done["error"]["code"]) == ("Failed", "subject_erased")
        assert await secrets(engine) == []
