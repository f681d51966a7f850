"""Reconciliation and schedules on PostgreSQL: corrected once, run once, whichever process does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from gesta import Engine, Money, Request
from gesta.domain.transaction.funds import funds_of
from gesta.flows import card
from gesta.payments.ledger import errors_of
from gesta.sandbox.receiver import Call
from tests.http_api.served import Served, served
from tests.stores.postgresql.places import Note, engine_at, fresh_url, opened, projected

ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}


def _is_look_up(call: Call) -> bool:
    return call.key is None and call.data["_kind"] == "payment_intents"


async def lost_sale(api: Served) -> Request:
    """A sale that the gateway made, whose answer was lost, and which it will not answer for."""
    api.sandbox.stripe.next(drop=True)
    api.sandbox.stripe.on(_is_look_up, status=500)
    tx = await api.engine.submit(card.Sale(Money("20.00", "EUR"), source="pm_1"), key="lost")
    async with asyncio.timeout(20):
        while (await tx.view()).state.phase != "unknown":
            await asyncio.sleep(0.01)
    return tx


async def test_reconciliation_finds_a_lost_sale_in_the_ledger_and_corrects_it_once():
    async with served(await fresh_url(), flows=[card.flow()]) as api:
        admin = api.engine.admin
        await admin.put_config("payment.gateway", "default", ACCOUNT)
        paid = await api.engine.submit(card.Sale(Money("49.90", "EUR"), source="pm_1"), key="paid")
        await paid.outcome(timeout=20)
        lost = await lost_sale(api)
        await projected(api.engine)
        until = datetime.now(UTC) + timedelta(minutes=1)
        first, second = [
            await admin.reconcile("default", until - timedelta(days=3), until) for _ in range(2)
        ]
        state = (await lost.view()).state
        assert (state.status, funds_of(state).captured) == ("completed", 2_000)
        assert errors_of(state) == []
        # S1-25: a second run adds nothing to how it was resolved, and to its completion.
        assert (first.corrections, second.corrections) == (2, 0)
        assert second.counts == {"matched": 2}
        assert len(api.sandbox.stripe.effects) == 2
        kept = [
            one.stream
            for one in await api.engine.pipeline.environment.stores.events.follow(0, 1_000)
            if one.stream.startswith("reconciliation")
        ]
        assert len(kept) == 2


async def test_a_schedule_that_is_due_runs_once_though_two_processes_have_it():
    url, ran = await fresh_url(), []

    def made() -> Engine:
        engine = engine_at(url)

        @engine.every("0 7 1 1 *", zone="Europe/Berlin", name="yearly")
        async def yearly(due: datetime) -> Note:
            ran.append(due)
            return Note(f"{due.isoformat()}")

        return engine

    async with opened(url) as stores:
        # It ran last before the first of January of this year.
        year = datetime.now(UTC).year
        before = datetime(year - 1, 6, 1, tzinfo=UTC)
        await stores.checkpoints.begin("schedule/yearly", round(before.timestamp() * 1000))
        due = datetime(year, 1, 1, 6, tzinfo=UTC)
        async with made() as first, made():
            async with asyncio.timeout(30):
                while await stores.checkpoints.position("schedule/yearly") != round(
                    due.timestamp() * 1000
                ):
                    await asyncio.sleep(0.02)
            await projected(first)
            found = await first.find()
    assert [view.state.key for view in found] == [f"schedule/yearly/{year}-01-01T06:00Z"]
    # One at a time: the function ran once, in Berlin's time.
    assert [one.isoformat() for one in ran] == [f"{year}-01-01T07:00:00+01:00"]
