"""Work that is leased to external workers."""

from typing import Any

from gesta.api_types.structs import Representation
from gesta.domain.money import Money

#: The header that carries the lease token of calls without a body. It is never in the URL, because
#: URLs are logged.
LEASE = "Gesta-Lease"


class Work(Representation, frozen=True):
    """A request that is leased to an external worker. Every report and extension carries its
    `token`.
    """

    flow: str
    id: str
    token: str
    #: Report or extend before this time; otherwise the outcome becomes unknown.
    lease_until: str
    attempt: int
    #: The idempotency key of the effect, the same for every attempt.
    key: str
    payload: dict[str, Any]
    correlation_id: str
    created_at: str
    due_at: str | None
    expires_at: str | None
    priority: int
    #: The request is to be cancelled: stop if possible, and report what happened.
    cancel_requested: bool
    #: What to do, where a request has several operations: `authorization`, `capture`.
    operation: str = "send"
    #: The amount of the operation of a transaction.
    amount: Money | None = None


class Extended(Representation, frozen=True):
    """The new end of the lease; an extension never shortens it."""

    lease_until: str
    cancel_requested: bool


class Recorded(Representation, frozen=True):
    """The request after the report. A repeated report is answered with the current state."""

    flow: str
    id: str
    status: str
    attempt_count: int
    reason: str | None
    #: When the request can be leased again.
    next_attempt_at: str | None
