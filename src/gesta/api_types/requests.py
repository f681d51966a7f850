"""Requests: submit, state, events, attempts."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from gesta.api_types.config_commands import put_command, resume_command
from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.structs import Asked, Representation
from gesta.domain.hold_words import hold_words
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.domain.lifecycles import Status

#: The header that names the person on whose behalf the key acts.
ACTOR = "Gesta-Actor"
BATCH_MAX = 1_000
WAIT_SECONDS_MAX = 60.0

SubmitVerdict = Literal["created", "duplicate"]
#: Bounded so that the end of the time to live is a valid date.
TTL_MAX = timedelta(days=36_500)
TtlSeconds = Annotated[float, msgspec.Meta(ge=0.001, le=TTL_MAX.total_seconds())]
#: The name of a flow in a filter. PostgreSQL text cannot contain a zero byte.
#: The reason where a credential is missing.
SECRET_MISSING = "secret_missing"  # noqa: S105 -- a word for people
FlowName = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
#: `option_errors` checks this, so that its error is reported together with those of the payload.
Name = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": KEY_LENGTH_MAX})]


class Submit(Asked, frozen=True):
    """A request.

    The tenant is that of the API key. Requests of a test key reach only the sandbox. The header
    Idempotency-Key may carry `key` instead.
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

    @property
    def sentence(self) -> str:
        """What holds the request, and what ends that."""
        reason, (kind, _, entity) = self.reason or "", (self.name or "").partition("/")
        if self.kind == "pause":
            return f"{hold_words(str(self))} is paused" + (f" ({reason})" if reason else "")
        if self.kind == "config":
            return reason.partition(": ")[2] or reason
        code, _, cause = reason.partition(": ")
        if code == SECRET_MISSING:
            return (
                f"{self.name} has no secret ({cause}); set it and restart the program, or store it:"
                f" gesta {put_command(kind, entity)}"
            )
        return (
            f"the provider refuses {self.name} ({reason}); store a new one: gesta"
            f" {put_command(kind, entity)}"
        )

    @property
    def resume(self) -> str:
        """The command that ends a pause; empty where `sentence` already says what to do."""
        return "" if self.kind != "pause" else resume_command(self.flow, self.tenant, self.name)

    @property
    def advice(self) -> str:
        """The sentence, and the command that ends a pause."""
        return self.sentence + (f"; to resume: `gesta {self.resume}`" if self.resume else "")


class RequestRepresentation(Representation, frozen=True):
    id: str
    flow: str
    tenant: str
    status: Status
    key: str | None
    #: How many attempts it has had, those before a redrive included.
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
    #: A test request reaches only the sandbox.
    test: bool
    #: Delivery receipts of the provider, each with a short reason.
    delivered_at: str | None
    bounced_at: str | None
    bounce: str | None
    complained_at: str | None
    complaint: str | None


class Whole(RequestRepresentation, frozen=True):
    """A request with its payload; personal fields are masked. `payload` is null where this process
    does not declare the flow.
    """

    payload: dict[str, Any] | None = None


class EventRepresentation(Representation, frozen=True):
    version: int
    type: str
    at: str
    actor: str | None
    data: dict[str, Any]


class StreamEvent(EventRepresentation, frozen=True):
    request_id: str
    flow: str


class AttemptRepresentation(msgspec.Struct, rename="camel"):
    """Not frozen: a later event fills in the end of the attempt."""

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


#: Codes of warnings about an address that may not be called. All others say what holds a request.
WILL_FAIL = frozenset({"private_address", "plain_http"})


class SubmitWarning(Representation, frozen=True):
    """Why an accepted request will be held, or will probably fail.

    `code` is stable, `message` is for people.
    """

    code: str
    message: str


class Submitted(Representation, frozen=True, omit_defaults=True):
    """The request is on disk. `request` is present when the call waited for its end."""

    id: str
    flow: str
    verdict: SubmitVerdict
    request: RequestRepresentation | None = None
    #: Why the request will be held, or will probably fail.
    warnings: tuple[SubmitWarning, ...] = ()


class BatchResult(Representation, frozen=True, omit_defaults=True):
    """The verdict on one request of a batch.

    With `invalid`, `conflict` and `not_written` nothing was stored.
    """

    verdict: Literal["created", "duplicate", "conflict", "invalid", "not_written"]
    id: str | None = None
    flow: str | None = None
    problem: ProblemRepresentation | None = None
    #: Why the request will be held, or will probably fail.
    warnings: tuple[SubmitWarning, ...] = ()


class Decided(Representation, frozen=True, omit_defaults=True):
    id: str
    flow: str
    status: Status
    #: What holds it now, so that no attempt begins; absent: it is not held.
    held_by: HeldBy | None = None
