"""The events of a request. Stored type names are `<flow>.<Name>.v1` (see codec.py)."""

from typing import Any, Literal

import msgspec


class Actor(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Who decided."""

    user_id: str
    roles: tuple[str, ...] = ()


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The metadata of every event. Stream names are not parsed: the owner is named here."""

    tenant: str
    flow: str
    request_id: str
    occurred_at: int
    correlation_id: str
    causation_id: str
    source: str = "gesta"
    actor: Actor | None = None
    schema_version: int = 1


#: `kind/code` of the tenant's config that an attempt used → the version of that entity.
Used = dict[str, int]


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One fact. Times are epoch milliseconds."""


class Created(Event, frozen=True, gc=False):
    """A request was submitted.

    It was validated before, so it is `queued` and its operation is open.
    """

    id: str
    flow: str
    payload: msgspec.Raw
    operation: str = "send"
    intent: int = 1
    status: str = "queued"
    key: str | None = None
    deliver_at: int | None = None
    expires_at: int | None = None
    priority: int = 5
    #: A test request: it reaches the sandbox only.
    test: bool = False
    #: Executed by external workers, who lease it from its tenant's external queue and report.
    external: bool = False
    #: The caller chose the id. A request of another tenant or flow may have the same one.
    own: bool = False
    #: Facts that only its lifecycle needs, e.g. the amount of a transaction.
    facts: dict[str, Any] = {}


class Updated(Event, frozen=True, gc=False):
    """A decision about a request: opened again (retry, redrive), cancel requested, removed from
    the dead letters.

    `postponed` and `held` cancel a journalled attempt that did not call the provider. `released`: a
    worker has taken it up again.
    """

    change: Literal[
        "retry", "redrive", "cancel_requested", "purged", "postponed", "held", "released"
    ]
    status: str | None = None
    intent: int | None = None
    due_at: int | None = None
    expires_at: int | None = None
    #: The pause, credential or config that holds it.
    held_by: str = ""


class AttemptStarted(Event, frozen=True, gc=False):
    """Journal: this attempt is about to call the provider under this key."""

    attempt: int
    key: str


class AttemptEnd(Event, frozen=True, gc=False, kw_only=True):
    """What is recorded of an attempt; the time of the event is its end.

    `answer` and `traceback` are redacted, and encrypted where the payload has personal fields.
    """

    started_at: int | None = None
    worker: str = ""
    host: str = ""
    http_status: int | None = None
    #: The provider's own code of an error.
    provider_code: str = ""
    #: The first 2 KB of the provider's answer, of an attempt that did not succeed.
    answer: str = ""
    traceback: str = ""


class AttemptFailed(AttemptEnd, frozen=True, gc=False):
    """The attempt had no effect. `next_attempt_at`: when the next one is due, if there is one."""

    attempt: int
    reason: str
    detail: str = ""
    next_attempt_at: int | None = None
    used: Used = {}


class Succeeded(AttemptEnd, frozen=True, gc=False):
    """The effect happened. Each operation of a lifecycle has a class of its own for this."""

    attempts: int
    #: The provider's id of the effect, kept for later matching.
    provider_id: str = msgspec.field(default="", name="providerMessageId")
    #: The provider's name of the recipient.
    target_id: str = ""
    detail: str = ""
    used: Used = {}


class Sent(Succeeded, frozen=True, gc=False):
    """A notification was sent."""


class SentLate(Succeeded, frozen=True, gc=False):
    """Evidence that a notification was sent arrived after gesta had given it up."""


class Completed(Succeeded, frozen=True, gc=False):
    """A task was done."""

    provider_id: str = msgspec.field(default="", name="providerTxnId")


class CompletedLate(Completed, frozen=True, gc=False):
    """Evidence that a task was done arrived after gesta had given it up."""


class Failed(AttemptEnd, frozen=True, gc=False):
    """Final for this intent.

    `retryable`: a redrive makes sense. Nothing is retried automatically.
    """

    reason: str
    attempts: int
    retryable: bool = False
    last_error: str = ""
    used: Used = {}


class OutcomeUnknown(AttemptEnd, frozen=True, gc=False):
    """The effect may have happened.

    `next_at`: when to resend or to ask the provider; absent when a person has to decide.
    """

    attempt: int
    reason: str
    policy: str
    detail: str = ""
    next_at: int | None = None
    used: Used = {}


class OutcomeResolved(Event, frozen=True, gc=False):
    """The provider or a person resolved an unknown outcome."""

    result: Literal["executed", "not_executed", "rejected"]
    by: str
    evidence: str
    provider_message_id: str = ""
    #: After `not_executed`: when the next attempt is due; absent: now, or the request ends.
    next_attempt_at: int | None = None
    #: The operation whose outcome was unknown.
    operation: str = "send"
    #: A person had it executed again: it gets a new budget of attempts, as a redrive does.
    new_budget: bool = False


class Expired(Event, frozen=True, gc=False):
    """Its time to live ended before it was done."""

    attempts: int


class Cancelled(Event, frozen=True, gc=False):
    """Cancelled before the effect, or the `duplicate` of an earlier request."""

    attempts: int
    reason: str = ""
    detail: str = ""


class Ignored(Event, frozen=True, gc=False):
    """An inbound event was received and leads to nothing."""

    reason: str
    detail: str = ""


class Delivered(Event, frozen=True, gc=False):
    """The provider reports that the message arrived. The status stays `sent`."""

    #: The provider's id of the report: a repeated report is not recorded again.
    report: str
    provider_message_id: str = ""
    #: When it happened, according to the provider.
    reported_at: int | None = None


class Bounced(Event, frozen=True, gc=False):
    """The provider reports that it accepted the message but could not deliver it.

    `permanent`: it will not be delivered later either.
    """

    report: str
    reason: str
    permanent: bool = False
    provider_message_id: str = ""
    reported_at: int | None = None


class Complained(Event, frozen=True, gc=False):
    """The provider reports that the recipient does not want such messages."""

    report: str
    reason: str = ""
    provider_message_id: str = ""
    reported_at: int | None = None
