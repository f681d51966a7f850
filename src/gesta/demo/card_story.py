"""The scenes of the demo with money: a capture whose answer is lost and found, and a settlement."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gesta.demo.orders import Order
from gesta.domain.money import Money
from gesta.domain.state import State
from gesta.engine.request import Request
from gesta.errors import InDoubt
from gesta.flows import card, settlement
from gesta.flows.flow import Payload
from gesta.sandbox.receiver import Call
from gesta.sandbox.stripe import FakeStripe

if TYPE_CHECKING:
    from gesta.demo.story import Shop, Story

#: What moves money; an authorization only reserves it.
_MOVES = frozenset({"sale", "capture", "payout"})


class Till:
    """The fake of Stripe, and how often it was asked to move the money of each order."""

    def __init__(self, fake: FakeStripe) -> None:
        self.fake = fake
        #: Order → the request whose id is in the idempotency keys.
        self.requests: dict[str, str] = {}
        self._asked: Counter[str] = Counter()
        fake.on(self._note)

    def _note(self, call: Call) -> bool:
        if call.key is not None and call.type in _MOVES:
            self._asked[call.key.split(":")[1]] += 1
        return False

    def received(self, order: str) -> int:
        return self._asked[self.requests[order]]

    def effects_of(self, order: str) -> int:
        return sum(
            effect.type in _MOVES and self.requests[order] in effect.id
            for effect in self.fake.effects
        )


class CardStory:
    """`begin` loses an answer, `end` shows that it was found; the story goes on in between."""

    def __init__(self, story: Story, shop: Shop) -> None:
        self._story, self._shop, self._till = story, shop, Till(story.stage.stripe)
        self._say, self._act = story.stage.screen.say, story.stage.screen.act

    async def begin(self) -> None:
        self._act("A card payment whose answer is lost")
        price = Money("49.90", "EUR")
        order = await self._order(card.Authorize(price, source="pm_1"), "capture lost, looked up")
        await self._shop.state(order, lambda state: state.status == "authorized")
        self._till.fake.on("capture", drop=True, times=1)
        await order.request.capture(key="ship")
        state = await self._shop.state(order, lambda state: state.status == "unknown")
        self._say(
            f"{order.number}: {price} are authorized. The capture reaches Stripe and takes the"
            f" money, but the answer is lost: {state.status} ({state.reason})."
        )
        refused = await _is_refused(order.request)
        self._story.expect("no money moves while an outcome is unknown", is_so=refused)
        self._say(
            "A refund is refused meanwhile: the amount that can be refunded is not known yet."
        )

    async def end(self) -> None:
        self._act("The capture is found, and a settlement pays out")
        (order,) = self._shop.payments
        state = await self._shop.state(order, _is_captured)
        asked = self._till.received(order.number)
        self._story.expect("a capture that is found is not sent again", is_so=asked == 1)
        self._say(
            f"{order.number} is {state.status}: gesta asked Stripe by its own reference, and"
            " Stripe has the capture. It was not sent again."
        )
        other = await self._order(card.Sale(Money("20.00", "EUR"), source="pm_1"), "card, at once")
        await self._shop.state(other, _is_captured)
        rows = self._till.fake.ledger
        fees = Money.of_minor(sum(row["fee"] for row in rows), "EUR")
        amount = Money.of_minor(sum(row["net"] for row in rows), "EUR")
        settle = settlement.Settle(
            amount, transactions=tuple(one.request.id for one in self._shop.payments), fees=fees
        )
        paid_out = await self._order(settle, "settlement of both")
        await self._shop.state(paid_out, _is_captured)
        self._say(
            f"{order.number} and {other.number} are settled: {amount} go to the bank, {fees} are"
            " Stripe's fees. The sum was checked before the payout."
        )

    async def _order(self, payload: Payload, shows: str) -> Order:
        number = f"D-{len(self._shop.payments) + 1}"
        request = await self._story.stage.engine.submit(payload, key=f"order-{number}")
        self._till.requests[number] = request.id
        order = Order(number, shows, request, self._till)
        self._shop.payments.append(order)
        return order


def _is_captured(state: State) -> bool:
    return state.status in ("captured", "completed")


async def _is_refused(request: Request) -> bool:
    try:
        await request.refund(key="back")
    except InDoubt:
        return True
    return False
