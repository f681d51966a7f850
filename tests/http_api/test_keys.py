"""Keys and the audit trail over HTTP; and what a test key can and cannot do."""

from __future__ import annotations

import pytest

from gesta.domain.events import Actor

CHANNEL = {"flow": "notification.slack", "payload": {"channelCode": "ops", "text": "hello"}}


async def test_a_key_is_made_shown_once_listed_and_ended(api):
    admin = await api.key(tenant="acme")
    made = await api.call("POST", "/v1/keys", {"name": "shop", "scopes": ["read"]}, key=admin)
    assert made.status == 201
    text = made.body.pop("key")
    assert (made.body["name"], made.body["scopes"], made.body["test"], made.body["tenant"]) == (
        "shop",
        ["read"],
        False,
        "acme",
    )
    assert made.body["createdBy"] == f"key:{admin.split('_')[2]}"
    assert made.headers["Location"] == f"/v1/keys/{made.body['id']}"
    assert made.headers["Cache-Control"] == "no-store"
    assert (await api.call("GET", "/v1/requests", key=text)).status == 200
    listed = await api.call("GET", "/v1/keys", key=admin)
    assert listed.body["items"][0] == made.body
    assert text not in listed.text
    ended = await api.call("DELETE", f"/v1/keys/{made.body['id']}", key=admin)
    assert (ended.status, ended.body["revokedBy"]) == (200, made.body["createdBy"])
    assert (await api.call("GET", "/v1/requests", key=text)).status == 401
    assert (await api.call("DELETE", f"/v1/keys/{made.body['id']}", key=admin)).body == ended.body


async def test_a_key_has_the_scopes_read_and_submit_and_no_expiry_by_default(api_here):
    made = await api_here.call("POST", "/v1/keys", {"name": "shop"}, key=await api_here.key())
    assert (made.body["scopes"], made.body["expiresAt"]) == (["read", "submit"], None)


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({}, {"name"}),
        ({"name": ""}, {"name"}),
        ({"name": "a\u0000b"}, {"name"}),
        ({"name": "x", "scopes": []}, {"scopes"}),
        ({"name": "x", "scopes": ["root"]}, {"scopes"}),
        ({"name": "x", "scopes": ["admin"], "test": True}, {"scopes"}),
        ({"name": "x", "expiresAt": "2020-01-01T00:00:00Z"}, {"expiresAt"}),
        ({"name": "x", "expiresAt": "2200-01-01T00:00:00"}, {"expiresAt"}),
        ({"name": "x", "expiresAt": "9999-12-31T23:59:59-14:00"}, {"expiresAt"}),
        ({"name": "x", "tenant": "acme"}, {"tenant"}),
        (
            {"name": 1, "scopes": "read", "test": "yes", "wrong": 1},
            {"name", "scopes", "test", "wrong"},
        ),
    ],
)
async def test_a_key_with_bad_fields_is_refused_with_every_error(api_here, body, errors):
    admin = await api_here.key()
    answer = await api_here.call("POST", "/v1/keys", body, key=admin)
    assert (answer.status, answer.body["errors"].keys()) == (422, errors)
    assert len((await api_here.call("GET", "/v1/keys", key=admin)).body["items"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/keys", {"name": "x"}),
        ("GET", "/v1/keys", None),
        ("DELETE", "/v1/keys/x", None),
        ("GET", "/v1/audit", None),
    ],
)
async def test_keys_and_the_audit_log_need_the_scope_admin(api_here, method, path, body):
    for key in (
        await api_here.key("read", "submit", "operate", "execute"),
        await api_here.key("read", "submit", test=True),
    ):
        answer = await api_here.call(method, path, body, key=key)
        assert (answer.status, answer.body["code"]) == (403, "scope_missing")
    assert (await api_here.call(method, path, body)).status == 401


async def test_another_tenants_keys_and_trail_are_not_there(api):
    mine, theirs = await api.key(), await api.key(tenant="acme")
    key_id = mine.split("_")[2]
    for name in (key_id, f"{key_id}%2Fdefault", mine):
        answer = await api.call("DELETE", f"/v1/keys/{name}", key=theirs)
        assert answer.status == 404
        assert mine not in answer.text
    assert [
        one["tenant"] for one in (await api.call("GET", "/v1/keys", key=theirs)).body["items"]
    ] == ["acme"]
    assert [
        one["about"] for one in (await api.call("GET", "/v1/audit", key=theirs)).body["items"]
    ] == [theirs.split("_")[2]]
    assert (await api.call("GET", "/v1/requests", key=mine)).status == 200


async def test_the_audit_log_lists_changes_and_their_actors_in_pages(api):
    admin = await api.key()
    for number in range(4):
        await api.engine.admin.pause(
            tenant="default", reason=str(number), actor=Actor("ada", ("owner",))
        )
    first = await api.call("GET", "/v1/audit?limit=3", key=admin)
    assert [
        (one["what"], one["about"], one["by"], one["roles"]) for one in first.body["items"]
    ] == [("paused", "everything", "ada", ["owner"])] * 3
    assert [one["details"] for one in first.body["items"]] == [
        {"reason": str(number)} for number in (3, 2, 1)
    ]
    rest = await api.call("GET", f"/v1/audit?limit=3&cursor={first.body['next']}", key=admin)
    assert [one["what"] for one in rest.body["items"]] == ["paused", "key_created"]
    assert rest.body["next"] is None
    for odd in ("limit=0", "limit=201", "cursor=0", "cursor=x", "cursor=99999999999", "other=1"):
        assert (await api.call("GET", f"/v1/audit?{odd}", key=admin)).status == 422


async def test_requests_of_a_test_key_reach_only_the_sandbox(api):
    tests, live = await api.key("read", "submit", test=True), await api.key()
    made = await api.call("POST", "/v1/requests?wait=20s", CHANNEL | {"key": "order-7"}, key=tests)
    assert (made.status, made.body["request"]["status"], made.body["request"]["test"]) == (
        202,
        "sent",
        True,
    )
    # The providers of the live requests, doubles here, have heard of nothing.
    assert api.sandbox.slack.calls == 0
    again = await api.call("POST", "/v1/requests", CHANNEL | {"key": "order-7"}, key=tests)
    assert (again.status, again.body["id"]) == (200, made.body["id"])
    real = await api.call("POST", "/v1/requests?wait=1s", CHANNEL | {"key": "order-7"}, key=live)
    assert (real.status, real.body["request"]["test"], real.body["request"]["status"]) == (
        202,
        False,
        "queued",
    )
    batch = await api.call(
        "POST", "/v1/requests/batch", {"requests": [CHANNEL, CHANNEL]}, key=tests
    )
    for one in batch.body["items"]:
        shown = await api.call("GET", f"/v1/requests/{one['id']}?wait=20s", key=tests)
        assert (shown.body["status"], shown.body["test"]) == ("sent", True)
    assert api.sandbox.slack.calls == 0


async def test_a_test_request_of_a_user_defined_flow_is_refused_with_the_remedy(api_here):
    key = await api_here.key("read", "submit", test=True)
    answer = await api_here.submit(key)
    assert answer.status == 422
    assert "effects='attempt'" in answer.body["errors"]["test"]
    batch = await api_here.call(
        "POST",
        "/v1/requests/batch",
        {"requests": [{"flow": "shop.note", "payload": {"text": "a"}}, CHANNEL]},
        key=key,
    )
    assert [one["verdict"] for one in batch.body["items"]] == ["invalid", "created"]
    assert len(await api_here.engine.find()) <= 1


async def test_a_test_key_decides_nothing_about_live_requests(api_here):
    tests, live = await api_here.key("read", "submit", test=True), await api_here.key()
    made = await api_here.submit(live, "later")
    here = made.headers["Location"]
    for verb, body in (
        ("cancel", None),
        ("retry", None),
        ("redrive", {}),
        ("resolve", {"outcome": "succeeded", "evidence": "none"}),
    ):
        assert (await api_here.call("POST", f"{here}/{verb}", body, key=tests)).status == 403
