"""A store with open payments is rebuilt and copied: each payment goes on where it was, nothing is
charged twice, and nothing is forgotten.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as changed

from gesta import Engine, Flow, Money, Payload, Request, Saga, saga
from gesta.domain.state import State
from gesta.domain.transaction.funds import funds_of
from gesta.flows import card, settlement
from gesta.payments.ledger import errors_of
from gesta.ports.read_model import Filter
from gesta.sandbox.server import SandboxServer
from tests.crash.cashier import SOON
from tests.maintenance.store_copy.stage import OPERATOR, Stage, eventually, shorten_leases
from tests.stores.postgresql.places import fresh_url

PRICE = Money("49.90", "EUR")


class Purchase(Payload, frozen=True):
    total: Money


@saga("saga.purchase")
async def purchase(order: Purchase, steps: Saga) -> None:
    payment = await steps.step("reserve", card.Authorize(order.total, source="pm_1"))
    await steps.step("capture", payment.capture(order.total))


class Shop(Stage):
    """Card payments at a fake of Stripe, which is not copied."""

    def settings(self, name: str) -> Any:
        return replace(super().settings(name), allow_private=("127.0.0.1/32",))

    def engine(self, name: str, *, work: bool = True) -> Engine:
        cards = card.flow(timeout_seconds=5)
        rules = changed(cards.rules, ask_after_seconds=0.1, asking=SOON, retry=SOON)
        flows: list[Flow] = [replace(cards, rules=rules), settlement.flow(), purchase]
        return Engine(flows=flows, settings=self.settings(name), work=work)


@pytest.fixture(params=["to a server", "from a server"])
async def shop(tmp_path, monkeypatch, request):
    shorten_leases(monkeypatch)
    name = "target" if request.param == "to a server" else "source"
    return Shop(tmp_path, {name: await fresh_url()})


async def states(engine: Engine) -> dict[str, State]:
    views = await engine.pipeline.environment.stores.read_model.find(Filter("default", limit=100))
    return {view.state.id: view.state for view in views}


async def status_is(request: Request, expected: str) -> bool:
    return await request.status() == expected


@pytest.mark.slow
async def test_open_payments_and_a_saga_go_on_after_a_rebuild_and_in_the_copy(shop):
    async with SandboxServer() as server:
        stripe = server.sandbox.stripe
        async with shop.engine("source") as engine:
            account = {
                "type": "stripe",
                "account": "acct_1",
                "api_key": "sk_test_1",
                "api_url": f"{server.url}/stripe",
            }
            await engine.admin.put_config("payment.gateway", "default", account)
            held = await engine.submit(card.Authorize(PRICE, source="pm_1"), key="held")
            await held.outcome()
            # Every answer is lost from now on, but the authorization of the saga.
            stripe.on(lambda call: ":authorization:" not in str(call.key), drop=True)
            lost = await engine.submit(card.Sale(PRICE, source="pm_1"), key="lost")
            bought = await engine.submit(Purchase(PRICE), key="bought")
            await eventually(lambda: status_is(lost, "unknown"))
            await eventually(lambda: status_is(bought, "waiting"))
            await eventually(lambda: bool(captures(stripe)))
            await eventually(lambda: all_unknown(engine, 2))
        async with shop.engine("source", work=False) as engine:
            before = await states(engine)
            await engine.admin.rebuild()
            assert await states(engine) == before
            waiting = await engine.submit(card.Sale(PRICE, source="pm_1"), key="waiting")
        await shop.copy()
        stripe.heal()
        async with shop.engine("target") as engine:
            await eventually(lambda: has_statuses(engine))
            await engine.admin.resume_everything(OPERATOR)
            for request in (lost, bought, waiting):
                again = await engine.request(request.id)
                await eventually(partial(status_is, again, "completed"))
            again = await engine.request(held.id)
            await again.capture(key="ship")
            await eventually(partial(status_is, again, "captured"))
            found = await states(engine)
    payments = [one for one in found.values() if one.flow == card.NAME]
    assert [errors_of(one) for one in payments] == [[]] * 4
    assert [funds_of(one).captured for one in payments] == [PRICE.minor] * 4
    # S1-2: the same keys in both stores.
    assert set(Counter(one.id for one in stripe.effects).values()) == {1}
    assert len(list(stripe.books.of_kind("payment_intent"))) == 4


def captures(stripe: Any) -> list[str]:
    return [one.id for one in stripe.effects if ":capture:" in one.id]


async def has_statuses(engine: Engine) -> bool:
    """Nothing has gone on before the resume."""
    found = Counter(one.status for one in (await states(engine)).values())
    return found == {"authorized": 1, "unknown": 2, "waiting": 1, "queued": 1}


async def all_unknown(engine: Engine, count: int) -> bool:
    return Counter(one.status for one in (await states(engine)).values())["unknown"] == count
