"""Lost answers of a gateway: what is journalled, looked up, sent again, and left to a person."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import Done, Engine, Money, Request
from gesta.domain.transaction.funds import funds_of
from gesta.errors import StoreError
from gesta.flows import card
from gesta.ports.event_store import Recorded
from gesta.testing.plugin import Harness
from tests.flows.payment.test_card import ACCOUNT, EUR, authorize, captured, names, sale, shop

__all__ = ["shop"]

DAY = 86_400


async def lost(gesta: Harness, shop: Engine, *, executed: bool = True) -> Request:
    """A sale whose answer is lost and which no look-up finds yet."""
    stripe = gesta.sandbox.stripe
    stripe.visible_after_seconds = 10**9
    stripe.next(drop=True) if executed else stripe.next(status=503)
    tx = await shop.submit(sale())
    await gesta.settle(days=1 / DAY)
    assert await tx.status() == "unknown"
    return tx


async def journal(shop: Engine, tx: Request) -> list[dict[str, object]]:
    events = await shop.history(tx.id)
    return [
        {"call": event.call, "account": event.account, "key": event.key}  # type: ignore[union-attr]
        for name, event, _ in events
        if name.endswith("AttemptStarted.v1")
    ]


async def test_the_call_is_journalled_encrypted_before_it_is_made(gesta, shop):
    tx = await shop.submit(sale())
    await tx.outcome(timeout=20)
    (entry,) = await journal(shop, tx)
    assert entry["key"] == f"default:{tx.id}:sale:1"  # R1-34
    assert entry["account"]
    assert len(str(entry["call"])) > 100
    for clear in ("pm_1", "4990", "sk_test_1"):
        assert clear not in str(entry["call"])


async def test_a_resend_has_the_same_bytes_and_key_and_the_charge_happens_once(gesta, shop):
    tx = await lost(gesta, shop)
    gesta.sandbox.stripe.visible_after_seconds = 0
    await gesta.settle(days=1)
    assert await tx.status() == "completed"
    (effect,) = gesta.sandbox.stripe.effects
    assert effect.id == f"default:{tx.id}:sale:1"
    entries = await journal(shop, tx)
    assert [entry["call"] for entry in entries[1:]] == [""] * (len(entries) - 1)


async def test_a_resend_waits_while_the_store_cannot_read_its_journal(gesta, shop, monkeypatch):
    """Neither a failure nor a quarantined job: the same call follows when the store answers."""
    tx = await lost(gesta, shop, executed=False)
    gesta.sandbox.stripe.visible_after_seconds = 0
    events, outages = shop.pipeline.environment.stores.events, [StoreError("away")] * 3
    read_back = events.read_back

    async def away(*names: Any) -> list[Recorded]:
        if outages:
            raise outages.pop()
        found: list[Recorded] = await read_back(*names)
        return found

    monkeypatch.setattr(events, "read_back", away)
    await gesta.settle(days=1)
    assert not outages
    assert await tx.status() == "completed"
    assert len(gesta.sandbox.stripe.effects) == 1
    assert await shop.admin.quarantined() == []


async def test_a_charge_that_never_arrived_is_sent_again_and_happens_once(gesta, shop):
    tx = await lost(gesta, shop, executed=False)
    gesta.sandbox.stripe.visible_after_seconds = 0
    await gesta.settle(days=1)
    assert await tx.status() == "completed"
    assert len(gesta.sandbox.stripe.effects) == 1


async def test_nothing_is_sent_again_after_the_lifetime_of_the_key(gesta, shop):
    """The gateway has forgotten the key: the same call would be a second charge."""
    tx = await lost(gesta, shop)
    await shop.admin.pause(flow="payment.card")
    gesta.advance(25 * 3600)
    gesta.sandbox.stripe.advance(0)
    await shop.admin.resume(flow="payment.card")
    gesta.sandbox.stripe.visible_after_seconds = 10**9
    await gesta.settle(days=30)
    assert len(gesta.sandbox.stripe.effects) == 1
    state = (await tx.view()).state
    # Every look-up found nothing, after its time: it is not executed again, and not resent.
    assert (state.status, state.reason) == ("failed", "not_executed")


async def test_a_failure_that_the_gateway_stored_is_not_sent_again_every_hour(gesta, shop):
    """Stripe repeats it to every resend, and no look-up finds a payment."""
    stripe = gesta.sandbox.stripe
    stripe.next(error="stored_500")
    tx = await shop.submit(sale())
    await gesta.settle(days=10)
    state = (await tx.view()).state
    assert (state.status, state.reason) == ("failed", "not_executed")  # S1-4
    # Only the answer to the second call says that it is a replay.
    assert len(await journal(shop, tx)) == 2
    assert stripe.effects == []
    await tx.redrive()
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert [one.id for one in stripe.effects] == [f"default:{tx.id}:sale:2"]  # S1-4


async def test_a_person_resolves_what_the_gateway_cannot_tell(gesta, shop):
    tx = await lost(gesta, shop)
    gesta.sandbox.stripe.api_keys.append("another")
    await gesta.settle(days=1 / DAY)
    status = await tx.resolve("executed", by="ada", evidence="seen in the dashboard: ch_1")
    assert status == "completed"
    found = funds_of((await tx.view()).state)
    assert (found.captured, sum(found.balances.values())) == (4990, 0)
    assert "payment.card.OutcomeResolved.v1" in await names(shop, tx)


async def test_another_account_behind_the_code_is_never_called(gesta, shop):
    tx = await lost(gesta, shop)
    calls = gesta.sandbox.stripe.calls
    await shop.admin.put_config(
        "payment.gateway", "stripe-eu", {**ACCOUNT, "account": "acct_2", "api_key": "sk_test_2"}
    )
    await gesta.settle(days=2)
    state = (await tx.view()).state
    assert (state.status, state.reason) == ("unknown", "account_changed")
    assert state.waits_for_a_person
    assert gesta.sandbox.stripe.calls == calls


async def test_a_decline_fails_the_capture_and_the_authorization_stays(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    gesta.sandbox.stripe.next(status=402)
    await tx.capture(key="c-1")
    await gesta.settle(days=1 / DAY)
    state = (await tx.view()).state
    assert (state.status, state.reason) == ("authorized", "declined")
    await tx.capture(key="c-2")
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert (await tx.view()).state.intent == 2


async def test_an_authorization_that_is_never_captured_expires(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    await gesta.settle(days=40)
    assert await tx.status() == "expired"
    found = funds_of((await tx.view()).state)
    assert (found.capturable, found.balances) == (0, {})


async def test_a_refund_whose_answer_is_lost_happens_once(gesta, shop):
    tx = await captured(shop)
    gesta.sandbox.stripe.next(drop=True)
    await tx.refund(Money("10.00", EUR), key="r-1")
    await gesta.settle(days=1)
    found = funds_of((await tx.view()).state)
    assert (await tx.status(), found.refunded) == ("captured", 1000)
    assert [one.type for one in gesta.sandbox.stripe.effects].count("refund") == 1


@pytest.mark.parametrize("flow", ["payment.card"])
def test_the_lifecycle_of_the_kind_is_used(flow):
    assert card.flow().lifecycle.name == "transaction"
    assert card.flow().journal
