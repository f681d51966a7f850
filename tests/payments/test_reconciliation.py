"""Reconciliation with the ledger of the fake of Stripe, through the whole pipeline."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from gesta import Engine, Money, NotFound, Request
from gesta.domain.transaction import evolve
from gesta.domain.transaction.funds import funds_of
from gesta.errors import InvalidRequest
from gesta.flows import card
from gesta.flows.payment.gateway import Connection, LedgerPage, LedgerRow, Reference, Window
from gesta.payments import reconcile as reconcile_run
from gesta.payments.reconcile import Report
from gesta.payments.reconciliation import Books, Finding, Movement, compare
from gesta.testing.plugin import Harness
from tests.world import append_raw

EUR = "EUR"
ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}
DAY_MS = 86_400_000


@pytest.fixture
async def shop(gesta: Harness) -> AsyncIterator[Engine]:
    async with Engine("memory:", flows=[card.flow()]) as engine:
        await engine.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        yield engine


async def sale(engine: Engine, amount: str = "49.90", key: str = "o") -> Request:
    payload = card.Sale(Money(amount, EUR), source="pm_1", gateway="stripe-eu")
    return await engine.submit(payload, key=key)


async def reconcile(gesta: Harness, engine: Engine, days: float = 3) -> Report:
    now = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC)
    until = now + timedelta(seconds=1)
    report: Report = await engine.admin.reconcile("stripe-eu", until - timedelta(days=days), until)
    return report


async def events(engine: Engine) -> int:
    return len(await engine.pipeline.environment.stores.events.follow(0, 10_000))


async def test_rows_that_agree_are_matched_and_nothing_is_written_twice(gesta, shop):
    for number in range(3):
        await (await sale(shop, key=f"o-{number}")).outcome(timeout=20)
    paid = await shop.submit(
        card.Authorize(Money("20.00", EUR), source="pm_1", gateway="stripe-eu"), key="auth"
    )
    await paid.outcome(timeout=20)
    await paid.capture(key="c")
    await paid.outcome(timeout=20)
    await paid.refund(Money("5.00", EUR), key="r")
    await paid.outcome(timeout=20)
    report = await reconcile(gesta, shop)
    assert report.counts == {"matched": 5}
    assert not report.differs
    before = await events(shop)
    # A second run of the same window adds nothing, not even its report.
    again = await reconcile(gesta, shop)
    assert (again.counts, again.corrections, await events(shop)) == ({"matched": 5}, 0, before)


async def test_a_charge_whose_answer_was_lost_is_found_in_the_ledger(gesta, shop):
    """The gateway charged, and neither a resend nor a look-up has been answered yet."""
    gesta.sandbox.stripe.on(lambda call: call.key is not None, drop=True)
    tx = await sale(shop)
    await gesta.settle(days=0)
    assert await tx.status() == "unknown"
    report = await reconcile(gesta, shop)
    # R1-40, S1-5: found by our own reference, because no id of the gateway was ever learned.
    (finding,) = report.findings
    assert (finding.kind, finding.request_id, finding.corrected) == ("missing_local", tx.id, True)
    assert (await tx.status(), report.corrections) == ("completed", 2)
    assert funds_of((await tx.view()).state).captured == 4990
    again = await reconcile(gesta, shop)
    assert (again.counts, again.corrections) == ({"matched": 1}, 0)


async def test_a_charge_that_is_not_ours_is_reported_and_changes_nothing(gesta, shop):
    stripe = gesta.sandbox.stripe
    stripe.books.create_charge(
        {"amount": "700", "currency": "eur", "source": "tok_visa"},
        gesta.runtime.now_ms() // 1000,
    )
    before = await events(shop)
    report = await reconcile(gesta, shop)
    (finding,) = report.findings
    assert (finding.kind, finding.request_id, finding.found) == (
        "missing_local",
        "",
        Money("7.00", EUR),
    )
    # The report, as a stream of its own.
    kept = (await shop.pipeline.environment.stores.events.follow(0, 10_000))[-1]
    assert await events(shop) == before + 1
    assert kept.stream.startswith("reconciliation.stripe.run-default-stripe-eu-")
    assert await shop.admin.quarantined() == []


async def test_an_unknown_gateway_and_a_wrong_window_are_refused(gesta, shop):
    now = datetime(2027, 1, 15, tzinfo=UTC)
    with pytest.raises(NotFound):
        await shop.admin.reconcile("nowhere", now - timedelta(days=1), now)
    for since in (now, now - timedelta(days=93), datetime(2027, 1, 1)):
        with pytest.raises(InvalidRequest):
            await shop.admin.reconcile("stripe-eu", since, now)


class Listing:
    """A fake gateway that only lists: these rows, one on each page, the last one twice."""

    type = "stripe"

    def __init__(self, *rows: LedgerRow) -> None:
        self.rows, self.pages = (*rows, *rows[-1:]), 0

    async def list(
        self, window: Window, connection: Connection, cursor: str | None = None
    ) -> LedgerPage:
        assert connection.code == "stripe-eu"
        assert window.from_ms < window.to_ms
        self.pages += 1
        at = int(cursor or 0)
        if at >= len(self.rows):
            return LedgerPage(())
        return LedgerPage((self.rows[at],), str(at + 1) if at + 1 < len(self.rows) else None)


async def listed(gesta: Harness, engine: Engine, *rows: LedgerRow) -> Report:
    until = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(days=2)
    gateways: Any = [Listing(*rows)]
    report: Report = await engine.admin.reconcile(
        "stripe-eu", until - timedelta(days=30), until, gateways=gateways
    )
    return report


async def names(engine: Engine, request: Request) -> list[str]:
    return [name.split(".")[-2] for name, _, _ in await engine.history(request.id)]


async def test_a_row_that_contradicts_the_record_is_noted_once_and_changes_no_amount(gesta, shop):
    tx = await sale(shop)
    await tx.outcome(timeout=20)
    reference = Reference("default", "payment.card", tx.id, "sale", 1)
    at_ms = gesta.runtime.now_ms()
    rows = [
        row(amount=Money("40.00", EUR), movement_id="", at_ms=at_ms, reference=reference),
        row(id="txn_2", movement_id="ch_9", at_ms=at_ms, reference=reference),
    ]
    for appended in (2, 0, 0):
        report = await listed(gesta, shop, *rows)
        assert report.counts == {"amount": 1, "duplicate": 1}
        assert report.corrections == appended
    assert (await names(shop, tx))[-2:] == ["Conflicted", "Conflicted"]
    assert funds_of((await tx.view()).state).captured == 4990
    # The gateway has no record of it: noted, and no money is moved for it.
    assert (await listed(gesta, shop)).counts == {"missing_provider": 1}
    assert (await listed(gesta, shop)).corrections == 0
    assert (await names(shop, tx))[-3:] == ["Conflicted"] * 3
    assert await tx.status() == "completed"


async def test_an_amount_that_a_person_has_recorded_agrees_with_the_ledger_from_then_on(
    gesta, shop
):
    """The gateway took less than was asked for, and only a person could say so."""
    gesta.sandbox.stripe.on(lambda call: call.key is not None, drop=True)
    tx = await sale(shop)
    await gesta.settle(days=0)
    reference = Reference("default", "payment.card", tx.id, "sale", 1)
    charge = row(
        amount=Money("30.00", EUR), at_ms=gesta.runtime.now_ms() + 1_000, reference=reference
    )
    assert (await listed(gesta, shop, charge)).counts == {"missing_local": 1}
    state = (await tx.view()).state
    assert (state.status, state.reason, state.waits_for_a_person) == (
        "unknown",
        "amount_mismatch",
        True,
    )
    wrong: Any = "30.00"
    with pytest.raises(InvalidRequest):
        await tx.resolve("executed", by="ada", evidence="ch_1", amount=wrong)
    await tx.resolve("executed", by="ada", evidence="ch_1", amount=Money("30.00", EUR))
    again = await listed(gesta, shop, charge)
    assert (again.counts, again.corrections) == ({"matched": 1}, 0)
    # The whole rest is what the gateway really has.
    await tx.refund(key="back")
    assert funds_of((await tx.view()).state).pending == 3000


async def test_a_contradiction_is_noted_once_although_the_transaction_has_forgotten_it(
    gesta, shop, monkeypatch
):
    """Later webhooks push it out of what a transaction remembers."""
    monkeypatch.setattr(evolve, "REPORTS_MAX", 1)
    tx = await sale(shop)
    await tx.outcome(timeout=20)
    reference = Reference("default", "payment.card", tx.id, "sale", 1)
    at_ms = gesta.runtime.now_ms()
    wrong = row(amount=Money("40.00", EUR), movement_id="", at_ms=at_ms, reference=reference)
    for _ in range(2):
        report = await listed(gesta, shop, wrong)
        assert (report.counts, report.findings[0].corrected) == ({"amount": 1}, True)
        note = b'{"report":"evt_1","kind":"charge.updated"}'
        version = (await tx.view()).state.version
        await append_raw(shop, tx.id, version, "GatewayNotified.v1", note, flow=card.NAME)
        await gesta.settle(days=0)
    assert (await names(shop, tx)).count("Conflicted") == 1
    assert await shop.admin.quarantined() == []


@pytest.mark.parametrize("kind", ["dispute", "return"])
async def test_money_that_the_gateway_moved_back_is_noted_once_and_changes_no_amount(
    gesta, shop, kind
):
    """It was taken for a fee, which needs no decision."""
    tx = await sale(shop)
    await tx.outcome(timeout=20)
    reference = Reference("default", "payment.card", tx.id, "sale", 1)
    now = gesta.runtime.now_ms()
    own = row(amount=Money("49.90", EUR), movement_id="", at_ms=now, reference=reference)
    back = row(
        id="txn_2",
        kind=kind,
        amount=Money("-49.90", EUR),
        movement_id="du_1",
        payment_id=funds_of((await tx.view()).state).payment_id,
        at_ms=now,
    )
    for appended in (1, 0):
        report = await listed(gesta, shop, own, back)
        assert (report.counts, report.differs) == ({"matched": 1, "status": 1}, True)
        assert report.corrections == appended
    assert (await names(shop, tx))[-1] == "Conflicted"
    assert funds_of((await tx.view()).state).captured == 4990
    # A row that belongs to no transaction is reported.
    report = await listed(gesta, shop, row(kind=kind, payment_id="pi_9"))
    assert [(one.kind, one.request_id) for one in report.findings if one.row] == [("status", "")]


async def test_a_charge_of_a_sale_that_was_given_up_completes_it(gesta, shop):
    declined = await shop.submit(
        card.Sale(Money("49.90", EUR), source="pm_card_chargeDeclined", gateway="stripe-eu")
    )
    await declined.outcome(timeout=20)
    assert await declined.status() == "failed"
    reference = Reference("default", "payment.card", declined.id, "sale", 1)
    charge = row(amount=Money("49.90", EUR), at_ms=gesta.runtime.now_ms(), reference=reference)
    report = await listed(gesta, shop, charge)
    # S1-7: from failed to completed by reconciliation only.
    assert (report.counts, report.corrections) == ({"status": 1}, 1)
    assert await declined.status() == "completed"
    again = await listed(gesta, shop, charge)
    assert (again.counts, again.corrections) == ({"matched": 1}, 0)
    assert funds_of((await declined.view()).state).captured == 4990


async def test_the_rows_of_another_tenant_are_not_ours(gesta, shop):
    tx = await sale(shop)
    await tx.outcome(timeout=20)
    other = Reference("acme", "payment.card", tx.id, "sale", 1)
    charge = row(movement_id="ch_7", payment_id="", at_ms=gesta.runtime.now_ms(), reference=other)
    report = await listed(gesta, shop, charge)
    assert [one.request_id for one in report.findings if one.row] == [""]


async def test_it_runs_on_a_schedule_with_overlapping_windows(gesta):
    engine = Engine("memory:scheduled", flows=[card.flow()])
    reports: list[Report] = []

    @engine.every("0 5 * * *", zone="Europe/Berlin")
    async def nightly(due: datetime) -> None:
        reports.append(await engine.admin.reconcile("stripe-eu", due - timedelta(days=3), due))

    async with engine:
        await engine.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        await (await sale(engine)).outcome(timeout=20)
        for _ in range(49):
            gesta.advance(3600)
            await gesta.settle(days=0)
    # R1-40: every night; the second window has the rows of the first once more.
    assert [report.counts for report in reports] == [{"matched": 1}, {"matched": 1}]


async def authorized(shop: Engine) -> Request:
    tx = await shop.submit(card.Authorize(Money("49.90", EUR), source="pm_1", gateway="stripe-eu"))
    await tx.outcome(timeout=20)
    return tx


async def test_several_captures_of_one_charge_are_matched_by_their_amounts(gesta, shop):
    """Stripe's ledger names the same charge for each of them."""
    tx = await authorized(shop)
    for key, amount in (("a", "20.00"), ("b", "29.90")):
        await tx.capture(Money(amount, EUR), key=key, final=False)
        await tx.outcome(timeout=20)
    assert (await reconcile(gesta, shop)).counts == {"matched": 2}


@pytest.mark.parametrize("amount", ["29.90", "20.00"])
async def test_a_lost_capture_is_found_where_the_window_has_only_its_own_row(gesta, shop, amount):
    tx = await authorized(shop)
    await tx.capture(Money("20.00", EUR), key="a", final=False)
    await tx.outcome(timeout=20)
    gesta.advance(2 * 86_400)
    gesta.sandbox.stripe.on(lambda call: call.key is not None, drop=True)
    await tx.capture(Money(amount, EUR), key="b")
    await gesta.settle(days=0)
    assert await tx.status() == "unknown"
    report = await reconcile(gesta, shop, days=1)
    assert report.counts == {"missing_local": 1}
    found = funds_of((await tx.view()).state)
    assert found.captured == 2000 + Money(amount, EUR).minor


async def test_a_test_request_is_not_missing_in_the_ledger(gesta, shop):
    """It reached the sandbox, and no gateway knows of it."""
    tried = await shop.submit(
        card.Sale(Money("49.90", EUR), source="pm_1", gateway="stripe-eu"), test=True
    )
    await tried.outcome(timeout=20)
    gesta.advance(2 * 86_400)
    report = await reconcile(gesta, shop)
    assert (report.counts, report.corrections) == ({}, 0)


def own_id(payload: Any) -> str:
    """As the caller chose it; gesta's own ids begin with the time."""
    return f"{payload.description}-1111-4111-8111-111111111111"


async def with_own_id(engine: Engine, start: str) -> Request:
    payload = card.Sale(Money("10.00", EUR), source="pm_1", gateway="stripe-eu", description=start)
    request = await engine.submit(payload)
    await request.outcome(timeout=20)
    return request


async def test_recent_transactions_are_found_whatever_ids_their_callers_chose(gesta, monkeypatch):
    """The walk from the highest id ended at the first old one, and the rest was not compared."""
    monkeypatch.setattr(reconcile_run, "PAGE", 1)
    async with Engine("memory:", flows=[replace(card.flow(), request_id=own_id)]) as engine:
        await engine.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
        await with_own_id(engine, "ffffffff")
        gesta.advance(90 * 86_400)
        recent = await with_own_id(engine, "00000000")
        gesta.advance(2 * 86_400)
        report = await listed(gesta, engine)
        assert [(one.kind, one.request_id) for one in report.findings if not one.row] == [
            ("missing_provider", recent.id)
        ]


REFERENCE = Reference("default", "payment.card", "r-1", "sale", 1)


def movement(**changed: Any) -> Movement:
    given: dict[str, Any] = {
        "flow": "payment.card",
        "request_id": "r-1",
        "operation": "sale",
        "intent": 1,
        "amount": Money("10.00", EUR),
        "at_ms": 5 * DAY_MS,
        "payment_id": "pi_1",
        "movement_id": "ch_1",
    }
    return Movement(**{**given, **changed})


def row(**changed: Any) -> LedgerRow:
    given: dict[str, Any] = {
        "id": "txn_1",
        "kind": "charge",
        "amount": Money("10.00", EUR),
        "fee": Money("0.30", EUR),
        "status": "available",
        "at_ms": 5 * DAY_MS,
        "movement_id": "ch_1",
        "payment_id": "pi_1",
    }
    return LedgerRow(**{**given, **changed})


def found(rows: list[LedgerRow], movements: list[Movement]) -> list[Finding]:
    return compare(rows, Books({}, movements), 4 * DAY_MS, 8 * DAY_MS)


@pytest.mark.parametrize(
    ("rows", "movements", "kinds"),
    [
        ([row()], [movement()], ["matched"]),
        ([row(movement_id="")], [movement()], ["matched"]),
        ([row(movement_id="", payment_id="", reference=REFERENCE)], [movement()], ["matched"]),
        ([row(), row()], [movement()], ["matched"]),
        ([row(amount=Money("9.00", EUR))], [movement()], ["amount"]),
        ([row(amount=Money("10.00", "USD"))], [movement()], ["currency"]),
        ([row()], [movement(at_ms=DAY_MS)], ["late"]),
        ([row(kind="fee", amount=Money("-1.00", EUR))], [], ["fee"]),
        ([row()], [], ["missing_local"]),
        ([], [movement()], ["missing_provider"]),
        # It may still appear in the gateway's ledger.
        ([], [movement(at_ms=8 * DAY_MS - 1)], []),
        # Another window has it.
        ([], [movement(at_ms=3 * DAY_MS)], []),
        ([], [movement(operation="authorization")], []),
        (
            [row(id="txn_2", kind="refund", amount=Money("-4.00", EUR), movement_id="re_1")],
            [movement(operation="refund", amount=Money("4.00", EUR), movement_id="re_1")],
            ["matched"],
        ),
    ],
)
def test_each_row_and_each_movement_gets_one_class(rows, movements, kinds):
    assert [one.kind for one in found(rows, movements)] == kinds


async def test_the_classes_that_need_the_state_of_the_transaction(gesta, shop):
    """A second charge of one sale, and a charge of a sale that had failed."""
    tx = await sale(shop)
    await tx.outcome(timeout=20)
    view = await tx.view()
    state = view.state
    own = movement(request_id=tx.id, movement_id="ch_1", amount=Money("49.90", EUR))
    reference = Reference("default", "payment.card", tx.id, "sale", 1)
    rows = [
        row(amount=Money("49.90", EUR), reference=reference),
        row(id="txn_2", movement_id="ch_2", amount=Money("49.90", EUR), reference=reference),
    ]
    kinds = [one.kind for one in compare(rows, Books({tx.id: state}, [own]), 0, 9 * DAY_MS)]
    assert kinds == ["matched", "duplicate"]
    declined = await shop.submit(
        card.Sale(Money("49.90", EUR), source="pm_card_chargeDeclined", gateway="stripe-eu")
    )
    await declined.outcome(timeout=20)
    given_up = (await declined.view()).state
    assert given_up.status == "failed"
    again = Reference("default", "payment.card", declined.id, "sale", 1)
    rows = [row(amount=Money("49.90", EUR), reference=again)]
    (late,) = compare(rows, Books({declined.id: given_up}, []), 0, 9 * DAY_MS)
    assert (late.kind, late.operation, late.intent) == ("status", "sale", 1)


class AcmePay(Listing):
    type = "acmepay"


async def test_a_gateway_of_the_programs_own_is_known_to_reconciliation(gesta):
    gateways: Any = [AcmePay(row())]
    async with Engine("memory:", flows=[card.flow(gateways)]) as engine:
        account = ACCOUNT | {"type": "acmepay"}
        await engine.admin.put_config("payment.gateway", "stripe-eu", account)
        report = await reconcile(gesta, engine)
        assert (report.rows, gateways[0].pages) == (2, 2)


async def test_two_commands_at_once_on_one_transaction_need_no_time_to_pass(gesta, shop):
    payload = card.Authorize(Money("20.00", EUR), source="pm_1", gateway="stripe-eu")
    paid = await shop.submit(payload, key="auth")
    await paid.outcome(timeout=20)
    async with asyncio.timeout(10):
        # The clock of the test stands still.
        found = await asyncio.gather(
            *(paid.capture(Money("5.00", EUR), key=key) for key in ("a", "b")),
            return_exceptions=True,
        )
    assert len(found) == 2
    assert "queued" in found


def a_ledger(random: Random) -> tuple[list[LedgerRow], list[Movement]]:
    """Movements and rows of them, each with or without the id of the gateway; some have no row."""
    rows, movements = [], []
    for number in range(random.randint(1, 5)):
        for intent in range(1, random.randint(2, 4)):
            operation = random.choice(["capture", "refund"])
            # Stripe's captures of one payment have the id of its one charge.
            of_gateway = f"ch_{number}" if operation == "capture" else f"re_{number}_{intent}"
            amount = Money(random.choice(["10.00", "10.00", "20.00"]), EUR)
            made = movement(
                request_id=f"r-{number}",
                operation=operation,
                intent=intent,
                amount=amount,
                payment_id=f"pi_{number}",
                movement_id=random.choice(["", of_gateway]),
            )
            movements.append(made)
            if random.random() < 0.9:
                one = row(
                    id=f"txn_{made.name}",
                    kind="charge" if operation == "capture" else "refund",
                    amount=amount if operation == "capture" else -amount,
                    at_ms=made.at_ms + random.randint(0, 1_000),
                    movement_id=random.choice(["", of_gateway]),
                    payment_id=f"pi_{number}",
                )
                rows.append(one)
    return rows, movements


def test_each_row_finds_a_movement_whichever_ids_are_known():
    for seed in range(500):
        rows, movements = a_ledger(Random(seed))
        kinds = Counter(one.kind for one in found(rows, movements))
        missing = len(movements) - len(rows)
        expected = Counter({"matched": len(rows), "missing_provider": missing})
        assert kinds == +expected, seed
