"""/v1/config: stored by code, read without secrets, changed only at the version that was read."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from gesta.errors import StoreError
from gesta.tenants.config import EntityPut

HERE = "/v1/config/webhook.endpoint/shop"
FIRST, SECOND = (
    "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=",
)


def _fields(secret: str | None = FIRST, **more: object) -> dict[str, object]:
    fields = {"url": "https://shop.example/hooks", **more}
    return {"fields": fields if secret is None else {**fields, "secret": secret}}


async def test_stored_config_is_read_without_its_secret(api):
    key = await api.key()
    made = await api.call("PUT", HERE, _fields(), key=key)
    assert (made.status, made.headers["ETag"]) == (200, f'"{made.body["version"]}"')
    shown = await api.call("GET", HERE, key=await api.key("read"))
    assert shown.body == made.body
    assert shown.body["fields"] == {"url": "https://shop.example/hooks"}
    assert shown.body["secrets"] == {"secret": 1}
    listed = await api.call("GET", "/v1/config", key=key)
    assert listed.body == {"items": [shown.body], "next": None}
    assert FIRST not in made.text + shown.text + listed.text


async def test_misplaced_fields_get_an_error_that_names_their_place(api_here):
    key = await api_here.key()
    bare = await api_here.call(
        "PUT", HERE, {"url": "https://shop.example/hooks", "secret": FIRST}, key=key
    )
    assert bare.status == 422
    assert set(bare.body["errors"]) == {"url", "secret", "fields"}
    assert bare.body["errors"]["url"] == 'put it inside "fields"'
    assert 'put the other values inside "fields"' in bare.body["errors"]["fields"]
    beside = await api_here.call("PUT", HERE, {**_fields(), "disabled": True}, key=key)
    assert beside.body["errors"] == {"disabled": 'put it inside "fields"'}
    empty = await api_here.call("PUT", HERE, {}, key=key)
    assert empty.body["errors"] == {"fields": "missing"}
    many = await api_here.call(
        "PUT", HERE, {f"strange-{number}": 1 for number in range(1_000)}, key=key
    )
    assert len(many.body["errors"]) == 51


async def test_a_secret_left_out_stays_and_everything_else_is_replaced(api):
    key = await api.key()
    await api.call("PUT", HERE, _fields(disabled=True), key=key)
    again = await api.call("PUT", HERE, _fields(None), key=key)
    assert (again.status, again.body["secrets"]) == (200, {"secret": 1})
    entity = await api.engine.admin.get_config("webhook.endpoint", "shop")
    assert entity.body.disabled is False
    assert await api.engine.pipeline.config_writer.open("default", entity, "secret") == [FIRST]
    rotated = await api.call("PUT", HERE, _fields(SECOND), key=key)
    assert rotated.body["secrets"] == {"secret": 2}


async def test_a_change_needs_the_version_that_was_read(api):
    key = await api.key()
    first = await api.call("PUT", HERE, _fields(), key=key, headers={"If-None-Match": "*"})
    assert first.status == 200
    leased = await api.call("PUT", HERE, _fields(SECOND), key=key, headers={"If-None-Match": "*"})
    assert (leased.status, leased.body["code"], leased.headers["ETag"]) == (
        412,
        "version_conflict",
        first.headers["ETag"],
    )
    etag = first.headers["ETag"]
    second = await api.call(
        "PUT", HERE, _fields(None, disabled=True), key=key, headers={"If-Match": f'"0", {etag}'}
    )
    assert second.status == 200
    for outdated in (etag, f"W/{second.headers['ETag']}", '"x"'):
        lost = await api.call("PUT", HERE, _fields(SECOND), key=key, headers={"If-Match": outdated})
        assert (lost.status, lost.headers["ETag"]) == (412, second.headers["ETag"])
        assert (
            await api.call("DELETE", HERE, key=key, headers={"If-Match": outdated})
        ).status == 412
    assert (await api.call("GET", HERE, key=key)).body == second.body
    assert (
        await api.call("DELETE", HERE, key=key, headers={"If-Match": second.headers["ETag"]})
    ).status == 204
    assert (await api.call("GET", HERE, key=key)).status == 404
    assert (await api.call("DELETE", HERE, key=key)).status == 404
    assert (await api.call("DELETE", HERE, key=key, headers={"If-Match": "*"})).status == 412
    assert (
        await api.call("PUT", HERE, _fields(), key=key, headers={"If-Match": "*"})
    ).status == 412


async def test_only_one_of_many_writers_of_the_same_version_changes_it(api):
    key = await api.key()
    etag = (await api.call("PUT", HERE, _fields(), key=key)).headers["ETag"]
    changes = [
        api.call(
            "PUT", HERE, _fields(None, disabled_reason=str(n)), key=key, headers={"If-Match": etag}
        )
        for n in range(6)
    ]
    assert sorted(reply.status for reply in await asyncio.gather(*changes)) == [
        200,
        412,
        412,
        412,
        412,
        412,
    ]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"If-Match": "7"}, "bad_header"),
        ({"If-Match": ""}, "bad_header"),
        ({"If-None-Match": '"7"'}, "bad_header"),
        ({"If-None-Match": "*", "If-Match": "*"}, "bad_header"),
    ],
)
async def test_a_condition_that_cannot_be_read_is_refused(api_here, headers, code):
    answer = await api_here.call("PUT", HERE, _fields(), key=await api_here.key(), headers=headers)
    assert (answer.status, answer.body["code"]) == (400, code)
    assert await api_here.engine.admin.list_config() == []


async def test_an_entity_expected_not_to_exist_cannot_be_deleted(api_here):
    answer = await api_here.call(
        "DELETE", HERE, key=await api_here.key(), headers={"If-None-Match": "*"}
    )
    assert (answer.status, answer.body["code"]) == (400, "bad_header")


@pytest.mark.parametrize(
    ("path", "body", "status", "errors"),
    [
        (HERE, {"fields": {"url": "nowhere", "colour": "red"}}, 422, {"url", "colour", "secret"}),
        (HERE, {"fields": {"url": "https://a.example", "secret": ""}}, 422, {"secret"}),
        (HERE, {"fields": 7}, 422, {"fields"}),
        (HERE, {"url": "https://a.example"}, 422, {"fields", "url"}),
        (f"/v1/config/webhook.endpoint/{'x' * 101}", _fields(), 422, {"code"}),
        ("/v1/config/webhook.endpoint/a%0Ab", _fields(), 422, {"code"}),
        ("/v1/config/template/hello", {"fields": {"text": "{{ x"}}, 422, {"text"}),
        ("/v1/config/nothing.known/shop", _fields(), 404, None),
    ],
)
async def test_every_error_is_reported_and_nothing_is_stored(api_here, path, body, status, errors):
    answer = await api_here.call("PUT", path, body, key=await api_here.key())
    assert answer.status == status
    assert set(answer.body.get("errors", {})) == (errors or set())
    assert FIRST not in answer.text
    assert await api_here.engine.admin.list_config() == []


async def test_a_tenant_cannot_have_a_variable_of_the_server_stored_as_its_secret(
    api_here, monkeypatch
):
    monkeypatch.setenv("OF_THE_SERVER", "xoxb-server")
    key = await api_here.key()
    fields = {"fields": {"token": "env:OF_THE_SERVER"}}
    put = await api_here.call("PUT", "/v1/config/slack.workspace/default", fields, key=key)
    assert (put.status, set(put.body["errors"])) == (422, {"token"})
    assert "give the secret itself" in put.body["errors"]["token"]
    assert await api_here.engine.admin.list_config() == []


async def test_a_page_of_config_begins_after_the_one_before(api):
    key = await api.key()
    for code in ("b", "a/x", "ü", "c"):
        await api.engine.admin.put_config("webhook.endpoint", code, _fields()["fields"])
    await api.engine.admin.put_config("template", "hello", {"text": "hi"})
    seen, cursor = [], ""
    while True:
        page = (await api.call("GET", f"/v1/config?limit=2{cursor}", key=key)).body
        seen += [f"{one['kind']}/{one['code']}" for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == [
        "template/hello",
        "webhook.endpoint/a/x",
        "webhook.endpoint/b",
        "webhook.endpoint/c",
        "webhook.endpoint/ü",
    ]
    one = await api.call("GET", "/v1/config?kind=template", key=key)
    assert [entity["code"] for entity in one.body["items"]] == ["hello"]


@pytest.mark.parametrize("cursor", ["zzz", "e30", "W10", "%C3%BC", "a" * 5_000, ""])
async def test_a_cursor_that_was_not_given_out_is_refused(api_here, cursor):
    answer = await api_here.call("GET", f"/v1/config?cursor={cursor}", key=await api_here.key())
    assert (answer.status, answer.body["code"]) == (400, "bad_cursor")


async def test_another_tenant_neither_sees_nor_changes_it(api):
    mine, theirs = await api.key(), await api.key(tenant="acme")
    made = await api.call("PUT", HERE, _fields(), key=mine)
    assert (await api.call("GET", HERE, key=theirs)).status == 404
    assert (await api.call("DELETE", HERE, key=theirs)).status == 404
    assert (await api.call("GET", "/v1/config", key=theirs)).body["items"] == []
    other = await api.call(
        "PUT", HERE, _fields(SECOND, disabled=True), key=theirs, headers={"If-None-Match": "*"}
    )
    assert other.status == 200
    assert (await api.call("GET", HERE, key=mine)).body == made.body


async def test_changing_config_takes_the_scope_admin(api_here):
    key = await api_here.key("read", "submit", "execute", "operate")
    assert (await api_here.call("PUT", HERE, _fields(), key=key)).status == 403
    assert (await api_here.call("DELETE", HERE, key=key)).status == 403
    assert (await api_here.call("GET", HERE, key=await api_here.key("submit"))).status == 403


async def test_an_unreadable_entity_is_reported_and_can_be_put_again(api_here, monkeypatch):
    key = await api_here.key()
    put = EntityPut("webhook.endpoint", "shop", Raw(b'{"url":7}'))
    await api_here.engine.pipeline.config_writer.note("default", put, None)
    answer = await api_here.call("GET", HERE, key=key)
    assert (answer.status, answer.body["code"]) == (409, "unreadable")
    assert (
        await api_here.call("PUT", HERE, _fields(), key=key, headers={"If-None-Match": "*"})
    ).status == 412
    assert (
        await api_here.call("PUT", HERE, _fields(), key=key, headers={"If-Match": "*"})
    ).status == 200


async def test_the_kinds_are_listed_with_their_schemas_and_secrets(api_here):
    answer = await api_here.call("GET", "/v1/config-kinds", key=await api_here.key("read"))
    kinds = {one["kind"]: one for one in answer.body["items"]}
    assert set(kinds) >= {"webhook.endpoint", "slack.workspace", "template"}
    endpoint = kinds["webhook.endpoint"]
    assert (endpoint["secrets"], endpoint["usedBy"]) == (
        ["secret", "whole_url"],
        ["notification.webhook"],
    )
    fields = endpoint["schema"]["$defs"]["Endpoint"]["properties"]
    assert fields["secret"]["writeOnly"] is True
    assert "writeOnly" not in fields["url"]


async def test_a_test_message_reaches_the_endpoint_signed_and_marked(api):
    admin, key = await api.key(), await api.key("submit", "read")
    await api.call("PUT", HERE, _fields(), key=admin)
    made = await api.call("POST", "/v1/endpoints/shop/test?wait=20s", key=key)
    assert (made.status, made.body["flow"]) == (202, "notification.webhook")
    shown = await api.call("GET", made.headers["Location"] + "?wait=20s", key=key)
    assert (shown.body["status"], shown.body["correlationId"]) == (
        "sent",
        "test:webhook.endpoint/shop",
    )
    (effect,) = api.sandbox.webhook.effects
    assert effect.type == "gesta.test"


async def test_a_test_message_needs_an_endpoint_of_the_tenant_and_the_scope(api_here):
    await api_here.call("PUT", HERE, _fields(), key=await api_here.key())
    theirs = await api_here.call(
        "POST", "/v1/endpoints/shop/test", key=await api_here.key(tenant="acme")
    )
    assert (theirs.status, theirs.body["code"]) == (404, "not_found")
    assert (
        await api_here.call(
            "POST", "/v1/endpoints/shop/test", key=await api_here.key("read", "operate")
        )
    ).status == 403
    assert (
        await api_here.call("POST", "/v1/endpoints/nothing/test", key=await api_here.key())
    ).status == 404
    assert await api_here.engine.find(tenant="acme") == []


async def test_a_test_message_with_a_key_is_sent_once(api_here):
    key = await api_here.key()
    await api_here.call("PUT", HERE, _fields(), key=key)
    first = await api_here.call(
        "POST", "/v1/endpoints/shop/test", key=key, headers={"Idempotency-Key": "t-1"}
    )
    again = await api_here.call(
        "POST", "/v1/endpoints/shop/test", key=key, headers={"Idempotency-Key": "t-1"}
    )
    assert (first.body["id"], again.body["verdict"], again.status) == (
        again.body["id"],
        "duplicate",
        200,
    )


async def test_a_store_failure_is_reported_without_its_address(api_here, monkeypatch):
    key = await api_here.key()

    async def failing(*_: object) -> object:
        raise StoreError("the disk /secret/path is gone")

    monkeypatch.setattr(api_here.engine.pipeline.config_writer, "append", failing)
    answer = await api_here.call("PUT", HERE, _fields(), key=key)
    assert (answer.status, answer.body["code"], answer.headers["Retry-After"]) == (
        503,
        "store_unavailable",
        "1",
    )
    assert "/secret/path" not in answer.text
