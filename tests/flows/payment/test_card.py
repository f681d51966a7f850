"""payment.card through the whole pipeline, on the fake of Stripe."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import Conflict, Done, Engine, InDoubt, InvalidRequest, Money, Refused, Rejected, Request
from gesta.domain.outcome import Retry
from gesta.domain.transaction.funds import Funds, funds_of
from gesta.errors import BadConfig
from gesta.flows import card, settlement, transfer
from gesta.outbound.http import AttemptEnded
from gesta.tenants.flow_records import TenantRecords
from gesta.testing.plugin import Harness
from tests.flows.payment.plain_gateway import OPTIONS, URL

EUR = "EUR"
ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}


def engine() -> Engine:
    return Engine("memory:", flows=[card.flow()])


async def started(gesta: Harness) -> Engine:
    running = engine()
    await running.start()
    await running.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
    return running


@pytest.fixture
async def shop(gesta: Harness):
    running = await started(gesta)
    yield running
    await running.stop()


def authorize(amount: str = "49.90", **more: Any) -> card.Payment:
    return card.Authorize(Money(amount, EUR), source="pm_1", gateway="stripe-eu", **more)


def sale(amount: str = "49.90") -> card.Payment:
    return card.Sale(Money(amount, EUR), source="pm_1", gateway="stripe-eu")


async def funds(request: Request) -> Funds:
    return funds_of((await request.view()).state)


async def names(shop: Engine, request: Request) -> list[str]:
    return [name for name, _, _ in await shop.history(request.id)]


def kinds(gesta: Harness) -> list[str]:
    return [one.type for one in gesta.sandbox.stripe.effects]


async def test_a_sale_charges_once_and_completes(gesta, shop):
    tx = await shop.submit(sale(), key="order-1")
    outcome = await tx.outcome(timeout=20)
    assert isinstance(outcome, Done)
    assert await tx.status() == "completed"
    assert (await funds(tx)).captured == 4990
    assert await names(shop, tx) == [
        "payment.card.TransactionCreated.v1",
        "payment.card.AttemptStarted.v1",
        "payment.card.Completed.v1",
    ]
    assert len(gesta.sandbox.stripe.effects) == 1


async def test_authorize_then_capture_are_two_operations_with_their_own_keys(gesta, shop):
    tx = await shop.submit(authorize(), key="order-7")
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert await tx.status() == "authorized"
    await tx.capture(Money("49.90", EUR), key="order-7-ship")
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert await tx.status() == "captured"
    assert await names(shop, tx) == [  # R1-37, R1-53
        "payment.card.TransactionCreated.v1",
        "payment.card.AttemptStarted.v1",
        "payment.card.Authorized.v1",
        "payment.card.CaptureRequested.v1",
        "payment.card.AttemptStarted.v1",
        "payment.card.Captured.v1",
    ]
    keys = [one.id for one in gesta.sandbox.stripe.effects]
    assert keys == [  # R1-34
        f"default:{tx.id}:authorization:1",
        f"default:{tx.id}:capture:1",
    ]


async def test_the_surface_program_runs(gesta, shop):
    engine = shop
    tx = await engine.submit(
        card.Authorize(Money("49.90", "EUR"), source="pm_1", gateway="stripe-eu"), key="order-7"
    )
    if isinstance(await tx.outcome(timeout=20), Done):
        await tx.capture(Money("20.00", "EUR"), key="order-7-ship-1")
    assert isinstance(await tx.outcome(timeout=20), Done)
    found = await funds(tx)
    # The rest is released with a final capture.
    assert (found.captured, found.released, found.capturable) == (2000, 2990, 0)


async def test_several_captures_add_up_to_the_authorization(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    for number, amount in enumerate(["20.00", "15.00", "14.90"], start=1):
        await tx.capture(Money(amount, EUR), key=f"ship-{number}", final=False)
        assert isinstance(await tx.outcome(timeout=20), Done)
    found = await funds(tx)
    assert (found.captured, found.capturable) == (4990, 0)
    assert [one.id for one in gesta.sandbox.stripe.effects][1:] == [
        f"default:{tx.id}:capture:{number}" for number in (1, 2, 3)
    ]


async def captured(shop: Engine, amount: str = "49.90", key: str = "o") -> Request:
    tx = await shop.submit(authorize(amount), key=key)
    await tx.outcome(timeout=20)
    await tx.capture(key=f"{key}-c")
    await tx.outcome(timeout=20)
    return tx


async def test_refunds_add_up_to_the_capture_and_then_it_is_reversed(gesta, shop):
    tx = await captured(shop)
    await tx.refund(Money("10.00", EUR), key="r-1")
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert await tx.status() == "captured"
    with pytest.raises(Refused) as refused:
        await tx.refund(Money("39.91", EUR), key="r-2")
    assert refused.value.code == "beyond_capture"
    await tx.refund(key="r-3")
    await tx.outcome(timeout=20)
    assert await tx.status() == "reversed"
    found = await funds(tx)
    assert (found.captured, found.refunded) == (4990, 4990)
    assert found.balances == {}


async def test_a_void_releases_the_authorization(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    await tx.void()
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert await tx.status() == "cancelled"
    assert await tx.void() == "cancelled"
    with pytest.raises(Refused):
        await tx.capture(key="late")


@pytest.mark.parametrize("is_captured", [True, False])
async def test_a_reversal_refunds_what_was_captured_and_voids_what_was_not(
    gesta, shop, is_captured
):
    tx = await (captured(shop) if is_captured else shop.submit(authorize()))
    await tx.outcome(timeout=20)
    await tx.reverse()
    assert isinstance(await tx.outcome(timeout=20), Done)
    assert "payment.card.ReversalRequested.v1" in await names(shop, tx)  # R1-39
    assert await tx.status() == ("reversed" if is_captured else "cancelled")
    assert (await funds(tx)).balances == {}
    with pytest.raises(Refused) as refused:
        await (await shop.submit(authorize(), key="new")).reverse()
    assert refused.value.code == "operation_open"  # R1-33


async def test_a_key_with_another_amount_is_a_conflict_and_with_the_same_nothing(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    await tx.capture(Money("20.00", EUR), key="ship")
    await tx.outcome(timeout=20)
    version = (await tx.view()).state.version
    await tx.capture(Money("20.00", EUR), key="ship")
    with pytest.raises(Conflict):
        await tx.capture(Money("21.00", EUR), key="ship")
    assert (await tx.view()).state.version == version
    assert len(gesta.sandbox.stripe.effects) == 2


async def test_no_more_than_what_was_authorized_is_captured(gesta, shop):
    tx = await shop.submit(authorize("20.00"))
    await tx.outcome(timeout=20)
    for amount, code in [
        (Money("20.01", EUR), "beyond_authorization"),
        (Money("0.00", EUR), "invalid_amount"),
        (Money("-1.00", EUR), "invalid_amount"),
        (Money("1.00", "USD"), "wrong_currency"),
    ]:
        with pytest.raises(Refused) as refused:
            await tx.capture(amount, key=f"k-{amount}")
        assert refused.value.code == code
    assert (await tx.view()).state.version == 3
    assert len(gesta.sandbox.stripe.effects) == 1


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"amount": {"amount": 49.9, "currency": EUR}}, "amount"),
        ({"amount": {"amount": "49.901", "currency": EUR}}, "amount"),
        ({"amount": {"amount": "0.00", "currency": EUR}}, "amount"),
        ({"amount": {"amount": "-5.00", "currency": EUR}}, "amount"),
        ({"amount": {"amount": "5.00", "currency": "EURO"}}, "amount"),
        ({"amount": {"amount": "5.00", "currency": "HRK"}}, "amount"),
        ({"source": "4242 4242 4242 4242"}, "source"),
        ({"cvc": "123"}, "cvc"),
    ],
)
async def test_bad_input_names_the_field_and_stores_nothing(gesta, shop, fields, name):
    good = {"amount": {"amount": "5.00", "currency": EUR}, "source": "pm_1", "gateway": "stripe-eu"}
    with pytest.raises(InvalidRequest) as refused:
        await shop.submit(shop.payload("payment.card", {**good, **fields}))
    assert name in refused.value.fields
    assert await shop.admin.counts() == {}
    assert gesta.sandbox.stripe.effects == []


async def test_a_lost_answer_is_looked_up_and_the_charge_happens_once(gesta, shop):
    gesta.sandbox.stripe.next(drop=True)
    tx = await shop.submit(sale())
    await gesta.settle(days=0.001)
    assert await tx.status() == "completed"
    assert len(gesta.sandbox.stripe.effects) == 1
    found = await names(shop, tx)
    assert found[-3:] == [
        "payment.card.OutcomeUnknown.v1",
        "payment.card.OutcomeResolved.v1",
        "payment.card.Completed.v1",
    ]


async def test_nothing_moves_while_an_outcome_is_unknown(gesta, shop):
    tx = await shop.submit(authorize())
    await tx.outcome(timeout=20)
    gesta.sandbox.stripe.next(drop=True)
    gesta.sandbox.stripe.visible_after_seconds = 10**9
    await tx.capture(key="c-1")
    await gesta.settle(days=1 / 86_400)
    assert await tx.status() == "unknown"
    for act in (tx.refund(key="r"), tx.void(), tx.reverse(), tx.capture(key="c-2")):
        with pytest.raises(InDoubt):
            await act
    with pytest.raises(InDoubt):
        await tx.redrive(again=True)


async def test_a_settlement_pays_a_closed_set_out_and_checks_the_total(gesta):
    shop = Engine("memory:", flows=[card.flow(), settlement.flow()])
    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        first, second = await captured(shop, "49.90", "a"), await captured(shop, "10.10", "b")
        third, ids = await captured(shop, "10.10", "c"), (first.id, second.id)
        wrong = await shop.submit(settlement.Settle(Money("59.99", EUR), ids, "stripe-eu"))
        outcome = await wrong.outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "total_mismatch"
        assert "payout" not in kinds(gesta)
        gesta.sandbox.stripe.advance(3 * 86_400)
        # The fake keeps 2.9 % and 0.30 of each.
        fees, net = Money("2.33", EUR), Money("57.67", EUR)
        payout = settlement.Settle(net, ids, "stripe-eu", fees=fees)
        right = await shop.submit(payout)  # R1-2
        assert isinstance(await right.outcome(timeout=20), Done)
        assert await right.status() == "completed"
        assert (await funds(right)).balances == {"gateway": -5767, "bank": 5767}
        twice = await shop.submit(
            settlement.Settle(net, ids, "stripe-eu", fees=fees, description="again")
        )
        outcome = await twice.outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "settled_elsewhere"
        mixed = await shop.submit(
            settlement.Settle(net, (third.id, first.id), "stripe-eu", fees=fees)
        )
        outcome = await mixed.outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "settled_elsewhere"
        assert kinds(gesta).count("payout") == 1
        # The refused settlement has claimed nothing.
        alone = settlement.Settle(
            Money("9.51", EUR), (third.id,), "stripe-eu", fees=Money("0.59", EUR)
        )
        assert isinstance(await (await shop.submit(alone)).outcome(timeout=20), Done)
        assert kinds(gesta).count("payout") == 2


async def test_a_settlement_that_failed_gives_its_transactions_up(gesta):
    """They could never be paid out: each later settlement found them claimed."""
    shop = Engine("memory:", flows=[card.flow(), settlement.flow()])
    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        paid, other = await captured(shop, "49.90", "a"), await captured(shop, "10.10", "b")
        net, fees = Money("48.15", EUR), Money("1.75", EUR)
        gesta.sandbox.stripe.advance(3 * 86_400)
        gesta.sandbox.stripe.on("payout", status=400)
        failed = await shop.submit(settlement.Settle(net, (paid.id,), "stripe-eu", fees=fees))
        assert isinstance(await failed.outcome(timeout=20), Rejected)
        gesta.sandbox.stripe.heal()
        both = settlement.Settle(
            Money("57.67", EUR), (paid.id, other.id), "stripe-eu", fees=Money("2.33", EUR)
        )
        right = await shop.submit(both)
        assert isinstance(await right.outcome(timeout=20), Done)
        # Now they belong to the one that paid them out.
        await failed.redrive()
        outcome = await failed.outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "settled_elsewhere"
        assert kinds(gesta).count("payout") == 1


async def test_a_settlement_that_is_redriven_while_another_takes_over_is_paid_out_once(
    gesta, monkeypatch
):
    shop = Engine("memory:", flows=[card.flow(), settlement.flow()])
    put_many = TenantRecords.put_many

    async def redriven_first(self: TenantRecords, kind: str, names: Any, version: int, own: bytes):
        if version == 2:
            await failed.redrive()
            assert isinstance(await failed.outcome(timeout=20), Done)
        return await put_many(self, kind, names, version, own)

    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        paid = await captured(shop, "49.90", "a")
        net, fees = Money("48.15", EUR), Money("1.75", EUR)
        gesta.sandbox.stripe.advance(3 * 86_400)
        gesta.sandbox.stripe.on("payout", status=400)
        failed = await shop.submit(settlement.Settle(net, (paid.id,), "stripe-eu", fees=fees))
        assert isinstance(await failed.outcome(timeout=20), Rejected)
        gesta.sandbox.stripe.heal()
        monkeypatch.setattr(TenantRecords, "put_many", redriven_first)
        again = settlement.Settle(net, (paid.id,), "stripe-eu", fees=fees, description="again")
        outcome = await (await shop.submit(again)).outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "settled_elsewhere"
        assert kinds(gesta).count("payout") == 1


async def test_a_settlement_whose_payout_is_unknown_keeps_its_transactions(gesta):
    shop = Engine("memory:", flows=[card.flow(), settlement.flow()])
    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        paid = await captured(shop, "49.90", "a")
        net, fees = Money("48.15", EUR), Money("1.75", EUR)
        gesta.sandbox.stripe.advance(3 * 86_400)
        gesta.sandbox.stripe.on("payout", drop=True)
        lost = await shop.submit(settlement.Settle(net, (paid.id,), "stripe-eu", fees=fees))
        await gesta.settle(days=0)
        assert await lost.status() == "unknown"
        gesta.sandbox.stripe.heal()
        again = settlement.Settle(net, (paid.id,), "stripe-eu", fees=fees, description="again")
        outcome = await (await shop.submit(again)).outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "settled_elsewhere"
        await gesta.settle(days=1)
        assert await lost.status() == "completed"
        assert kinds(gesta).count("payout") == 1


async def test_sums_beyond_any_amount_are_refused_and_nothing_is_sent(gesta):
    """Building the text of the refusal failed, so the job was quarantined."""
    shop = Engine("memory:", flows=[card.flow(), settlement.flow()])
    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        large = "999999999999999.99"
        ids = [(await captured(shop, large, str(number))).id for number in range(3)]
        huge = settlement.Settle(Money(large, EUR), tuple(ids), "stripe-eu")
        outcome = await (await shop.submit(huge)).outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert (outcome.reason, outcome.detail) == (
            "total_mismatch",
            "more was captured than one settlement can pay out in EUR",
        )
        fees = Money("0.01", EUR)
        with pytest.raises(InvalidRequest) as refused:
            await shop.submit(settlement.Settle(Money(large, EUR), ("x" * 36,), fees=fees))
        assert "together are too large" in refused.value.fields["fees"]
        assert "payout" not in kinds(gesta)


async def test_only_card_payments_of_the_same_mode_are_paid_out(gesta):
    """A transfer never reached the gateway's balance, a settlement has left it, and a test request
    moved no money at all.
    """
    shop = Engine("memory:", flows=[card.flow(), settlement.flow(), transfer.flow()])
    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        paid = await captured(shop, "49.90", "a")
        gesta.sandbox.stripe.advance(3 * 86_400)
        net, fees = Money("48.15", EUR), Money("1.75", EUR)
        settled = await shop.submit(settlement.Settle(net, (paid.id,), "stripe-eu", fees=fees))
        assert isinstance(await settled.outcome(timeout=20), Done)
        sent = await shop.submit(
            transfer.Transfer(net, source="pm_1", destination="acct_2", gateway="stripe-eu")
        )
        assert isinstance(await sent.outcome(timeout=20), Done)
        tried = await shop.submit(sale("48.15"), test=True)
        assert isinstance(await tried.outcome(timeout=20), Done)
        for one, flow in ((settled, settlement.NAME), (sent, transfer.NAME), (tried, card.NAME)):
            again = await shop.submit(
                settlement.Settle(net, (one.id,), "stripe-eu", flow=flow), key=one.id
            )
            outcome = await again.outcome(timeout=20)
            assert isinstance(outcome, Rejected), flow
            assert outcome.reason == "not_captured"
        assert kinds(gesta).count("payout") == 1


async def test_a_transfer_is_reserved_and_posted(gesta):
    shop = Engine("memory:", flows=[transfer.flow()])
    async with shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        tx = await shop.submit(
            transfer.Reserve(
                Money("30.00", EUR), source="pm_1", destination="acct_2", gateway="stripe-eu"
            )
        )
        assert isinstance(await tx.outcome(timeout=20), Done)
        assert await tx.status() == "authorized"
        with pytest.raises(Refused):
            await tx.capture(key="c")
        await tx.post(Money("25.00", EUR), key="p-1")
        assert isinstance(await tx.outcome(timeout=20), Done)
        assert (await funds(tx)).balances == {"payer": -2500, "payee": 2500}
        assert [name.split(".")[2] for name in await names(shop, tx)] == [
            "TransactionCreated",
            "AttemptStarted",
            "Reserved",
            "PostingRequested",
            "AttemptStarted",
            "Posted",
        ]  # R1-37


async def test_a_failure_before_the_journal_does_not_lose_the_journal(gesta, shop):
    """The vault is out of reach first. The call that follows is journalled all the same."""
    secrets = type(shop._pipeline.config.of("default")).secrets
    failures = ["once"]

    async def out_of_reach(self: Any, *names: str) -> list[str]:
        if failures:
            failures.pop()
            raise AttemptEnded(Retry("vault_unavailable"))
        found: list[str] = await secrets(self, *names)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(shop._pipeline.config.of("default")), "secrets", out_of_reach)
        gesta.sandbox.stripe.next(drop=True)
        tx = await shop.submit(sale())
        await gesta.pass_time(3)
    state = (await tx.view()).state
    assert state.journal
    assert funds_of(state).key_seconds == 23 * 3_600  # S1-4
    await gesta.settle(days=0.01)
    assert await tx.status() == "completed"
    assert len(gesta.sandbox.stripe.effects) == 1


async def test_a_test_request_of_a_gateway_without_a_fake_fails_and_nothing_is_sent(gesta):
    """The sandbox plays Stripe. What another gateway would answer, no fake can say."""
    account = {
        "type": "http",
        "account": "shop 1",
        "api_key": "k",
        "api_url": URL,
        "options": OPTIONS,
    }
    async with engine() as shop:
        await shop.admin.put_config("payment.gateway", "stripe-eu", account)
        tx = await shop.submit(sale(), test=True)
        outcome = await tx.outcome(timeout=20)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "no_fake"
        assert "nothing was sent" in outcome.detail
        assert await tx.status() == "failed"


@pytest.mark.parametrize(
    ("account", "field", "text"),
    [
        (ACCOUNT | {"options": {"colour": "blue"}}, "options", "colour"),
        (ACCOUNT | {"api_url": "https://api.stripe.com/v1"}, "api_url", "before /v1"),
        (ACCOUNT | {"type": "http"}, "api_url", "is required"),
        (ACCOUNT | {"type": "http", "api_url": URL}, "options", "operations"),
    ],
)
async def test_an_account_that_its_gateway_cannot_use_is_not_stored(
    gesta, shop, account, field, text
):
    """It was stored, and its first payment failed or was quarantined."""
    with pytest.raises(BadConfig) as refused:
        await shop.admin.put_config("payment.gateway", "stripe-eu", account)
    assert text in refused.value.fields[field]
    # A gateway of another program, which this process does not have.
    await shop.admin.put_config("payment.gateway", "acme", ACCOUNT | {"type": "acmepay"})
