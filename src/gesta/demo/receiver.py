"""The demo's outside world: a webhook receiver that knows orders, and counts what it was asked and
what it did for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from gesta.outbound.http import HttpRequest
from gesta.sandbox.receiver import Call, Fault, Reply
from gesta.sandbox.webhook import WebhookSandbox

#: An address that its owner has given up: every message to it is answered 410 Gone.
RETIRED_PATH = "/webhook/retired"


@dataclass(frozen=True)
class Arrival:
    """A message reached the receiver, whatever it then did about it."""

    order: str
    at_ms: int


class OrderReceiver(WebhookSandbox):
    """Counts by order number and not by message id: a second effect under another id would be a
    second effect all the same.
    """

    def __init__(self, secret: str) -> None:
        super().__init__([secret])
        self.arrivals: list[Arrival] = []

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        call = super().read(request, now_ms)
        if isinstance(call, Reply):
            return call
        self.arrivals.append(Arrival(_order(call.data), now_ms))
        return Reply(410) if request.url.endswith(RETIRED_PATH) else call

    def mishap(self, order: str, fault: Fault) -> None:
        """Let the first message about this order go wrong."""
        self.on(
            lambda call: _order(call.data) == order,
            status=fault.status,
            retry_after=fault.retry_after,
            slow_seconds=fault.slow_seconds,
            drop=fault.drop,
            times=1,
        )

    def arrivals_of(self, order: str) -> list[int]:
        """When messages about this order arrived, epoch milliseconds."""
        return [arrival.at_ms for arrival in self.arrivals if arrival.order == order]

    def received(self, order: str) -> int:
        return len(self.arrivals_of(order))

    def effects_of(self, order: str) -> int:
        return sum(_order(effect.data) == order for effect in self.effects)


def _order(data: dict[str, object]) -> str:
    return str(data.get("order", ""))
