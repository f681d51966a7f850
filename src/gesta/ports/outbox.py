"""Port: requests that were submitted in a caller's own transaction.

They wait here from its commit until they are appended. Intake writes them through the caller's
connection; intake/outbox_drain.py appends them. Only a store that can share a transaction with its
callers has an outbox.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gesta.ports.event_store import Append, AppendVerdict, Claimed


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A request that the submitting program has validated, encrypted and made into an event."""

    request_id: str
    flow: str
    tenant: str
    append: Append


class Raw(msgspec.Struct, frozen=True, gc=False):
    """A request from the SQL function of the store: neither validated nor encrypted."""

    request_id: str
    flow: str
    tenant: str
    created_ms: int
    #: JSON text.
    payload: str
    key: str | None = None
    deliver_at_ms: int | None = None
    ttl_ms: int | None = None
    priority: int = 5
    correlation_id: str | None = None


class OutboxStanding(msgspec.Struct, frozen=True):
    """How many requests of a flow wait."""

    flow: str
    is_raw: bool
    count: int
    oldest_ms: int


class Outbox(Protocol):
    async def write(self, within: object, request: Prepared) -> Claimed | None:
        """Write a request in the transaction that is open on `within`.

        Claimed: the transaction sees that the key leads to another request; nothing was written.
        Neither waits for other transactions nor makes them wait. Raises BadTransaction if `within`
        is no open transaction.
        """

    async def waiting(
        self, flows: Sequence[str], age_ms: int, without: Sequence[str], limit: int
    ) -> list[Prepared | Raw]:
        """The oldest committed requests: prepared ones, and raw ones of these flows. None is
        younger than `age_ms`, none has an id of `without`.
        """

    async def drain(self, appends: Sequence[tuple[str, Append]]) -> list[AppendVerdict | None]:
        """Append requests and remove them from the outbox in one commit; a verdict each.

        None: another process drains or has drained it. A refused one (Claimed, Stale) stays.
        """

    async def standing(self) -> list[OutboxStanding]:
        """How many wait, by flow. Reads all of them: for operators."""

    async def count(self, limit: int) -> int:
        """How many wait, counted up to `limit`."""
