"""A person is erased while their payment is unknown or reserved: no money is lost, and nothing is
charged for a person who is gone.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from gesta import Attempt, Engine, Flow, Money, Outcome, Payload, Personal, Rejected, Request
from gesta.domain.outcome import Unknown
from gesta.domain.transaction.funds import funds_of
from gesta.flows.payment.execution import Execution
from gesta.flows.payment.transaction_flow import RULES, Code, transaction_flow
from gesta.testing.plugin import Harness
from tests.flows.payment.test_card import ACCOUNT

ANA = "ana@example.com"


class Order(Payload, frozen=True):
    amount: Money
    customer: Personal[str]
    source: Annotated[str, msgspec.Meta(min_length=1)] = "pm_1"
    gateway: Code = "stripe-eu"
    operation: str = "sale"

    @property
    def subject(self) -> str:
        return self.customer


async def no_errors(*_: object) -> dict[str, str]:
    return {}


def orders() -> Flow:
    """As payment.card, with a payload that names the customer."""
    execution = Execution(None, lambda order: {"source": order.source}, timeout_seconds=30)
    first = {"sale": "sale", "authorize": "authorization"}
    return transaction_flow(
        "payment.order",
        Order,
        execution,
        first=lambda order: first[order.operation],
        check=no_errors,
        example={},
    )


@pytest.fixture
async def shop(gesta: Harness):
    async with Engine("memory:", flows=[orders()]) as running:
        await running.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        yield running


async def lost(gesta: Harness, shop: Engine, **fault: Any) -> Request:
    """A sale of an erased person, unknown; the next step was to send it again."""
    stripe = gesta.sandbox.stripe
    stripe.visible_after_seconds = 10**9
    stripe.next(**fault)
    tx = await shop.submit(Order(Money("49.90", "EUR"), ANA))
    await gesta.pass_time(10)
    state = (await tx.view()).state
    assert (state.status, state.policy) == ("unknown", "resend")
    assert await shop.erase(ANA) == 1
    stripe.visible_after_seconds = 0
    return tx


async def test_the_gateway_is_still_asked_about_the_lost_charge_of_an_erased_person(gesta, shop):
    """The journaled call is all that the look-up needs; it was left to a person at once."""
    tx = await lost(gesta, shop, drop=True)
    await gesta.settle(days=1)
    assert await tx.status() == "completed"
    assert funds_of((await tx.view()).state).captured == 4990
    assert [one.id for one in gesta.sandbox.stripe.effects] == [f"default:{tx.id}:sale:1"]


async def test_a_charge_that_never_arrived_is_not_made_for_an_erased_person(gesta, shop):
    tx = await lost(gesta, shop, status=503)
    await gesta.settle(days=10)
    state = (await tx.view()).state
    assert (state.status, state.reason) == ("failed", "not_executed")
    assert gesta.sandbox.stripe.effects == []


async def test_the_authorization_of_an_erased_person_stays_as_it_is_and_says_why(gesta, shop):
    tx = await shop.submit(Order(Money("49.90", "EUR"), ANA, operation="authorize"))
    await tx.outcome(timeout=20)
    await shop.erase(ANA)
    for number, act in enumerate((tx.capture(key="c"), tx.void()), start=1):
        await act
        outcome = await tx.outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "subject_erased"
        assert await tx.status() == "authorized"
        assert len(gesta.sandbox.stripe.effects) == 1, number
    # The gateway releases it by itself.
    await gesta.settle(days=40)
    assert await tx.status() == "expired"
    assert funds_of((await tx.view()).state).balances == {}


async def test_a_person_is_asked_at_once_where_the_look_up_needs_the_erased_payload(gesta):
    """gesta tried for days to ask, although that was impossible from the first time."""
    asked: list[str] = []

    async def execute(_: Order, __: Attempt) -> Outcome:
        return Unknown("timeout")

    async def look_up(order: Order, _: Attempt) -> Outcome:
        asked.append(order.customer)
        return Unknown("busy")

    flow = Flow("payment.own", Order, execute, RULES, look_up)
    async with Engine("memory:own", flows=[flow]) as shop:
        tx = await shop.submit(shop.payload("payment.own", ORDER))
        await gesta.pass_time(7)
        assert asked == [ANA]
        await shop.erase(ANA)
        await gesta.pass_time(120)
        state = (await tx.view()).state
        assert (state.reason, state.waits_for_a_person) == ("subject_erased", True)
        status = await tx.resolve("executed", by="ada", evidence="the bank's list")
        assert (status, asked) == ("completed", [ANA])


ORDER = {"amount": {"amount": "49.90", "currency": "EUR"}, "customer": ANA}
