"""Port: the boundary queue, through which other programs send events to gesta and receive them.

Its messages are those of domain/event_message.py. It delivers at least once, in any order. Beside
it is its dead-letter queue.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gesta.domain.event_message import Attributes


class Envelope(msgspec.Struct, frozen=True):
    """A body and its attributes, as they are sent."""

    body: bytes
    attributes: Attributes
    #: Empty: the tenant of the installation. Not part of the message, so only sent for others.
    tenant: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """A received message. `receipt` names this delivery."""

    envelope: Envelope
    receipt: str
    #: How often the broker has delivered it, this time included.
    receives: int
    #: When it was sent, epoch milliseconds.
    sent_ms: int


class BoundaryCounts(msgspec.Struct, frozen=True):
    """How many messages there are, as the broker reports it."""

    waiting: int
    in_flight: int
    dead: int
    #: When the oldest waiting message was sent, as far as gesta knows: see queue_age.py.
    oldest_ms: int | None = None


class DeadLetterQueue(Protocol):
    async def bury(self, envelopes: Sequence[Envelope]) -> None:
        """Send there. Durable when it returns. Raises as `BoundaryQueue.send`."""

    async def dead_letters(self, limit: int, seconds: int) -> list[Delivery]:
        """Up to `limit` dead letters, hidden for so long."""

    async def hide_dead(self, deliveries: Sequence[Delivery], seconds: int) -> None: ...

    async def delete_dead(self, deliveries: Sequence[Delivery]) -> None: ...


class BoundaryQueue(DeadLetterQueue, Protocol):
    #: How it is shown.
    name: str
    #: How long a received message is hidden.
    visibility_seconds: int

    async def send(self, envelopes: Sequence[Envelope], delay_seconds: int = 0) -> None:
        """Durable when it returns. Raises MessagesRefused for those that were not taken; after any
        other StoreError it is unknown which were.
        """

    async def receive(self, limit: int, wait_seconds: int) -> list[Delivery]:
        """Up to `limit` messages, hidden from other receivers for `visibility_seconds`."""

    async def hide(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        """Hide them for this long from now; 0: others may receive them immediately."""

    async def delete(self, deliveries: Sequence[Delivery]) -> None:
        """A message that no longer exists counts as deleted."""

    async def arn(self) -> str:
        """The queue name that is written into a dead letter."""

    async def counts(self) -> BoundaryCounts: ...

    async def close(self) -> None: ...
