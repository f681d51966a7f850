"""Who gets no more messages, and who is told of what happens, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gesta.api_types.structs import PAGE_MAX
from gesta.api_types.subscriptions import SubscriptionsShape, SuppressedPage, SuppressedShape
from gesta.client.calls import Calls


class ToldCalls(Calls):
    async def suppressed(
        self, flow: str, *, limit: int | None = None
    ) -> AsyncIterator[SuppressedShape]:
        """Addresses that get no more messages of this flow, masked."""
        async for one in self.pages(
            "suppression", flow, answer=SuppressedPage, query={}, limit=limit, page=PAGE_MAX
        ):
            yield one

    async def suppress(
        self, flow: str, address: str, *, reason: str = "by hand", by: str | None = None
    ) -> SuppressedShape:
        """No more messages of this flow to this address. Safe to repeat."""
        body = {"address": address, "reason": reason}
        return await self.change(
            "PUT", "suppression", flow, answer=SuppressedShape, body=body, by=by
        )

    async def find_suppressed(self, flow: str, address: str) -> SuppressedShape:
        """Why an address gets no messages; raises NotFound where it does."""
        return await self.post(
            "suppression",
            flow,
            "find",
            answer=SuppressedShape,
            body={"address": address},
            repeat=True,
        )

    async def unsuppress(self, flow: str, entry_id: str, *, by: str | None = None) -> None:
        """Messages may go there again. Not repeated when the answer is lost."""
        await self.change(
            "DELETE", "suppression", flow, entry_id, answer=type(None), by=by, repeat=False
        )

    async def subscriptions(self) -> SubscriptionsShape:
        """Who is told of what happens."""
        return await self.read("subscriptions", answer=SubscriptionsShape)

    async def forget_subscription(self, name: str, *, by: str | None = None) -> None:
        """Forget the place of a handler that no program declares any more.

        Not repeated when the answer is lost.
        """
        await self.change("DELETE", "subscriptions", name, answer=type(None), by=by, repeat=False)
