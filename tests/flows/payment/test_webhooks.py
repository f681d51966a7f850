"""Webhooks of gateways: verified on raw bytes, deduplicated, and never trusted for their order."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import Done, Engine, Money, Rejected, Request
from gesta.domain.transaction.funds import funds_of
from gesta.flows import card
from gesta.flows.payment import webhooks
from gesta.outbound.http import HttpRequest
from gesta.sandbox.stripe import books
from gesta.testing.plugin import Harness
from tests.http_api.served import Reply, Served, served

SECRET = "whsec_of_the_endpoint"
PATH = "/inbound/gateway/default/stripe-eu"
ACCOUNT = {
    "type": "stripe",
    "account": "acct_1",
    "api_key": "sk_test_1",
    "webhook_secret": SECRET,
}


@pytest.fixture
async def shop(gesta: Harness):
    running = Engine("memory:", flows=[card.flow(), webhooks.flow()])
    await running.start()
    await running.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
    yield running
    await running.stop()


def sale() -> card.Payment:
    return card.Sale(Money("49.90", "EUR"), source="pm_1", gateway="stripe-eu")


def authorize() -> card.Payment:
    return card.Authorize(Money("49.90", "EUR"), source="pm_1", gateway="stripe-eu")


def numbers(gesta: Harness, *kinds: str) -> list[int]:
    events = gesta.sandbox.stripe.events
    return [number for number, one in enumerate(events) if not kinds or one["type"] in kinds]


async def deliver(gesta: Harness, shop: Engine, number: int = -1) -> str:
    """Post one event of the fake, and return what became of it."""
    gesta.sandbox.stripe.now_ms = gesta.runtime.now_ms()
    sent = gesta.sandbox.stripe.webhook("https://shop.example", SECRET, number)
    headers = {name.lower(): value for name, value in sent.headers.items()}
    pipeline: Any = shop._pipeline
    found = await pipeline.inbox.take(
        "gateway", "default", ("stripe-eu",), headers.get, sent.body or b""
    )
    return str(found[0].verdict)


async def events(shop: Engine, request: Request) -> list[str]:
    return [name.split(".")[2] for name, _, _ in await shop.history(request.id)]


async def lost_sale(gesta: Harness, shop: Engine) -> Request:
    """A sale whose answer is lost, at a gateway whose search finds nothing yet."""
    gesta.sandbox.stripe.visible_after_seconds = 10**9
    gesta.sandbox.stripe.next(drop=True)
    tx = await shop.submit(sale())
    await gesta.pass_time(1)
    assert await tx.status() == "unknown"
    return tx


async def test_the_id_of_a_lost_call_is_learned_from_its_webhook(gesta, shop):
    tx = await lost_sale(gesta, shop)
    assert (await tx.view()).state.provider_id == ""
    assert await deliver(gesta, shop) == "accepted"
    await gesta.pass_time(1)
    assert await tx.status() == "completed"
    [intent] = gesta.sandbox.stripe.books.of_kind("payment_intent")
    assert (await tx.view()).state.provider_id == intent["id"]  # R1-36
    assert len(gesta.sandbox.stripe.effects) == 1


async def test_a_webhook_that_comes_twice_is_recorded_once(gesta, shop):
    tx = await lost_sale(gesta, shop)
    verdicts = [await deliver(gesta, shop) for _ in range(3)]
    await gesta.pass_time(1)
    verdicts.append(await deliver(gesta, shop))
    assert verdicts == ["accepted", "duplicate", "duplicate", "duplicate"]
    assert (await events(shop, tx)).count("GatewayNotified") == 1


async def test_webhooks_in_reverse_order_change_nothing_that_is_true(gesta, shop):
    tx = await shop.submit(authorize())
    assert isinstance(await tx.outcome(timeout=20), Done)
    await tx.capture(Money("20.00", "EUR"), key="ship")
    assert isinstance(await tx.outcome(timeout=20), Done)
    await tx.refund(Money("5.00", "EUR"), key="back")
    assert isinstance(await tx.outcome(timeout=20), Done)
    before = (await tx.view()).state.facts
    for number in reversed(numbers(gesta)):
        assert await deliver(gesta, shop, number) == "accepted"
    await gesta.settle(days=0.01)
    assert await tx.status() == "captured"
    assert (await tx.view()).state.facts == before
    assert len(gesta.sandbox.stripe.effects) == 3


async def test_an_old_success_does_not_hide_that_a_capture_is_unknown(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    # The capture never arrives; the gateway is out of reach for a while.
    gesta.sandbox.stripe.on("capture", status=500, times=1)
    await tx.capture(key="ship")
    await gesta.pass_time(1)
    assert await tx.status() == "unknown"
    gesta.sandbox.stripe.on("get", status=500)
    for number in numbers(gesta):
        await deliver(gesta, shop, number)
    await gesta.pass_time(3)
    # The events tell of the authorization, which says nothing about the capture.
    assert await tx.status() == "unknown"
    gesta.sandbox.stripe.heal()
    await gesta.settle(days=1)
    assert await tx.status() == "captured"
    assert [one.type for one in gesta.sandbox.stripe.effects] == ["authorize", "capture"]


async def test_a_late_failure_after_a_success_changes_nothing(gesta, shop):
    declined = card.Sale(Money("1.00", "EUR"), "pm_card_chargeDeclined", gateway="stripe-eu")
    failed = await shop.submit(declined)
    await failed.outcome(timeout=20)
    assert await failed.status() == "failed"
    tx = await shop.submit(sale())
    await tx.outcome(timeout=20)
    # As if the failure were about the sale that succeeded.
    [number] = numbers(gesta, "payment_intent.payment_failed")
    about = gesta.sandbox.stripe.events[number]["data"]["object"]
    about["metadata"]["gesta_reference"] = f"default:payment.card:{tx.id}:sale:1"
    assert await deliver(gesta, shop, number) == "accepted"
    await gesta.settle(days=0.01)
    assert await tx.status() == "completed"


async def test_a_webhook_during_the_call_neither_ends_nor_doubles_it(gesta, shop):
    gesta.sandbox.stripe.next(slow_seconds=10)
    tx = await shop.submit(sale())
    await gesta.pass_time(1)
    assert await deliver(gesta, shop) == "accepted"
    await gesta.settle(days=0.01)
    assert await tx.status() == "completed"
    assert len(gesta.sandbox.stripe.effects) == 1


async def test_a_payment_of_another_program_is_ignored_and_not_kept(gesta, shop):
    tx = await shop.submit(sale())
    await tx.outcome(timeout=20)
    gesta.sandbox.stripe.events[-1]["data"]["object"]["metadata"] = {"gesta_reference": "order 7"}
    assert await deliver(gesta, shop) == "ignored"
    assert await shop.find(flow="inbound.gateway") == []


async def test_a_transaction_of_another_tenant_is_not_touched(gesta, shop):
    tx = await shop.submit(sale())
    await tx.outcome(timeout=20)
    about = gesta.sandbox.stripe.events[-1]["data"]["object"]
    for reference in (
        f"acme:payment.card:{tx.id}:sale:1",
        "default:payment.card:01939d3c-0000-7000-8000-000000000009:sale:1",
    ):
        about["metadata"]["gesta_reference"] = reference
        gesta.sandbox.stripe.events[-1]["id"] += "x"
        assert await deliver(gesta, shop) == "ignored"
    assert "GatewayNotified" not in await events(shop, tx)
    found = await shop.find(flow="inbound.gateway")
    assert {one.state.reason for one in found} == {"another_tenant", "unknown_request"}


# Over HTTP


async def post(api: Served, hook: HttpRequest, path: str = PATH, **changes: str) -> Reply:
    headers = dict(hook.headers) | {name.replace("_", "-"): one for name, one in changes.items()}
    return await api.call("POST", path, raw=hook.body, headers=headers)


async def test_only_genuine_webhooks_are_accepted_over_http(tmp_path):
    url = f"sqlite:///{tmp_path / 'gesta.db'}"
    async with served(url, [card.flow(), webhooks.flow()]) as api:
        await api.engine.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        other = ACCOUNT | {"webhook_secret": "whsec_of_another"}
        await api.engine.admin.put_config("payment.gateway", "stripe-us", other)
        tx = await api.engine.submit(sale())
        assert isinstance(await tx.outcome(timeout=20), Done)
        fake = api.sandbox.stripe
        hook = fake.webhook("https://shop.example", SECRET)
        old = fake.webhook("https://shop.example", SECRET, late_seconds=3_600)
        version = (await tx.view()).state.version
        forged = [
            await post(api, hook, Stripe_Signature="t=1,v1=00"),
            await post(api, HttpRequest("POST", "", hook.headers, b'{"id": "evt_1"}')),
            await post(api, old),
            await post(api, hook, "/inbound/gateway/default/stripe-us"),
            await post(api, hook, "/inbound/gateway/default/unknown"),
            await post(api, hook, "/inbound/gateway/acme/stripe-eu"),
        ]
        assert {reply.status for reply in forged} == {403}
        assert len({reply.body["code"] for reply in forged}) == 1
        assert (await tx.view()).state.version == version
        answers = [await post(api, hook) for _ in range(2)]
        assert [reply.status for reply in answers] == [200, 200]
        verdicts = [reply.body["events"][0]["verdict"] for reply in answers]
        assert verdicts == ["accepted", "duplicate"]
        assert (await tx.view()).state.version == version + 1


async def test_a_redriven_payment_is_captured_as_itself(gesta, shop, monkeypatch):
    """The webhook of the declined payment names an id. The redriven payment has another one."""
    tx = await shop.submit(
        card.Authorize(Money("49.90", "EUR"), source="pm_card_chargeDeclined", gateway="stripe-eu")
    )
    assert isinstance(await tx.outcome(timeout=20), Rejected)
    assert await deliver(gesta, shop) == "accepted"
    # The bank changes its mind, and the answer to the second call is lost.
    monkeypatch.delitem(books.DECLINES, "chargeDeclined")
    gesta.sandbox.stripe.next(drop=True)
    await tx.redrive()
    # A late webhook of the first payment.
    assert await deliver(gesta, shop, 0) == "accepted"
    await gesta.settle(days=1 / 86_400 * 20)
    assert await tx.status() == "authorized"
    await tx.capture(key="ship")
    assert isinstance(await tx.outcome(timeout=20), Done)
    declined, paid = gesta.sandbox.stripe.books.of_kind("payment_intent")
    assert (declined["amount_received"], paid["amount_received"]) == (0, 4990)
    assert funds_of((await tx.view()).state).payment_id == paid["id"]
