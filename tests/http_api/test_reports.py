"""Reports of providers, the suppression list and subscriptions over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from gesta import Engine, Event
from gesta.flows import email, sms, webhook
from gesta.http_api.server import address_of, bind, serving
from gesta.runtime.settings import Settings
from gesta.sandbox.server import SandboxServer
from tests.http_api.served import Reply, Served, note, served

TOPIC = "arn:aws:sns:eu-central-1:123456789012:letters"
SENDER = {
    "kind": "ses",
    "from_address": "shop@example.com",
    "region": "eu-central-1",
    "access_key_id": "AKIA1",
    "secret_access_key": "s",
    "report_topics": [TOPIC],
}
ACCOUNT = {"account_sid": "AC1", "auth_token": "token-1", "sender": "+15550100"}
LIST = f"/v1/suppression/{email.NAME}"


@pytest.fixture
async def posted(store_url) -> AsyncIterator[Served]:
    """On every store, reached by providers."""
    flows = [note, sms.flow(), email.flow(), webhook.flow()]
    async with served(store_url, flows, public_url="https://gesta.example.com") as one:
        await one.engine.admin.put_config("sms.account", "default", ACCOUNT)
        await one.engine.admin.put_config("email.sender", "default", SENDER)
        yield one


async def sent(engine: Engine, message: object) -> str:
    request = await engine.submit(message)  # type: ignore[arg-type]
    await request.outcome(timeout=20)
    return request.id


async def callback(api: Served, status: str = "delivered", **changes: str) -> Reply:
    request = api.sandbox.twilio.report(status)
    headers = dict(request.headers) | changes
    return await api.call("POST", urlsplit(request.url).path, raw=request.body, headers=headers)


async def test_a_status_callback_is_taken_once_and_a_forged_one_never(posted):
    request_id = await sent(posted.engine, sms.Message("+4930123456", "hello"))
    forged = await callback(posted, **{"X-Twilio-Signature": "AAAA"})
    assert (forged.status, forged.body["code"]) == (403, "forged")
    assert (await posted.engine.get(request_id)).state.delivered_at is None
    assert [(await callback(posted)).status for _ in range(2)] == [204, 204]
    shown = await posted.call("GET", f"/v1/requests/{request_id}", key=await posted.key("read"))
    assert (shown.body["status"], shown.body["deliveredAt"] is None, shown.body["bouncedAt"]) == (
        "sent",
        False,
        None,
    )
    assert (
        len([kind for kind, _, _ in await posted.engine.history(request_id) if "Delivered" in kind])
        == 1
    )


async def test_a_bounce_by_sns_is_taken_and_suppresses(posted):
    engine = posted.engine
    ref = await email.store_body(engine, "<p>hello</p>")
    await sent(engine, email.Message("ada@example.com", "hello", ref))
    body = posted.sandbox.ses.report("bounce", TOPIC)
    headers = {"Content-Type": "text/plain; charset=UTF-8"}
    for path, raw in [
        ("/v1/reports/ses/acme", body),
        ("/v1/reports/ses/default", body.replace(b"bounce", b"bounty")),
        ("/v1/reports/ses/default", b"{}"),
        ("/v1/reports/ses/default", b""),
        ("/v1/reports/ses/%20", body),
    ]:
        answer = await posted.call("POST", path, raw=raw, headers=headers)
        assert (answer.status, answer.body["code"], answer.body["detail"]) == (
            403,
            "forged",
            FORGED,
        )
    key = await posted.key("operate")
    assert (await posted.call("GET", LIST, key=key)).body == {"items": [], "next": None}
    assert (
        await posted.call("POST", "/v1/reports/ses/default", raw=body, headers=headers)
    ).status == 204
    (entry,) = (await posted.call("GET", LIST, key=key)).body["items"]
    assert (entry["masked"], entry["reason"]) == ("a***@e***.com", "bounced: permanent_noemail")


FORGED = "the signature is not valid for this address"


async def test_a_report_that_is_too_large_is_not_read(posted):
    answer = await posted.call(
        "POST",
        "/v1/reports/ses/default",
        raw=b" " * 310_000,
        headers={"Content-Type": "text/plain"},
    )
    assert answer.status == 413


async def test_only_permitted_keys_change_the_suppression_list_of_their_own_tenant(posted):
    mine, theirs, reader = (
        await posted.key("operate"),
        await posted.key(tenant="acme"),
        await posted.key("read"),
    )
    body = {"address": "Ada@Example.com", "reason": "asked by phone"}
    assert (await posted.call("PUT", LIST, body, key=reader)).status == 403
    made = await posted.call("PUT", LIST, body, key=mine, headers={"Gesta-Actor": "ben"})
    assert (made.status, made.body["reason"], made.body["masked"]) == (
        200,
        "asked by phone",
        "A***@E***.com",
    )
    again = await posted.call(
        "PUT", LIST, body | {"reason": "again"}, key=mine, headers={"Gesta-Actor": "bob"}
    )
    assert again.body == made.body
    assert (
        await posted.call("POST", f"{LIST}/find", {"address": "ada@example.com"}, key=mine)
    ).body == made.body
    here = f"{LIST}/{made.body['id']}"
    assert (await posted.call("GET", LIST, key=theirs)).body["items"] == []
    assert (
        await posted.call("POST", f"{LIST}/find", {"address": "ada@example.com"}, key=theirs)
    ).status == 404
    assert (await posted.call("DELETE", here, key=theirs)).status == 404
    assert (
        await posted.call("DELETE", here, key=mine, headers={"Gesta-Actor": "ada"})
    ).status == 204
    assert (await posted.call("DELETE", here, key=mine)).status == 404
    # Once each, and by whom: neither who was refused nor who came too late.
    trail = [
        (await posted.call("GET", "/v1/audit", key=one)).body["items"]
        for one in (await posted.key(), theirs)
    ]
    reported = [
        [(one["what"], one["about"], one["by"]) for one in items if "suppressed" in one["what"]]
        for items in trail
    ]
    about = f"notification.email/{made.body['id']}"
    assert reported == [[("unsuppressed", about, "ada"), ("suppressed", about, "ben")], []]
    assert (
        await posted.call("POST", f"{LIST}/find", {"address": "ada@example.com"}, key=mine)
    ).status == 404


async def test_the_suppression_list_is_read_page_by_page(posted):
    key = await posted.key("operate")
    for number in range(3):
        await posted.call("PUT", LIST, {"address": f"person{number}@example.com"}, key=key)
    first = (await posted.call("GET", f"{LIST}?limit=2", key=key)).body
    second = (await posted.call("GET", f"{LIST}?limit=2&cursor={first['next']}", key=key)).body
    assert len({one["id"] for one in first["items"] + second["items"]}) == 3
    assert second["next"] is None
    assert (await posted.call("GET", f"{LIST}?cursor=x", key=key)).status == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (LIST, {"address": "not an address"}),
        (LIST, {"address": "ada@example.com", "reason": ""}),
        (LIST, {"address": ""}),
        ("/v1/suppression/shop.note", {"address": "ada@example.com"}),
        ("/v1/suppression/nobody.knows", {"address": "ada@example.com"}),
    ],
)
async def test_an_address_that_cannot_be_suppressed_is_refused_with_the_reason(posted, path, body):
    answer = await posted.call("PUT", path, body, key=await posted.key("operate"))
    assert answer.status == 422
    assert "ada@" not in answer.text


async def test_subscriptions_are_shown_and_an_abandoned_one_is_forgotten(posted):
    engine = posted.engine
    await engine.admin.put_config(
        webhook.SUBSCRIPTION, "shop", {"endpoint": "shop", "statuses": ["completed"]}
    )
    await engine.admin.put_config(
        webhook.SUBSCRIPTION, "theirs", {"endpoint": "default"}, tenant="acme"
    )
    checkpoints = engine.pipeline.environment.stores.checkpoints
    await checkpoints.begin("subscription/old ledger", 1)
    key, admin, theirs = (
        await posted.key("operate"),
        await posted.key(),
        await posted.key(tenant="acme"),
    )
    shown = (await posted.call("GET", "/v1/subscriptions", key=key)).body
    assert [one for one in shown["items"] if one["kind"] == "webhook"] == [
        {
            "kind": "webhook",
            "code": "shop",
            "flow": "*",
            "statuses": ["completed"],
            "endpoint": "shop",
            "error": "there is no webhook.endpoint shop",
        }
    ]
    handlers = [one["name"] for one in shown["items"] if one["kind"] == "handler"]
    assert {*handlers} >= {"gesta/webhooks", "old ledger"}
    other = (await posted.call("GET", "/v1/subscriptions", key=theirs)).body
    assert [(one["kind"], one["code"]) for one in other["items"]] == [("webhook", "theirs")]
    assert (await posted.call("DELETE", "/v1/subscriptions/old%20ledger", key=theirs)).status == 404
    assert (await posted.call("DELETE", "/v1/subscriptions/old%20ledger", key=key)).status == 403
    ada = {"Gesta-Actor": "ada"}
    assert (
        await posted.call("DELETE", "/v1/subscriptions/old%20ledger", key=admin, headers=ada)
    ).status == 204
    assert (await posted.call("DELETE", "/v1/subscriptions/old%20ledger", key=admin)).status == 404
    trail = (await posted.call("GET", "/v1/audit", key=admin)).body["items"]
    assert [(one["about"], one["by"]) for one in trail if one["what"] == "handler_forgotten"] == [
        ("old ledger", "ada")
    ]


async def test_a_handler_that_received_an_event_is_not_forgotten(tmp_path):
    async def listen(_: Event) -> None: ...

    async with served(f"sqlite:///{tmp_path / 'gesta.db'}") as api:
        await api.engine.stop()
        api.engine.on("shop.note", "completed", name="ledger")(listen)
        await api.engine.start()
        key = await api.key()
        while not [one for one in await api.engine.admin.handlers() if one.is_held]:
            await api.engine.pipeline.environment.stores.events.changed(0.05)
        answer = await api.call("DELETE", "/v1/subscriptions/ledger", key=key)
        assert (answer.status, answer.body["code"]) == (409, "in_use")


async def test_an_endpoint_is_notified_of_a_request_on_every_store(posted):
    engine, key = posted.engine, await posted.key("submit")
    endpoint = {"url": "https://shop.example/events", "secret": "whsec_" + "a" * 44}
    await engine.admin.put_config(webhook.ENDPOINT, "shop", endpoint)
    await engine.admin.put_config(
        webhook.SUBSCRIPTION,
        "shop",
        {"endpoint": "shop", "flow": "shop.*", "statuses": ["completed", "failed"]},
    )
    done = await posted.submit(key, "hello")
    refused = await posted.submit(key, "refuse")
    events = engine.pipeline.environment.stores.events
    while len(posted.sandbox.webhook.effects) < 2:
        await events.changed(0.1)
    reported = {
        (effect.data["status"], effect.data["requestId"])
        for effect in posted.sandbox.webhook.effects
    }
    assert reported == {("completed", done.body["id"]), ("failed", refused.body["id"])}


async def test_the_sandbox_reports_by_sns_to_an_engine_configured_to_trust_it(tmp_path):
    listener = bind("127.0.0.1", 0)
    async with SandboxServer() as sandbox:
        settings = Settings(
            url=f"sqlite:///{tmp_path / 'gesta.db'}",
            public_url=address_of(listener),
            sns_url=sandbox.url,
            allow_private=("127.0.0.0/8",),
        )
        engine = Engine(flows=[email.flow()], settings=settings)
        async with engine, serving(engine.web(), listener):
            await engine.admin.put_config(
                "email.sender", "default", SENDER | {"endpoint_url": f"{sandbox.url}/ses"}
            )
            ref = await email.store_body(engine, "<p>hello</p>")
            request_id = await sent(engine, email.Message("ada@example.com", "hello", ref))
            where = f"{address_of(listener)}/v1/reports/ses/default"
            assert (
                await sandbox.report("ses", {"kind": "complaint", "topic": TOPIC, "url": where})
                == 204
            )
            assert (
                await sandbox.report(
                    "ses", {"kind": "complaint", "topic": TOPIC + "-evil", "url": where}
                )
                == 403
            )
            assert (await engine.get(request_id)).state.complaint == "abuse"
