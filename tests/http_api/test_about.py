"""Health, metrics, and what a caller can ask about themselves and about what is here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gesta.domain.events import Actor
from gesta.errors import StoreError
from gesta.ports.read_model import Quarantined


async def test_a_process_that_works_is_live_and_ready_to_any_caller(api):
    for path, word in (("/live", "live"), ("/ready", "ready")):
        while (answer := await api.call("GET", path)).status == 503:
            # Its components have to start first.
            assert word == "ready"
        assert (answer.status, answer.body) == (200, {word: True, "wrong": {}})


async def test_a_store_that_fails_makes_it_not_ready_and_still_live(api_here, monkeypatch):
    async def failing(*_: object) -> bool:
        raise StoreError("the disk /secret/path is gone")

    monkeypatch.setattr(api_here.engine.pipeline.environment.stores.read_model, "claim", failing)
    while "store" not in (answer := await api_here.call("GET", "/ready")).body["wrong"]:
        pass
    assert (answer.status, answer.body["ready"]) == (503, False)
    assert "/secret/path" not in answer.text
    assert (await api_here.call("GET", "/live")).status == 200


async def test_a_crashed_component_makes_the_process_not_live(api_here, monkeypatch):
    monkeypatch.setattr(
        api_here.engine.pipeline.components, "broken", lambda: {"worker": "does not run"}
    )
    answer = await api_here.call("GET", "/live")
    assert (answer.status, answer.body) == (
        503,
        {"live": False, "wrong": {"worker": "does not run"}},
    )


async def test_metrics_take_the_scope_operate_and_a_key_of_the_processs_own_tenant(api_here):
    answer = await api_here.call("GET", "/metrics", key=await api_here.key("operate"))
    assert (answer.status, answer.headers["Content-Type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    assert "executor_attempts" in answer.text
    keyless = await api_here.call("GET", "/metrics")
    assert keyless.status == 401
    assert "--scope operate" in keyless.body["detail"]
    # Not `gesta serve`: a mounted API has a worker beside it, with the same --app.
    assert "`gesta worker --health-port 8080`, with --app MODULE:NAME" in keyless.body["detail"]
    assert (await api_here.call("GET", "/metrics", key=await api_here.key("read"))).status == 403
    theirs = await api_here.call("GET", "/metrics", key=await api_here.key(tenant="acme"))
    assert (theirs.status, theirs.body["code"]) == (403, "not_your_process")


@pytest.mark.parametrize("scope", ["read", "submit", "execute", "operate", "admin"])
async def test_every_key_may_ask_whose_it_is(api_here, scope):
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    made, text = await api_here.engine.admin.create_key(
        tenant="acme", name="the shop", scopes=[scope], expires_at=expires, actor=Actor("test")
    )
    answer = await api_here.call("GET", "/v1/whoami", key=text)
    assert answer.body == {
        "keyId": made.id,
        "name": "the shop",
        "tenant": "acme",
        "scopes": [scope],
        "test": False,
        "expiresAt": expires.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }
    assert text not in answer.text
    assert (await api_here.call("GET", "/v1/whoami")).status == 401


async def test_the_flow_list_marks_personal_fields(api_here):
    answer = await api_here.call("GET", "/v1/flows", key=await api_here.key("read"))
    flows = {one["name"]: one for one in answer.body["items"]}
    assert set(flows) == {
        "shop.note",
        "notification.slack",
        "notification.webhook",
        "notification.sms",
    }
    note = flows["shop.note"]
    assert (note["external"], note["onUnknown"], note["attempts"], note["config"]) == (
        False,
        "manual",
        3,
        [],
    )
    fields = note["payload"]["$defs"]["Note"]["properties"]
    assert (fields["to"].get("x-personal"), fields["text"].get("x-personal")) == (True, None)
    assert "webhook.endpoint" in flows["notification.webhook"]["config"]


async def test_counts_are_the_tenants_own(api):
    key, theirs = await api.key("submit", "read"), await api.key("read", tenant="acme")
    for text in ("hello", "refuse", "hello"):
        await api.call(
            "POST",
            "/v1/requests?wait=20s",
            {"flow": "shop.note", "payload": {"text": text}},
            key=key,
        )
    expected = [
        {"flow": "shop.note", "status": "completed", "count": 2},
        {"flow": "shop.note", "status": "failed", "count": 1},
    ]
    while (await api.call("GET", "/v1/counts", key=key)).body["items"] != expected:
        pass
    assert (await api.call("GET", "/v1/counts", key=theirs)).body == {"items": [], "next": None}


async def test_quarantined_items_are_the_tenants_own_newest_first_and_bounded(api):
    key = await api.key("operate")
    quarantined = [
        Quarantined("event", tenant, f"s-{at}", 1, "cannot be read", at)
        for tenant, at in (("default", 1), ("default", 2), ("acme", 3))
    ]
    await api.engine.pipeline.environment.stores.read_model.save([], quarantined)
    answer = (await api.call("GET", "/v1/quarantined", key=key)).body
    assert ([one["name"] for one in answer["items"]], answer["next"]) == (["s-2", "s-1"], None)
    first = (await api.call("GET", "/v1/quarantined?limit=1", key=key)).body
    assert [one["name"] for one in first["items"]] == ["s-2"]
    rest = (await api.call("GET", f"/v1/quarantined?cursor={first['next']}", key=key)).body
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["s-1"], None)
    assert (await api.call("GET", "/v1/quarantined?limit=1001", key=key)).status == 422


async def test_each_takes_its_scope(api_here):
    for path in ("/v1/flows", "/v1/counts", "/v1/config", "/v1/config-kinds"):
        assert (
            await api_here.call("GET", path, key=await api_here.key("submit", "operate"))
        ).status == 403
    assert (
        await api_here.call("GET", "/v1/quarantined", key=await api_here.key("read"))
    ).status == 403
