"""/v1/pauses: only this tenant's, never everybody's."""

from __future__ import annotations

import pytest

from gesta.client import Client
from gesta.errors import Refused
from gesta.flows import webhook
from tests.http_api.served import served
from tests.http_api.test_configs import HERE, _fields
from tests.http_api.test_dead_letters import ended


async def test_a_tenant_pauses_itself_and_goes_on(api):
    key, submit = await api.key("operate"), await api.key("submit", "read")
    made = await api.call("POST", "/v1/pauses", {"reason": "moving"}, key=key)
    assert (made.status, made.body["scope"], made.body["tenant"], made.body["reason"]) == (
        200,
        "tenant:default",
        "default",
        "moving",
    )
    assert made.body["by"].startswith("key:")
    held = await api.submit(submit)
    while not (listed := (await api.call("GET", "/v1/pauses", key=key)).body["items"])[0]["held"]:
        pass
    assert [(one["scope"], one["held"]) for one in listed] == [("tenant:default", 1)]
    shown = await api.call("GET", held.headers["Location"], key=submit)
    assert shown.body["heldBy"] == {
        "kind": "pause",
        "tenant": "default",
        "reason": "moving",
    }
    # A caller that waits while it submits gets it, too.
    body = {"flow": "shop.note", "payload": {"text": "hello"}, "key": "again"}
    waited = await api.call("POST", "/v1/requests?wait=1s", body, key=submit)
    assert waited.body["request"]["heldBy"] == {
        "kind": "pause",
        "tenant": "default",
        "reason": "moving",
    }
    path = held.headers["Location"].partition("?")[0]
    refused = await api.call("POST", f"{path}/retry", key=key)
    assert (refused.status, refused.body["code"]) == (409, "already_due")
    assert refused.body["detail"].endswith(
        "it is held: tenant default is paused (moving); to resume: `gesta resume --tenant default`"
    )
    assert (await api.call("DELETE", "/v1/pauses", key=key)).body == {"held": 2}
    done = await api.call("GET", held.headers["Location"] + "?wait=20s", key=submit)
    assert done.body["status"] == "completed"
    assert (await api.call("DELETE", "/v1/pauses", key=key)).status == 404
    assert (await api.call("GET", "/v1/pauses", key=key)).body == {"items": [], "next": None}


async def test_a_redrive_into_a_pause_names_what_holds_the_request(api_here):
    key = await api_here.key()
    dead = await ended(api_here, "refuse")
    await api_here.call("POST", "/v1/pauses", {"flow": "shop.note"}, key=key)
    async with Client(api_here.address, key) as client:
        redriven = await client.redrive(dead)
        assert (redriven.status, str(redriven.held_by)) == (
            "queued",
            "tenant:default flow:shop.note",
        )
        with pytest.raises(Refused, match="to resume: `gesta resume --tenant default --flow shop"):
            await client.retry(dead)
        await client.resume(flow="shop.note")
        assert (await client.wait(dead, 20)).held_by is None


async def test_a_flow_and_a_credential_of_the_tenant_are_paused_by_name(api_here):
    key, admin = await api_here.key("operate"), await api_here.key()
    await api_here.call("PUT", HERE, _fields(), key=admin)
    flow = await api_here.call("POST", "/v1/pauses", {"flow": "shop.note"}, key=key)
    credential = await api_here.call(
        "POST", "/v1/pauses", {"credential": "webhook.endpoint/shop"}, key=key
    )
    assert flow.body["scope"] == "tenant:default flow:shop.note"
    assert credential.body["scope"] == "tenant:default credential:webhook.endpoint/shop"
    again = await api_here.call("POST", "/v1/pauses", {"flow": "shop.note"}, key=key)
    assert again.body == flow.body
    assert len((await api_here.call("GET", "/v1/pauses", key=key)).body["items"]) == 2
    await api_here.call("DELETE", HERE, key=admin)
    assert (
        await api_here.call("DELETE", "/v1/pauses?credential=webhook.endpoint/shop", key=key)
    ).status == 200
    assert (await api_here.call("DELETE", "/v1/pauses?flow=shop.note", key=key)).status == 200
    assert (await api_here.call("GET", "/v1/pauses", key=key)).body == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({"flow": "shop.nothing"}, {"flow"}),
        ({"flow": "*"}, {"flow"}),
        ({"credential": "webhook.endpoint/nothing"}, {"credential"}),
        ({"credential": "nothing"}, {"credential"}),
        ({"flow": "shop.nothing", "credential": "x/y"}, {"flow", "credential"}),
        ({"reason": "x" * 501}, {"reason"}),
        ({"reason": "a\nb"}, {"reason"}),
        ({"tenant": "acme"}, {"tenant"}),
        ({"everything": True}, {"everything"}),
    ],
)
async def test_an_invalid_pause_is_reported(api_here, body, errors):
    answer = await api_here.call("POST", "/v1/pauses", body, key=await api_here.key("operate"))
    assert (answer.status, set(answer.body["errors"])) == (422, errors)
    assert await api_here.engine.admin.paused("default") == []


async def test_a_credential_that_the_program_declares_can_be_paused(tmp_path):
    flows = [webhook.flow("https://shop.example/hooks", "env:NOWHERE_SET")]
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", flows) as api:
        answer = await api.call(
            "POST",
            "/v1/pauses",
            {"credential": "webhook.endpoint/default"},
            key=await api.key("operate"),
        )
        assert (answer.status, answer.body["credential"]) == (200, "webhook.endpoint/default")


async def test_an_invalid_resume_is_reported(api_here):
    key = await api_here.key("operate")
    for query, status in (
        ("flow=X", 422),
        ("credential=x", 422),
        ("flow=shop.note", 404),
        ("tenant=acme", 422),
    ):
        assert (await api_here.call("DELETE", f"/v1/pauses?{query}", key=key)).status == status


async def test_a_pause_for_all_tenants_is_shown_without_who_and_why_and_is_not_a_tenants_to_end(
    api,
):
    key = await api.key("operate")
    await api.engine.admin.pause(flow="shop.note", reason="acme has too many")
    await api.engine.admin.pause_everything("acme again")
    listed = await api.call("GET", "/v1/pauses", key=key)
    assert {one["scope"] for one in listed.body["items"]} == {"everything", "flow:shop.note"}
    assert "acme" not in listed.text
    assert (await api.call("DELETE", "/v1/pauses?flow=shop.note", key=key)).status == 404
    assert (await api.call("DELETE", "/v1/pauses", key=key)).status == 404
    assert len(await api.engine.admin.paused("default")) == 2


async def test_another_tenant_neither_sees_nor_ends_a_pause(api):
    mine, theirs = await api.key("operate"), await api.key("operate", tenant="acme")
    await api.call("POST", "/v1/pauses", {"reason": "ours"}, key=mine)
    assert (await api.call("GET", "/v1/pauses", key=theirs)).body == {"items": [], "next": None}
    assert (await api.call("DELETE", "/v1/pauses", key=theirs)).status == 404
    assert (await api.call("POST", "/v1/pauses", {}, key=theirs)).body["tenant"] == "acme"
    assert [
        one["reason"] for one in (await api.call("GET", "/v1/pauses", key=mine)).body["items"]
    ] == ["ours"]


async def test_pausing_takes_the_scope_operate(api_here):
    key = await api_here.key("read", "submit", "execute")
    for method in ("GET", "POST", "DELETE"):
        assert (
            await api_here.call(method, "/v1/pauses", {} if method == "POST" else None, key=key)
        ).status == 403
