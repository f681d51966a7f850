"""POST /v1/bulk: one decision about many requests, with its progress as a stream of lines."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from gesta.admin.bulk import BulkRun
from gesta.client import Bulk, Client, SyncClient
from gesta.engine.request import Request
from gesta.errors import BulkFinished, Forbidden, InvalidRequest, NotFound, StoreError, Unreachable
from gesta.http_api.bulk import RUNS_OF_TENANT_MAX
from gesta.runtime.clock import spawn
from tests.http_api.served import Served
from tests.http_api.test_dead_letters import ended

REDRIVE = {"action": "redrive", "status": "failed", "rate": 1_000}


async def run(api: Served, key: str, body: dict[str, Any], path: str = "/v1/bulk") -> list[Any]:
    """The reports of a run that is allowed."""
    answer = await api.call("POST", path, body, key=key)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
    return [msgspec.json.decode(line) for line in answer.text.splitlines()]


async def test_a_time_in_another_form_is_refused_with_the_form(api):
    key = await api.key()
    for since in ("2h", "2030-01-01T00:00:00"):
        answer = await api.call("POST", "/v1/bulk", {**REDRIVE, "since": since}, key=key)
        assert answer.status == 422
        assert "for instance 2030-01-31T09:00:00Z" in answer.body["errors"]["since"]


async def test_a_dry_run_refuses_a_request_about_an_erased_person_as_the_run_does(api):
    key = await api.key()
    gone = await ended(api, "refuse", payload={"text": "refuse", "to": "ada@example.org"})
    await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=key)
    (line,) = await run(api, key, {**REDRIVE, "dryRun": True})
    dry = line["progress"]
    assert (dry["matched"], dry["done"], dry["refused"]) == (1, 0, 1)
    assert [(one["id"], one["code"]) for one in dry["refusals"]] == [(gone, "subject_erased")]
    lines = await run(api, key, REDRIVE)
    assert [one for line in lines for one in line["progress"]["refusals"]] == dry["refusals"]


async def test_a_dry_run_counts_matches_and_changes_nothing(api):
    key = await api.key("read", "operate")
    ids = [await ended(api, "refuse") for _ in range(3)][::-1]
    (line,) = await run(api, key, {**REDRIVE, "dryRun": True})
    report = line["progress"]
    assert (report["matched"], report["done"], report["finished"]) == (3, 0, True)
    assert [one["id"] for one in report["sample"]] == ids
    assert {(await api.engine.get(one)).state.status for one in ids} == {"failed"}


async def test_many_are_redriven_by_filter_and_the_audit_log_names_the_key(api):
    key, admin = await api.key("operate"), await api.key()
    ids = [await ended(api, "refuse") for _ in range(4)]
    lines = await run(api, key, {**REDRIVE, "flow": "shop.note", "reason": "other"})
    assert lines[-1]["progress"]["matched"] == 0
    lines = await run(api, key, {**REDRIVE, "flow": "shop.note", "reason": "said_no"})
    last = lines[-1]["progress"]
    assert (last["matched"], last["done"], last["refused"], last["finished"]) == (4, 4, 0, True)
    assert [(await api.engine.get(one)).state.intent for one in ids] == [2] * 4
    (_, entry, *_) = (await api.call("GET", "/v1/audit", key=admin)).body["items"]
    assert (entry["what"], entry["about"], entry["version"]) == (
        "bulk_started",
        "redrive",
        last["id"],
    )
    assert entry["by"].startswith("key:")
    assert entry["details"]["filter"] == {
        "flow": "shop.note",
        "status": "failed",
        "reason": "said_no",
    }


async def test_a_refused_request_is_reported_and_the_others_go_on(api):
    key = await api.key()
    gone = await ended(api, "refuse", payload={"text": "refuse", "to": "ada@example.org"})
    stays = await ended(api, "refuse", payload={"text": "refuse", "to": "bo@example.org"})
    await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=key)
    lines = [one["progress"] for one in await run(api, key, REDRIVE)]
    assert (lines[-1]["done"], lines[-1]["refused"]) == (1, 1)
    refusals = [refusal for one in lines for refusal in one["refusals"]]
    assert [(one["id"], one["code"]) for one in refusals] == [(gone, "subject_erased")]
    assert (await api.engine.get(stays)).state.intent == 2


async def test_unknown_outcomes_are_resolved_by_filter(api_here):
    key = await api_here.key("operate")
    ids = [await ended(api_here, "unknown") for _ in range(2)]
    body = {"action": "resolve", "flow": "shop.note", "outcome": "failed", "evidence": "their log"}
    last = (await run(api_here, key, body))[-1]["progress"]
    assert (last["done"], last["finished"]) == (2, True)
    assert {(await api_here.engine.get(one)).state.status for one in ids} == {"failed"}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"action": "redrive"}, {"filter"}),
        ({"action": "destroy", "rate": 0, "colour": 1}, {"action", "rate", "colour"}),
        ({"action": "resolve", "flow": "shop.note"}, {"outcome", "evidence"}),
        ({"action": "cancel", "status": "failed", "again": True}, {"status", "again"}),
        ({"action": "redrive", "flow": "\0"}, {"flow"}),
        ({"action": "redrive", "status": "failed", "ttlSeconds": -1}, {"ttlSeconds"}),
    ],
)
async def test_a_wrong_filter_is_refused_with_every_field_before_anything_is_changed(
    api_here, body, fields
):
    answer = await api_here.call("POST", "/v1/bulk", body, key=await api_here.key("operate"))
    assert (answer.status, set(answer.body["errors"])) == (422, fields)


async def test_a_store_error_in_the_middle_is_the_last_line_and_the_run_can_be_resumed(
    api_here, monkeypatch
):
    key = await api_here.key("operate")
    ids = [await ended(api_here, "refuse") for _ in range(3)][::-1]
    redrive = Request.redrive

    async def failing(self: Request, **options: object) -> object:
        if self.id == ids[2]:
            raise StoreError("/secret/path of the disk is gone")
        return await redrive(self, **options)  # type: ignore[arg-type]

    # One at a time, so that the first two are done when the third fails.
    with monkeypatch.context() as patch:
        patch.setattr(Request, "redrive", failing)
        lines = await run(api_here, key, {**REDRIVE, "rate": 10})
    assert lines[-1]["problem"]["code"] == "store_unavailable"
    assert "/secret/path" not in str(lines)
    stopped = lines[-2]["progress"]
    assert (stopped["done"], stopped["finished"]) == (2, False)
    resumed = await run(api_here, key, {"action": "redrive"}, f"/v1/bulk/{stopped['id']}/resume")
    assert resumed[-1]["progress"]["finished"]
    assert [(await api_here.engine.get(one)).state.intent for one in ids] == [2] * 3


async def test_dry_runs_that_have_not_reported_yet_count_as_active_runs(api_here, monkeypatch):
    key = await api_here.key("operate")
    await ended(api_here, "refuse")
    asked, may_go_on, stored = asyncio.Semaphore(0), asyncio.Event(), BulkRun._stored

    async def wait(self, views):
        asked.release()
        await may_go_on.wait()
        return await stored(self, views)

    monkeypatch.setattr(BulkRun, "_stored", wait)
    dry = {**REDRIVE, "dryRun": True}
    active = [spawn(run(api_here, key, dry), "dry run") for _ in range(RUNS_OF_TENANT_MAX)]
    for _ in active:
        await asked.acquire()
    refused = await asyncio.wait_for(api_here.call("POST", "/v1/bulk", dry, key=key), 10)
    assert (refused.status, refused.body["code"]) == (503, "too_many_bulk_runs")
    may_go_on.set()
    for one in active:
        assert (await one)[-1]["progress"]["finished"]
    assert (await run(api_here, key, dry))[-1]["progress"]["finished"]


async def test_a_run_stops_when_its_caller_goes_away_and_another_may_begin(api_here):
    key = await api_here.key("operate")
    for _ in range(3):
        await ended(api_here, "refuse")
    body = msgspec.json.encode({**REDRIVE, "rate": 0.1})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    running = [
        await api_here.session.post(f"{api_here.address}/v1/bulk", data=body, headers=headers)
        for _ in range(RUNS_OF_TENANT_MAX)
    ]
    for one in running:
        await one.content.readline()
    refused = await api_here.call("POST", "/v1/bulk", REDRIVE, key=key)
    assert (refused.status, refused.body["code"]) == (503, "too_many_bulk_runs")
    for one in running:
        one.close()
    while api_here.web.bulk_runs["default"]:
        # The server notices the end of the connections.
        await api_here.call("GET", "/v1/whoami", key=key)
    assert (await run(api_here, key, REDRIVE))[-1]["progress"]["finished"]


@pytest.mark.parametrize("run_id", ["0", "1", "7", "99999999999999999999", "x", "-1"])
async def test_only_a_run_of_the_tenant_can_be_resumed(api_here, run_id):
    await api_here.engine.admin.pause(tenant="default")
    path = f"/v1/bulk/{run_id}/resume"
    for tenant in ("default", "acme"):
        key = await api_here.key(tenant=tenant)
        answer = await api_here.call("POST", path, {"action": "redrive"}, key=key)
        assert (answer.status, answer.body["code"]) == (404, "not_found")


async def test_a_redrive_is_not_resumed_as_a_purge_nor_after_its_end(api_here):
    key = await api_here.key("operate")
    dead = await ended(api_here, "refuse")
    body = msgspec.json.encode({**REDRIVE, "rate": 0.1})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with api_here.session.post(
        f"{api_here.address}/v1/bulk", data=body, headers=headers
    ) as running:
        number = msgspec.json.decode(await running.content.readline())["progress"]["id"]
        running.close()
    path = f"/v1/bulk/{number}/resume"
    wrong = {"action": "purge", "deadLetters": True}
    answer = await api_here.call("POST", path, wrong, key=key)
    assert (answer.status, set(answer.body["errors"])) == (422, {"action", "deadLetters"})
    assert set((await api_here.call("POST", path, {}, key=key)).body["errors"]) == {"action"}
    assert not (await api_here.engine.get(dead)).state.purged
    await run(api_here, key, {"action": "redrive", "rate": 1_000}, path)
    answer = await api_here.call("POST", path, {"action": "redrive"}, key=key)
    assert (answer.status, answer.body["code"]) == (409, "bulk_finished")


async def test_another_tenants_requests_are_not_changed(api):
    theirs = await api.key("operate", tenant="acme")
    dead = await ended(api, "refuse")
    assert (await run(api, theirs, REDRIVE))[-1]["progress"]["matched"] == 0
    assert (await api.engine.get(dead)).state.status == "failed"


async def test_a_bulk_run_takes_the_scope_operate(api_here):
    key = await api_here.key("read", "submit", "execute")
    for path in ("/v1/bulk", "/v1/bulk/1/resume"):
        assert (await api_here.call("POST", path, REDRIVE, key=key)).status == 403


async def test_the_client_reports_progress_stops_and_resumes(api_here):
    key = await api_here.key("operate")
    ids = [await ended(api_here, "refuse") for _ in range(2)]
    asked = Bulk(action="redrive", flow="shop.note", rate=10)
    async with Client(api_here.address, key) as client:
        with pytest.raises(InvalidRequest):
            await anext(client.bulk(Bulk(action="redrive")))
        with pytest.raises(NotFound):
            await anext(client.resume_bulk(999, "redrive"))
        async with aclosing(client.bulk(asked, by="ada")) as reports:
            first = await anext(reports)
        assert (first.matched, first.done, len(first.sample)) == (2, 0, 2)
        assert first.id is not None
        with pytest.raises(InvalidRequest) as wrong:
            await anext(client.resume_bulk(first.id, "purge", dead_letters=True))
        assert set(wrong.value.fields) == {"action", "deadLetters"}
        resumed = client.resume_bulk(first.id, "redrive", rate=1_000, by="ada")
        assert [one async for one in resumed][-1].finished
        with pytest.raises(BulkFinished, match="start a new run"):
            await anext(client.resume_bulk(first.id, "redrive"))
    assert [(await api_here.engine.get(one)).state.intent for one in ids] == [2, 2]
    # The first part may have changed a request before the server saw that its caller had left.
    audit = [one for one in await api_here.engine.admin.audit() if one.what != "bulk_stopped"]
    finished, started, *_ = audit
    assert (finished.what, finished.by) == ("bulk_finished", "ada")
    assert (started.what, started.by) == ("bulk_started", "ada")
    async with Client(api_here.address, await api_here.key("read")) as reader:
        with pytest.raises(Forbidden):
            await anext(reader.bulk(asked))


async def test_the_client_raises_the_error_that_stopped_a_run(api_here, monkeypatch):
    await ended(api_here, "refuse")

    async def failing(self: Request, **_: object) -> object:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(Request, "redrive", failing)
    async with Client(api_here.address, await api_here.key("operate")) as client:
        with pytest.raises(Unreachable, match="store is unavailable"):
            async for _ in client.bulk(Bulk(action="redrive", flow="shop.note")):
                pass


async def test_the_client_without_a_loop_reports_progress(api_here):
    import asyncio

    await ended(api_here, "refuse")
    key = await api_here.key("operate")

    def work() -> list[bool]:
        with SyncClient(api_here.address, key) as client:
            asked = Bulk(action="redrive", flow="shop.note", dry_run=True)
            return [one.finished for one in client.bulk(asked)]

    assert await asyncio.to_thread(work) == [True]


async def test_a_key_that_is_revoked_ends_its_run(api_here):
    admin = await api_here.key()
    made = await api_here.call("POST", "/v1/keys", {"name": "x", "scopes": ["operate"]}, key=admin)
    for _ in range(3):
        await ended(api_here, "refuse")
    async with api_here.session.post(
        f"{api_here.address}/v1/bulk",
        json={**REDRIVE, "rate": 1},
        headers={"Authorization": f"Bearer {made.body['key']}"},
    ) as running:
        await running.content.readline()
        await api_here.call("DELETE", f"/v1/keys/{made.body['id']}", key=admin)
        lines = [msgspec.json.decode(line) async for line in running.content]
    assert not any(line["progress"]["finished"] for line in lines)
    assert api_here.web.bulk_runs["default"] == 0
