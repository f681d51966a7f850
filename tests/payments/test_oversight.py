"""What operators see of money: unknown transactions in metrics and doctor, and a checked ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from gesta import Engine, Money, Request
from gesta.admin.doctor.checks import Finding, diagnose
from gesta.admin.doctor.collect import examine
from gesta.domain.transaction.funds import funds_of, with_funds
from gesta.flows import card
from gesta.payments.ledger import errors_of
from gesta.ports.read_model import View
from gesta.testing.plugin import Harness
from tests.world import pass_time

ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}


@pytest.fixture
async def shop(gesta: Harness) -> AsyncIterator[Engine]:
    async with Engine("memory:", flows=[card.flow()]) as engine:
        await engine.admin.put_config("payment.gateway", "default", ACCOUNT)
        yield engine


async def sale(engine: Engine, amount: Money, *, test: bool = False) -> Request:
    return await engine.submit(card.Sale(amount, source="pm_1"), test=test)


async def lose_answers(gesta: Harness, engine: Engine, *amounts: Money) -> list[Request]:
    """Sales that the gateway never answers, nor look-ups of them."""
    gesta.sandbox.stripe.on("sk_test_1", status=500)
    return [await sale(engine, amount) for amount in amounts]


async def findings(engine: Engine) -> dict[str, Finding]:
    return {one.about: one for one in diagnose(await examine(engine.pipeline, "default"))}


def gauges(engine: Engine, name: str) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["flow"], sample.labels["currency"]): sample.value
        for family in engine.pipeline.telemetry.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


async def test_gauges_show_how_many_are_unknown_how_much_and_how_old(gesta, shop):
    euros = await lose_answers(gesta, shop, Money("49.90", "EUR"), Money("0.10", "EUR"))
    await lose_answers(gesta, shop, Money("500", "JPY"))
    await pass_time(gesta, 65, step_seconds=1)
    in_euros, in_yen = ("payment.card", "EUR"), ("payment.card", "JPY")
    # R1-47
    assert gauges(shop, "gesta_unknown_transactions") == {in_euros: 2, in_yen: 1}
    assert gauges(shop, "gesta_unknown_amount") == {in_euros: 50.0, in_yen: 500.0}
    ages = gauges(shop, "gesta_unknown_oldest_seconds")
    assert 50 <= ages[in_euros] <= 65
    for tx in euros:
        await tx.resolve("rejected", by="ada", evidence="nothing in the dashboard")
    await pass_time(gesta, 65, step_seconds=1)
    # An alert ends.
    assert gauges(shop, "gesta_unknown_transactions") == {in_euros: 0, in_yen: 1}
    assert gauges(shop, "gesta_unknown_amount")[in_euros] == 0


async def test_doctor_warns_of_a_transaction_that_is_unknown_for_long(gesta, shop):
    await lose_answers(gesta, shop, Money("49.90", "EUR"), Money("0.10", "EUR"))
    await gesta.pass_time(5)
    assert (await findings(shop))["unknown in payment.card"].level == "ok"
    await gesta.pass_time(2 * 3600)
    found = (await findings(shop))["unknown in payment.card"]
    assert found.level == "warn"
    assert found.status == (
        "2 transactions of 50.00 EUR in total, the oldest for 2 h; no further operation starts"
        " in them"
    )
    assert "tx unknown" in found.action


async def test_doctor_finds_a_posting_that_does_not_balance(gesta, shop):
    tx = await sale(shop, Money("49.90", "EUR"))
    await tx.outcome(timeout=20)
    assert (await findings(shop))["ledger"].status == "the postings of 1 transaction sum to zero"
    # As a bug would leave it: one leg of the posting is lost.
    read_model = shop.pipeline.environment.stores.read_model
    view = await tx.view()
    state = replace(view.state, version=view.state.version + 1)
    funds = funds_of(state)
    broken = with_funds(state, replace(funds, balances={"payer": -4990}))
    assert await read_model.save([View(broken, view.payload)], [])
    found = (await findings(shop))["ledger"]
    assert found.level == "bad"
    assert found.status == (
        f"1 of 1 transaction do not balance; {tx.id}: its postings sum to -4990, not to 0"
    )


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"captured": 5_000}, "more was captured and released than was authorized"),
        ({"refunded": 4_991}, "more was refunded than was captured"),
        ({"refunded": 1}, "its postings do not match its amounts"),
    ],
)
async def test_the_check_of_the_ledger_names_what_is_wrong(gesta, shop, changes, error):
    tx = await sale(shop, Money("49.90", "EUR"))
    await tx.outcome(timeout=20)
    state = (await tx.view()).state
    assert errors_of(state) == []
    assert error in errors_of(with_funds(state, replace(funds_of(state), **changes)))
