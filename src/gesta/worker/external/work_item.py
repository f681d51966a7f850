"""What is handed out, and what a holder hears of it later.

Field names are the wire's; times are epoch milliseconds.
"""

from __future__ import annotations

import msgspec

from gesta.domain.ids import idempotency_key
from gesta.domain.state import State


class WorkItem(msgspec.Struct, frozen=True, rename="camel"):
    """A request in somebody's hands.

    Its payload is in clear: it goes to whoever executes it, and nowhere else.
    """

    flow: str
    id: str
    #: Proves that the work is the holder's; every report and extension carries it.
    token: str
    #: Report before this, or ask for more time.
    lease_until: int
    #: The number of this attempt, from 1.
    attempt: int
    #: What the effect is to be deduped by: the same for every attempt.
    key: str
    payload: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"))
    correlation_id: str = ""
    created_at: int = 0
    due_at: int | None = None
    #: Nobody wants it any more after this.
    expires_at: int | None = None
    priority: int = 5
    #: Somebody has called it back: stop if that can be done, and report what is so.
    cancel_requested: bool = False

    def __repr__(self) -> str:
        # The payload and the token are nobody's business but the holder's.
        return f"WorkItem({self.flow} {self.id} attempt {self.attempt})"


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """How long the work is the holder's, from now on."""

    lease_until: int
    cancel_requested: bool


class Reported(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The request after a report. The same report again hears what counts by then."""

    flow: str
    id: str
    status: str
    attempts: int
    reason: str = ""
    #: When it is handed out again.
    next_attempt_at: int | None = None


def item_of(state: State, token: str, lease_until: int, payload: bytes) -> WorkItem:
    return WorkItem(
        state.flow,
        state.id,
        token,
        lease_until,
        state.attempts + 1,
        idempotency_key(state.tenant, state.id, state.operation, state.intent),
        msgspec.Raw(payload),
        state.correlation_id,
        state.created_at,
        state.due_at,
        state.expires_at,
        state.priority,
        state.cancel_requested,
    )


def reported(state: State) -> Reported:
    next_at = state.due_at if state.wants is not None else None
    return Reported(state.flow, state.id, state.status, state.attempts, state.reason, next_at)
