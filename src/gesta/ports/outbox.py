"""Port: requests that were asked for inside a caller's own transaction.

They wait here from its commit until they are appended.

Intake writes, through the caller's connection; draining.py appends. Only a store that can share a
transaction with its callers has one.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gesta.ports.event_store import Append, AppendVerdict, Claimed


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """Checked, sealed and made into its first event by the program that asked."""

    request_id: str
    flow: str
    tenant: str
    append: Append


class Raw(msgspec.Struct, frozen=True, gc=False):
    """As another language asked, through the store's own function: nothing but its form was looked
    at, and nothing is sealed.
    """

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
    """What waits of one flow."""

    flow: str
    is_raw: bool
    count: int
    oldest_ms: int


class Outbox(Protocol):
    async def write(self, within: object, request: Prepared) -> Claimed | None:
        """Write it down in the transaction that is open on `within`; or, nothing written, to whom
        its key leads as far as that transaction sees.

        Nobody waits for that transaction, nor it for anybody. Raises BadTransaction when `within`
        is nothing that it can be part of.
        """

    async def waiting(
        self, flows: Sequence[str], age_ms: int, without: Sequence[str], limit: int
    ) -> list[Prepared | Raw]:
        """The oldest that are committed: prepared ones, and raw ones of these flows; none younger
        than `age_ms`, none of the ids `without`.
        """

    async def drain(self, appends: Sequence[tuple[str, Append]]) -> list[AppendVerdict | None]:
        """Append requests and remove them from here in one commit, a verdict each.

        None: another process has it in hand, or had.

        What is refused (Claimed, Stale) stays here.
        """

    async def standing(self) -> list[OutboxStanding]:
        """How much waits, by flow. Looks at all of it: for people and now and then."""

    async def count(self, limit: int) -> int:
        """How many wait, counted up to a limit."""
