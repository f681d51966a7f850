"""Requests that wait for a person: dead letters and unknown outcomes."""

from typing import Any

from gesta.api_types.requests import RequestRepresentation
from gesta.api_types.structs import Representation


class Failure(Representation, frozen=True):
    """Why a request is a dead letter, and until when it is kept."""

    reason: str
    detail: str | None
    at: str
    attempt_count: int
    kept_until: str


class DeadLetter(RequestRepresentation, frozen=True, kw_only=True):
    """A request that failed finally, without its payload."""

    failure: Failure
    #: Of one letter, where an inbound event led to the request: the event, the error and the
    #: counters in the form of the boundary queue.
    message: dict[str, Any] | None = None


class UnknownOutcome(RequestRepresentation, frozen=True, kw_only=True):
    """A request whose effect may or may not have happened.

    `since` is the time of the last report that left it unknown, `ageSeconds` the time since then.
    """

    since: str
    age_seconds: int
