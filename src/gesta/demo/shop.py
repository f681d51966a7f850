"""The shop of the story: it asks gesta to tell others about paid orders, and watches what becomes
of that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gesta.demo.channels import payload_of
from gesta.demo.orders import Order
from gesta.demo.stage import WAREHOUSE, Stage
from gesta.demo.waiting import Stuck, until
from gesta.domain.state import State
from gesta.engine.request import Request
from gesta.flows import webhook
from gesta.sandbox import Fault


class Shop:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.orders: list[Order] = []
        self.others: list[Order] = []

    async def pay(
        self, shows: str, mishap: Fault | None = None, *, endpoint: str = WAREHOUSE
    ) -> Order:
        """A new order, about which somebody is told; the first message about it meets the
        mishap.
        """
        number = f"A-{len(self.orders) + 1}"
        if mishap is not None:
            self._stage.receiver.mishap(number, mishap)
        order = Order(
            number, shows, await self.ask(number, endpoint=endpoint), self._stage.receiver
        )
        self.orders.append(order)
        return order

    async def tell(self, flow: str, shows: str) -> Order:
        """A new order of the other shop, about which somebody is told by another channel."""
        number = f"B-{len(self.others) + 1}"
        request = await self._stage.engine.submit(payload_of(flow, number), key=f"order-{number}")
        order = Order(number, shows, request, self._stage.doors[flow])
        self.others.append(order)
        return order

    async def ask(self, number: str, *, total: int = 42, endpoint: str = WAREHOUSE) -> Request:
        message = webhook.Message("order.paid", {"order": number, "total": total}, endpoint)
        return await self._stage.engine.submit(message, key=f"order-{number}")

    async def until(self, holds: Callable[[], bool | Awaitable[bool]], awaited: str) -> None:
        """Wait until it holds; raises Stuck when it takes too long, or when nobody works any
        more.
        """

        def look() -> bool | Awaitable[bool]:
            if self._stage.worker.has_ended:
                raise Stuck(f"{awaited}: the worker ended by itself")
            return holds()

        await until(self._stage.runtime, look, awaited)

    async def state(self, order: Order, holds: Callable[[State], bool]) -> State:
        """The order's state as soon as it is as wanted."""
        seen: list[State] = []

        async def look() -> bool:
            seen.append((await order.request.view()).state)
            return holds(seen[-1])

        await self.until(look, f"order {order.number} to move on")
        return seen[-1]

    async def sent(self, order: Order) -> State:
        return await self.state(order, lambda state: state.status == "completed")
