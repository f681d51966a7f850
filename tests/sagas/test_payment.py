"""The saga of the page: reserve, capture, e-mail; on the fakes of Stripe and of an SMTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gesta import Abort, Done, Engine, Money, Payload, Rejected, Request, Saga, saga
from gesta.domain.transaction.funds import funds_of
from gesta.flows import card
from gesta.testing.plugin import Harness
from tests.docs.test_docs import ROOT, program

SENDER = {
    "kind": "smtp",
    "host": "smtp.example.com",
    "from_address": "shop@example.com",
}
ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}


class Purchase(Payload, frozen=True):
    total: Money


@pytest.fixture
async def shop(gesta: Harness) -> AsyncIterator[tuple[Engine, Any]]:
    defined = program(ROOT / "docs" / "sagas.md", '@saga("saga.purchase")')
    engine = defined["engine"]
    async with engine:
        await engine.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        await engine.admin.put_config("email.sender", "default", SENDER)
        yield engine, defined["Purchase"]("7", Money("49.90", "EUR"), "pm_1", "ana@example.com")


async def payment_of(engine: Engine, request: Request) -> Request:
    steps = (await request.view()).state.facts["steps"]
    return await engine.request(steps["reserve"]["id"], flow="payment.card")


def kinds(gesta: Harness) -> list[str]:
    return [one.id.split(":")[2] for one in gesta.sandbox.stripe.effects]


async def test_an_order_is_reserved_captured_and_confirmed(gesta, shop):
    engine, order = shop
    request = await engine.submit(order, key="order-7")
    assert await request.outcome(timeout=600) == Done()
    assert kinds(gesta) == ["authorization", "capture"]
    assert len(gesta.sandbox.smtp.effects) == 1


async def test_a_failed_e_mail_takes_the_payment_back(gesta, shop):
    engine, order = shop
    gesta.sandbox.smtp.next(status=550)
    request = await engine.submit(order, key="order-7")
    outcome = await request.outcome(timeout=600)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "compensated"
    payment = await payment_of(engine, request)
    # R1-39, R1-53: the compensation refunds what was captured, and the gateway confirmed it.
    assert (await payment.status(), kinds(gesta)) == (
        "reversed",
        ["authorization", "capture", "reversal"],
    )
    assert funds_of((await payment.view()).state).refunded == 4990


async def test_a_declined_capture_voids_the_authorization(gesta, shop):
    engine, order = shop
    gesta.sandbox.stripe.on(lambda call: ":capture:" in str(call.key), status=402)
    request = await engine.submit(order, key="order-7")
    outcome = await request.outcome(timeout=600)
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.detail.split()[-2:]) == ("compensated", ["step", "capture"])
    payment = await payment_of(engine, request)
    assert await payment.status() == "cancelled"
    assert gesta.sandbox.smtp.effects == []


async def test_nothing_is_reversed_while_the_capture_is_unknown(gesta, shop):
    """Its answer is lost, and the gateway cannot be asked for a while; the saga is cancelled."""
    engine, order = shop
    stripe = gesta.sandbox.stripe
    # From the capture on every answer is lost, also those to look-ups.
    stripe.on(lambda call: ":capture:" in str(call.key) or "capture" in kinds(gesta), drop=True)
    request = await engine.submit(order, key="order-7")
    await gesta.settle(days=0.01)
    assert kinds(gesta) == ["authorization", "capture"]
    await request.cancel()
    await gesta.settle(days=0.2)
    payment = await payment_of(engine, request)
    # R1-39, S1-24: no reversal of what is unknown.
    assert (await payment.status(), await request.status()) == ("unknown", "waiting")
    assert "reversal" not in kinds(gesta)
    stripe.heal()
    await gesta.settle()
    assert (await payment.status(), await request.status()) == ("reversed", "compensated")
    assert sorted(kinds(gesta)) == ["authorization", "capture", "reversal"]


async def test_a_void_of_what_was_captured_undoes_nothing_and_fails_the_saga(gesta):
    """Before, the saga said `compensated`, and the customer had paid."""

    @saga("saga.void")
    async def voiding(order: Purchase, saga: Saga) -> None:
        payment = card.Authorize(order.total, source="pm_1", gateway="stripe-eu")
        held = await saga.step("reserve", payment, undo=lambda held: held.void())
        await saga.step("capture", held.capture())
        raise Abort("no_stock")

    async with Engine("memory:", flows=[voiding, card.flow()]) as engine:
        await engine.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        request = await engine.submit(Purchase(Money("49.90", "EUR")), key="order-7")
        outcome = await request.outcome(timeout=600)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "compensation_failed"  # R1-39
        assert await (await payment_of(engine, request)).status() == "captured"
