"""The sandbox's fake of Stripe behaves as two fakes that others wrote: key semantics as
stripe-stateful-mock, ledger and webhooks as localstripe.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from gesta.flows.payment.gateway import Delivery, GatewayAccount, GatewayEvent
from gesta.flows.payment.stripe import StripeGateway
from gesta.runtime.clock import SystemRuntime
from gesta.testing.contracts.gateway import lowered
from tests.interop.stripe.peers import PATIENCE_SECONDS, Peer, localstripe, sandbox, stateful_mock

pytestmark = pytest.mark.slow

SECRET = "whsec_of_a_peer"
CHARGE: dict[str, Any] = {"amount": 1_000, "currency": "usd", "source": "tok_visa"}
CARD: dict[str, Any] = {
    "type": "card",
    "card[number]": "4242424242424242",
    "card[exp_month]": 12,
    "card[exp_year]": 2_040,
    "card[cvc]": "123",
}

#: Fields that localstripe has and no reader of ours needs.
_EXTRA = {"description", "exchange_rate", "fee_details", "livemode"}


class Observer:
    """What a client of Stripe sees of each call, without ids and texts."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.seen: list[tuple[str, Any]] = []

    async def see(self, name: str, path: str, key: str, **fields: Any) -> dict[str, Any]:
        status, body, replayed = await self.peer.call("POST", path, key, **fields)
        error = body.get("error", {})
        facts = [error.get(field) for field in ("type", "decline_code")]
        amounts = [body.get(field) for field in ("amount", "amount_refunded", "captured")]
        self.seen.append((name, (status, replayed, *facts, *amounts)))
        return body


async def observed_keys(peer: Peer) -> list[tuple[str, Any]]:
    observer = Observer(peer)
    see = observer.see
    held = await see("authorize", "charges", "a", **CHARGE, capture="false")
    again = await see("the same key", "charges", "a", **CHARGE, capture="false")
    assert again["id"] == held["id"]
    await see("another body", "charges", "a", **(CHARGE | {"amount": 2_000}), capture="false")
    of = f"charges/{held['id']}/capture"
    await see("capture a part", of, "c", amount=600)
    await see("the same capture", of, "c", amount=600)
    await see("capture again", of, "d", amount=600)
    await see("refund too much", "refunds", "e", charge=held["id"], amount=700)
    await see("refund", "refunds", "f", charge=held["id"], amount=600)
    await see("the same refund", "refunds", "f", charge=held["id"], amount=600)
    await see("refund again", "refunds", "g", charge=held["id"], amount=1)
    for token in ("tok_chargeDeclined", "tok_chargeDeclinedInsufficientFunds", "tok_500"):
        # A failure after execution began is stored with its key.
        await see(token, "charges", token, **(CHARGE | {"source": token}))
        await see(f"{token} again", "charges", token, **(CHARGE | {"source": token}))
    # A rate limit comes before the keys.
    await see("tok_429", "charges", "h", **(CHARGE | {"source": "tok_429"}))
    await see("tok_429 again", "charges", "h", **(CHARGE | {"source": "tok_429"}))
    await see("no such charge", "charges/ch_none/capture", "i")
    return observer.seen


async def test_keys_mean_what_they_mean_to_stripe_stateful_mock():
    async with sandbox() as (ours, _), stateful_mock() as theirs:
        assert await observed_keys(ours) == await observed_keys(theirs)


class Endpoint:
    """Receives webhooks on a port of this machine and verifies them as gesta does."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[GatewayEvent] = asyncio.Queue()

    async def receive(self, request: web.Request) -> web.Response:
        delivery = Delivery(lowered(request.headers), await request.read())
        account = GatewayAccount("stripe", "acct_1", "")
        now_ms = SystemRuntime().now_ms()
        self.events.put_nowait(StripeGateway().verify(delivery, account, [SECRET], now_ms))
        return web.Response()

    async def next(self, kind: str) -> GatewayEvent:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (event := await self.events.get()).kind != kind:
                pass
        return event


@pytest.fixture
async def endpoint():
    endpoint, app = Endpoint(), web.Application()
    app.router.add_post("/", endpoint.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield endpoint, f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def moved(peer: Peer, method: str) -> tuple[str, dict[str, Any]]:
    """Authorize 1,000, capture 600 and refund 100; returns the payment's id and the ledger."""
    reference = "default:payment.card:01939d3c-0000-7000-8000-000000000001:authorization:1"
    status, intent, _ = await peer.call(
        "POST",
        "payment_intents",
        "a",
        amount=1_000,
        currency="eur",
        payment_method=method,
        capture_method="manual",
        confirm="true",
        **{"metadata[gesta_reference]": reference},
    )
    assert (status, intent["status"]) == (200, "requires_capture")
    name = intent["id"]
    status, captured, _ = await peer.call(
        "POST", f"payment_intents/{name}/capture", "b", amount_to_capture=600
    )
    assert (status, captured["status"]) == (200, "succeeded")
    status, refund, _ = await peer.call("POST", "refunds", "c", payment_intent=name, amount=100)
    assert (status, refund["status"]) == (200, "succeeded")
    status, twice, _ = await peer.call("POST", f"payment_intents/{name}/capture", "d")
    assert (status, twice["error"]["type"]) == (400, "invalid_request_error")
    return name, (await peer.call("GET", "balance_transactions"))[1]


async def test_the_ledger_and_webhooks_are_those_of_localstripe(endpoint):
    receiver, url = endpoint
    async with sandbox() as (ours, server), localstripe() as theirs:
        hook = {"url": url, "secret": SECRET}
        async with theirs.session.post(f"{theirs.url}/_config/webhooks/one", json=hook) as answer:
            assert answer.status == 200
        _, method, _ = await theirs.call("POST", "payment_methods", **CARD)
        their_name, their_ledger = await moved(theirs, method["id"])
        their_event = await receiver.next("payment_intent.succeeded")
        our_name, our_ledger = await moved(ours, "pm_card_visa")
        kinds = [one["type"] for one in server.sandbox.stripe.events]
        number = kinds.index("payment_intent.succeeded")
        assert await server.report("stripe", hook | {"event": number}) == 200
        our_event = await receiver.next("payment_intent.succeeded")
    assert (our_event.payment_id, their_event.payment_id) == (our_name, their_name)
    assert our_event.reference == their_event.reference is not None
    # localstripe posts the whole charge and refunds the rest; in sum it is the same.
    assert total(our_ledger) == total(their_ledger) == 500
    our_row, their_row = refund_in(our_ledger), refund_in(their_ledger)
    shared = ("object", "amount", "currency", "reporting_category", "type")
    assert [our_row[name] for name in shared] == [their_row[name] for name in shared]
    # No field that a reader of the other ledger may rely on is missing from ours.
    assert set(their_row) - set(our_row) <= _EXTRA


def refund_in(ledger: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in ledger["data"] if row["amount"] == -100)


def total(ledger: dict[str, Any]) -> int:
    assert ledger["object"] == "list"
    return sum(row["amount"] for row in ledger["data"])
