"""The fake of Stripe: keys that expire by its clock, a ledger, webhooks, delayed visibility."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest
import stripe

from gesta.outbound.http import HttpRequest
from gesta.runtime.clock import ManualRuntime
from gesta.sandbox import Sandbox
from gesta.sandbox.receiver import Reply
from gesta.sandbox.server import SandboxServer
from gesta.sandbox.stripe import FakeStripe

URL = "https://api.stripe.com/v1/"
SALE = {"amount": 1_000, "currency": "eur", "payment_method": "pm_1", "confirm": "true"}


class Shop:
    """Calls the fake as a client of Stripe does."""

    def __init__(self) -> None:
        self.fake, self.now_ms = FakeStripe(), ManualRuntime().now_ms()

    def post(self, path: str, key: str = "", /, **fields: Any) -> tuple[int, dict[str, Any]]:
        return self.answered("POST", path, urlencode(fields), key)[:2]

    def get(self, path: str, **fields: Any) -> dict[str, Any]:
        return self.answered("GET", f"{path}?{urlencode(fields)}")[1]

    def answered(
        self, method: str, path: str, body: str = "", key: str = ""
    ) -> tuple[int, dict[str, Any], Reply]:
        headers = {"Authorization": "Bearer sk_test_1", "Stripe-Version": "2026-10-28"}
        if key:
            headers["Idempotency-Key"] = key
        reply = self.fake.receive(
            HttpRequest(method, URL + path, headers, body.encode()), self.now_ms
        )
        return reply.status, msgspec.json.decode(reply.body), reply


@pytest.fixture
def shop():
    return Shop()


def kinds(shop: Shop) -> list[str]:
    return [one.type for one in shop.fake.effects]


def test_a_repeated_key_gets_its_stored_answer_and_has_no_second_effect(shop):
    first = shop.post("payment_intents", "k", **SALE)
    _, again, reply = shop.answered("POST", "payment_intents", urlencode(SALE), "k")
    assert (first, again) == ((200, again), first[1])
    assert reply.headers["idempotent-replayed"] == "true"  # D-15
    assert kinds(shop) == ["sale"]
    assert shop.fake.effects[0].receipts == 2


def test_a_key_with_another_body_or_path_is_an_idempotency_error(shop):
    shop.post("payment_intents", "k", **SALE)
    for path, fields in (("payment_intents", SALE | {"amount": 1_001}), ("payouts", SALE)):
        status, answer = shop.post(path, "k", **fields)
        assert (status, answer["error"]["type"]) == (400, "idempotency_error")  # D-15
    assert kinds(shop) == ["sale"]


@pytest.mark.parametrize(("hours", "effects"), [(23.9, 1), (24.1, 2)])
def test_a_key_is_forgotten_after_24_hours_by_the_clock_of_the_fake(shop, hours, effects):
    shop.post("payment_intents", "k", **SALE)
    shop.fake.advance(hours * 3_600)
    shop.post("payment_intents", "k", **SALE)
    assert len(kinds(shop)) == effects  # S1-4


def test_a_decline_and_a_500_are_stored_under_the_key(shop):
    declined = SALE | {"payment_method": "pm_card_chargeDeclined"}
    first = shop.post("payment_intents", "d", **declined)
    assert first[0] == 402
    assert shop.post("payment_intents", "d", **declined) == first
    shop.fake.next(error="stored_500")
    assert shop.post("payment_intents", "e", **SALE)[0] == 500
    assert shop.post("payment_intents", "e", **SALE)[0] == 500  # D-15
    assert kinds(shop) == []
    shop.fake.next(error="lost_500")
    assert shop.post("payment_intents", "f", **SALE)[0] == 500
    assert kinds(shop) == ["sale"]


@pytest.mark.parametrize("refusal", [{"status": 429}, {"status": 401}, {"status": 409}])
def test_a_refusal_before_execution_leaves_the_key_free(shop, refusal):
    shop.fake.next(**refusal)
    assert shop.post("payment_intents", "k", **SALE)[0] == refusal["status"]
    assert shop.post("payment_intents", "k", **SALE)[0] == 200


def test_bad_parameters_leave_the_key_free(shop):
    assert shop.post("payment_intents", "k", **(SALE | {"amount": "x"}))[0] == 400
    assert shop.post("payment_intents", "k", **SALE)[0] == 200


def test_a_second_call_with_a_key_whose_first_is_running_gets_409(shop):
    shop.fake.next(slow_seconds=5)
    shop.post("payment_intents", "k", **SALE)
    assert shop.post("payment_intents", "k", **SALE)[0] == 409
    shop.now_ms += 5_000
    assert shop.post("payment_intents", "k", **SALE)[0] == 200
    assert kinds(shop) == ["sale"]


def test_a_dropped_call_has_its_effect(shop):
    shop.fake.next(drop=True)
    assert shop.answered("POST", "payment_intents", urlencode(SALE), "k")[2].drop
    assert kinds(shop) == ["sale"]


def test_an_authorization_is_captured_once_and_within_its_amount(shop):
    _, intent = shop.post("payment_intents", "a", **SALE, capture_method="manual")
    path = f"payment_intents/{intent['id']}/capture"
    assert shop.post(path, "b", amount_to_capture=1_001)[1]["error"]["code"] == "amount_too_large"
    assert shop.post(path, "c", amount_to_capture=400)[1]["amount_received"] == 400
    code = shop.post(path, "d", amount_to_capture=400)[1]["error"]["code"]
    assert code == "payment_intent_unexpected_state"
    assert kinds(shop) == ["authorize", "capture"]


def test_several_captures_take_no_more_than_was_authorized(shop):
    _, intent = shop.post("payment_intents", "a", **SALE, capture_method="manual")
    path = f"payment_intents/{intent['id']}/capture"
    for number in range(3):
        more = {"amount_to_capture": 400, "final_capture": "false"}
        status, _ = shop.post(path, f"c{number}", **more)
        assert status == (200 if number < 2 else 400)
    assert [row["amount"] for row in shop.fake.ledger] == [400, 400]


def test_an_authorization_ends_after_seven_days(shop):
    _, intent = shop.post("payment_intents", "a", **SALE, capture_method="manual")
    shop.fake.advance(7 * 86_400)
    assert shop.get(f"payment_intents/{intent['id']}")["status"] == "canceled"
    assert shop.post(f"payment_intents/{intent['id']}/capture", "b")[0] == 400


def test_refunds_never_exceed_what_was_captured(shop):
    _, intent = shop.post("payment_intents", "a", **SALE)
    refund = {"payment_intent": intent["id"], "amount": 600}
    assert shop.post("refunds", "b", **refund)[0] == 200
    assert shop.post("refunds", "c", **refund)[0] == 400
    assert shop.post("refunds", "d", **(refund | {"amount": 400}))[0] == 200
    code = shop.post("refunds", "e", **refund)[1]["error"]["code"]
    assert code == "charge_already_refunded"
    assert [row["amount"] for row in shop.fake.ledger] == [1_000, -600, -400]


def test_the_ledger_is_paged_newest_first_and_settles(shop):
    for number in range(5):
        shop.post("payment_intents", f"k{number}", **SALE)
    first = shop.get("balance_transactions", limit=3)
    rest = shop.get("balance_transactions", limit=3, starting_after=first["data"][-1]["id"])
    found = [row["id"] for row in first["data"] + rest["data"]]
    assert found == [row["id"] for row in reversed(shop.fake.ledger)]
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert first["data"][0]["status"] == "pending"
    shop.fake.advance(2 * 86_400)
    assert shop.get("balance_transactions")["data"][0]["status"] == "available"


def test_a_payout_takes_no_more_than_the_balance(shop):
    shop.post("payment_intents", "a", **SALE)
    net = shop.fake.books.balance("eur")
    assert shop.post("payouts", "b", amount=net + 1, currency="eur")[0] == 400
    assert shop.post("payouts", "c", amount=net, currency="eur")[0] == 200
    assert shop.fake.books.balance("eur") == 0


def test_a_search_finds_a_payment_only_after_its_delay(shop):
    shop.fake.visible_after_seconds = 60
    _, intent = shop.post("payment_intents", "a", **SALE, **{"metadata[ours]": "r1"})
    query = {"query": 'metadata["ours"]:"r1"'}
    assert shop.get("payment_intents/search", **query)["data"] == []
    shop.fake.advance(60)
    [found] = shop.get("payment_intents/search", **query)["data"]
    assert found["id"] == intent["id"]


def test_webhooks_are_signed_as_the_library_of_stripe_verifies_them(shop):
    shop.post("payment_intents", "a", **SALE)
    kinds = [event["type"] for event in shop.fake.events]
    assert kinds == ["payment_intent.created", "payment_intent.succeeded"]
    for number, kind in enumerate(kinds):
        sent = shop.fake.webhook("https://shop.example", "whsec_1", number)
        header = sent.headers["Stripe-Signature"]
        assert stripe.WebhookSignature.verify_header(sent.body or b"", header, "whsec_1")
        assert msgspec.json.decode(sent.body or b"")["type"] == kind
        with pytest.raises(stripe.SignatureVerificationError):
            stripe.WebhookSignature.verify_header(sent.body or b"", header, "whsec_2")


def test_an_event_shows_its_object_as_it_was(shop):
    _, intent = shop.post("payment_intents", "a", **SALE, capture_method="manual")
    shop.post(f"payment_intents/{intent['id']}/capture", "b")
    statuses = [event["data"]["object"]["status"] for event in shop.fake.events]
    assert statuses == ["requires_confirmation", "requires_capture", "succeeded", "succeeded"]


async def test_another_process_moves_the_clock_and_lets_events_be_posted():
    sandbox = Sandbox()
    async with SandboxServer(sandbox) as server, aiohttp.ClientSession() as session:
        headers = {"Authorization": "Bearer sk_test_1", "Stripe-Version": "2026-10-28"}
        url = f"{server.url}/stripe/v1/payment_intents"
        for _ in range(2):
            key = headers | {"Idempotency-Key": "k"}
            async with session.post(url, data=SALE, headers=key) as answer:
                assert answer.status == 200
            moved = {"advance_seconds": 90_000, "visible_after_seconds": 5}
            async with session.post(f"{server.url}/sandbox/stripe/clock", json=moved) as answer:
                assert answer.status == 204
        assert (len(sandbox.stripe.effects), sandbox.stripe.visible_after_seconds) == (2, 5)
        asked = {"url": f"{server.url}/http", "secret": "whsec_1", "event": 0}
        assert await server.report("stripe", asked) == 200
        [posted] = sandbox.http.effects
        assert posted.data["type"] == "payment_intent.created"
        async with session.post(f"{server.url}/sandbox/stripe/clock", json={"x": 1}) as answer:
            assert answer.status == 400
