"""Transactions through gesta.client, over a wire that loses answers: each movement happens once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gesta import Money
from gesta.client import Client
from gesta.errors import Conflict, NotFound, Refused
from gesta.flows import card, transfer
from tests.http_api.losing import Hasty, Losing
from tests.http_api.served import Served, served

PRICE = {"amount": "49.90", "currency": "EUR"}
ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}


class Till:
    """A client, its wire and the server behind it."""

    def __init__(self, client: Client, wire: Losing, api: Served) -> None:
        self.client, self.wire, self._api = client, wire, api
        self.stripe = api.sandbox.stripe

    async def pay(self, flow: str = "payment.card", **fields: Any) -> str:
        payload = {"amount": PRICE, "source": "pm_1", **fields}
        request_id: str = (await self.client.submit(flow, payload)).id
        await self.ended(request_id)
        return request_id

    async def ended(self, request_id: str) -> Any:
        """The transaction once its open operation has ended."""
        await (await self._api.engine.request(request_id)).outcome(timeout=20)
        return await self.client.transaction(request_id)

    def kinds(self) -> list[str]:
        return [one.type for one in self.stripe.effects]


@pytest.fixture
async def till(tmp_path) -> AsyncIterator[Till]:
    async with _till(f"sqlite:///{tmp_path / 'gesta.db'}") as one:
        yield one


@asynccontextmanager
async def _till(url: str) -> AsyncIterator[Till]:
    async with (
        served(url, flows=[card.flow(), transfer.flow()]) as api,
        Losing(int(api.address.rpartition(":")[2])) as wire,
        Client(wire.address, await api.key(), runtime=Hasty()) as client,
    ):
        await api.engine.admin.put_config("payment.gateway", "default", ACCOUNT)
        yield Till(client, wire, api)


async def test_a_capture_and_a_refund_whose_answers_are_lost_are_asked_for_again_and_happen_once(
    till,
):
    tx = await till.pay(operation="authorize")
    till.wire.lose = 1
    opened = await till.client.capture(tx, Money("20.00", "EUR"), key="ship", by="ada")
    assert opened.id == tx
    assert str((await till.ended(tx)).captured) == "20.00 EUR"
    with pytest.raises(Conflict):
        await till.client.capture(tx, Money("21.00", "EUR"), key="ship")
    till.wire.lose = 1
    await till.client.refund(tx, Money("5.00", "EUR"), key="back")
    assert str((await till.ended(tx)).refunded) == "5.00 EUR"
    assert till.wire.lost == 2
    assert till.kinds() == ["authorize", "capture", "refund"]


async def test_void_reverse_and_post_through_the_client(till):
    voided, reversed_ = await till.pay(operation="authorize"), await till.pay()
    await till.client.void(voided)
    assert (await till.ended(voided)).status == "cancelled"
    await till.client.reverse(reversed_)
    assert (await till.ended(reversed_)).status == "reversed"
    reserved = await till.pay("payment.transfer", destination="acct_2", operation="reserve")
    await till.client.post_reservation(reserved, Money("20.00", "EUR"), key="p")
    shown = await till.ended(reserved)
    assert (shown.status, str(shown.captured)) == ("captured", "20.00 EUR")
    with pytest.raises(Refused):
        await till.client.void(reversed_)


async def test_an_unknown_transaction_is_resolved_through_the_client(till):
    till.stripe.next(drop=True)
    tx = (await till.client.submit("payment.card", {"amount": PRICE, "source": "pm_1"})).id
    async with asyncio.timeout(20):
        while (shown := await till.client.transaction(tx)).status != "unknown":
            await asyncio.sleep(0.01)
    assert str(shown.unknown) == "49.90 EUR"
    with pytest.raises(Refused, match="no further operation can start"):
        await till.client.refund(tx, key="back")
    seen, beyond = Money("30.00", "EUR"), Money("49.91", "EUR")
    with pytest.raises(Refused, match=r"49\.91 EUR is more than the 49\.90 EUR"):
        await till.client.resolve(tx, "succeeded", evidence="pi_1", amount=beyond)
    await till.client.resolve(tx, "succeeded", evidence="pi_1 in the dashboard", amount=seen)
    shown = await till.client.transaction(tx)
    assert (shown.status, shown.captured) == ("completed", seen)
    assert till.kinds() == ["sale"]


async def test_a_transaction_that_is_not_there_is_not_found(till):
    with pytest.raises(NotFound):
        await till.client.transaction("0190b6f2-7c1a-7000-8000-000000000000")
