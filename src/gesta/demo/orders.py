"""The requests of the demo, and what is counted of each in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from gesta.engine.request import Request


class Receiving(Protocol):
    """Somebody outside who counts."""

    def received(self, order: str) -> int: ...
    def effects_of(self, order: str) -> int: ...


@dataclass(frozen=True)
class Order:
    """One request and what it is there to show."""

    number: str
    shows: str
    request: Request
    receiver: Receiving


@dataclass(frozen=True)
class Tally:
    """What gesta says of a request, and what the receiver counted."""

    order: str
    shows: str
    id: str
    status: str
    attempts: int
    received: int
    effects: int

    @property
    def is_right(self) -> bool:
        return self.status == "completed" and self.effects == 1


@dataclass(frozen=True)
class OrderResult:
    tallies: Sequence[Tally]
    #: What did not go as gesta promises, beside the counts.
    broken: Sequence[str]
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.broken and all(tally.is_right for tally in self.tallies)

    def as_document(self) -> dict[str, Any]:
        """For --json. The keys are stable: scripts build on them."""
        requests = [asdict(tally) for tally in self.tallies]
        return {
            "ok": self.is_right,
            "seconds": round(self.seconds, 1),
            "broken": list(self.broken),
            "requests": requests,
        }


async def tally(order: Order) -> Tally:
    state = (await order.request.view()).state
    received, effects = (
        order.receiver.received(order.number),
        order.receiver.effects_of(order.number),
    )
    return Tally(
        order.number, order.shows, state.id, state.status, state.attempts, received, effects
    )
