"""Work that is leased to external workers."""

from typing import Any

from gesta.api_types.structs import ListOf, Representation

#: The header that carries the token of a lease where there is no body; never the address, which
#: ends in logs.
LEASE = "Gesta-Lease"


class Work(Representation, frozen=True):
    """A request in somebody's hands. Every report and extension carries its `token`."""

    flow: str
    id: str
    token: str
    #: Report before this, or ask for more time: without a report the outcome is unknown.
    lease_until: str
    attempt: int
    #: What the effect is to be deduped by: the same for every attempt.
    key: str
    payload: dict[str, Any]
    correlation_id: str
    created_at: str
    due_at: str | None
    expires_at: str | None
    priority: int
    #: Somebody has called it back: stop if that can be done, and report what is so.
    cancel_requested: bool


class WorkItems(ListOf[Work], frozen=True):
    """The work that was leased to the caller."""


class Extended(Representation, frozen=True):
    """How long the work is the holder's from now on; never shorter than it was."""

    lease_until: str
    cancel_requested: bool


class Recorded(Representation, frozen=True):
    """The request after the report. The same report again hears what counts by then."""

    flow: str
    id: str
    status: str
    attempts: int
    reason: str | None
    #: When it is handed out again.
    next_attempt_at: str | None
