"""Requests: what is asked for, what became of it, what was decided."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.structs import Asked, ListOf, Representation
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.domain.lifecycles import Status

#: Names the person that a key acts for.
ACTOR = "Gesta-Actor"
BATCH_MAX = 1_000
WAIT_SECONDS_MAX = 60.0

SubmitVerdict = Literal["created", "duplicate"]
#: Longer than anybody waits, and short enough that its end has a date.
TTL_MAX = timedelta(days=36_500)
TtlSeconds = Annotated[float, msgspec.Meta(gt=0, le=TTL_MAX.total_seconds())]
#: Of which flow something is wanted. PostgreSQL has no text with a zero in it, and would say that
#: it cannot be asked.
FlowName = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
#: Told here, and held by `option_errors`, together with what is wrong with the payload.
Name = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": KEY_LENGTH_MAX})]


class Submit(Asked, frozen=True):
    """A request.

    The tenant is that of the API key, and one of a test key reaches the sandbox and nobody else.
    `key` may come as the header Idempotency-Key instead.
    """

    flow: str
    payload: dict[str, Any]
    key: Name | None = None
    deliver_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    ttl_seconds: TtlSeconds | None = None
    priority: Annotated[int, msgspec.Meta(ge=1, le=10)] = 5
    correlation_id: Name | None = None
    causation_id: Name | None = None


class HeldBy(Representation, frozen=True, omit_defaults=True):
    """What holds a request: a pause, a credential that is refused or missing, or missing config.

    `name` is `kind/code` of the credential or config. A pause without other fields is about
    everything.
    """

    kind: Literal["pause", "credential", "config"]
    flow: str | None = None
    tenant: str | None = None
    name: str | None = None
    #: Why: the operator's words, or what is refused or missing.
    reason: str | None = None

    def __str__(self) -> str:
        """The `scope` of the pause in the list of pauses."""
        name = "credential" if self.kind == "pause" else "refused"
        parts = {"tenant": self.tenant, "flow": self.flow, name: self.name}
        given = (f"{part}:{value}" for part, value in parts.items() if value is not None)
        return " ".join(given) or "everything"


class RequestRepresentation(Representation, frozen=True):
    id: str
    flow: str
    tenant: str
    status: Status
    key: str | None
    attempt_count: int
    reason: str | None
    detail: str | None
    provider_id: str | None
    target_id: str | None
    in_doubt: bool
    cancel_requested: bool
    operation: str
    intent: int
    priority: int
    created_at: str
    updated_at: str
    due_at: str | None
    expires_at: str | None
    correlation_id: str
    version: int
    #: What holds it; null: it is not held.
    held_by: HeldBy | None
    #: It reaches the sandbox and nobody else.
    test: bool
    #: What the provider reported after it was sent, and why, in a word.
    delivered_at: str | None
    bounced_at: str | None
    bounce: str | None
    complained_at: str | None
    complaint: str | None


class Whole(RequestRepresentation, frozen=True):
    """A request with what was asked, what is personal in it masked; null: its flow is not declared
    in this process.
    """

    payload: dict[str, Any] | None = None


class EventRepresentation(Representation, frozen=True):
    version: int
    type: str
    at: str
    actor: str | None
    data: dict[str, Any]


class StreamEvent(EventRepresentation, frozen=True):
    """An event of a request."""

    request_id: str
    flow: str


class AttemptRepresentation(msgspec.Struct, rename="camel"):
    """Not frozen: its end is filled in when it is met."""

    number: int
    started_at: str | None = None
    ended_at: str | None = None
    outcome: Literal["retry", "unknown", "done", "rejected"] | None = None
    reason: str | None = None
    detail: str | None = None
    next_at: str | None = None
    used: dict[str, int] = {}
    duration_ms: int | None = None
    #: The process that ran it, and its host.
    worker: str | None = None
    host: str | None = None
    http_status: int | None = None
    #: The provider's own code of an error.
    provider_code: str | None = None
    #: The first 2 KB of the provider's answer, redacted.
    answer: str | None = None
    traceback: str | None = None


class SubmitWarning(Representation, frozen=True):
    """Why an accepted request will be held. `code` is stable, `message` is for people."""

    code: str
    message: str


class Submitted(Representation, frozen=True, omit_defaults=True):
    """The request is on disk. `request` is present when the call waited for its end."""

    id: str
    flow: str
    verdict: SubmitVerdict
    request: RequestRepresentation | None = None
    #: Why the request will be held.
    warnings: tuple[SubmitWarning, ...] = ()


class BatchResult(Representation, frozen=True, omit_defaults=True):
    """What became of one request of a batch.

    With `invalid`, `conflict` and `not_written` nothing was stored.
    """

    verdict: Literal["created", "duplicate", "conflict", "invalid", "not_written"]
    id: str | None = None
    flow: str | None = None
    problem: ProblemRepresentation | None = None
    #: Why the request will be held.
    warnings: tuple[SubmitWarning, ...] = ()


class Results(ListOf[BatchResult], frozen=True):
    """One for each request, in the order of the batch."""


class Page(ListOf[RequestRepresentation], frozen=True):
    """Newest first."""


class Timeline(ListOf[EventRepresentation], frozen=True):
    """Every event of a request, oldest first."""


class Attempts(ListOf[AttemptRepresentation], frozen=True):
    """Every attempt of a request, oldest first."""


class Decided(Representation, frozen=True):
    id: str
    flow: str
    status: Status
