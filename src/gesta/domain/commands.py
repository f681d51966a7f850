"""Commands about a request, and the rules of the flow that decide them."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gesta.domain.outcome import Outcome, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy


class CommandRefused(Exception):
    """The command is impossible in this state. `code` is stable; the text is for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Rules(msgspec.Struct, frozen=True, gc=False):
    """The rules of a flow for its requests."""

    retry: RetryPolicy = RetryPolicy()
    on_unknown: UnknownPolicy = "manual"
    #: How long the provider remembers the idempotency key, from the first attempt; None: forever.
    key_protects_seconds: float | None = None
    #: How long after an unknown outcome the provider is first asked, and the shortest pause between
    #: two questions.
    ask_after_seconds: float = 5.0
    #: How often a provider whose answer is inconclusive is asked again: for about four hours, then
    #: a person decides.
    asking: RetryPolicy = RetryPolicy(attempts=30, base_seconds=10.0, cap_seconds=900.0)
    #: Whether a cancel ends a request although an attempt may have been executed. For work that may
    #: run any number of times and has no effect outside the program.
    cancels_unknown: bool = False


class Command(msgspec.Struct, frozen=True, gc=False):
    """A command about one request. The lifecycle defines which commands it accepts."""


class Create(Command, frozen=True, gc=False):
    id: str
    flow: str
    payload: bytes
    at: int
    key: str | None = None
    deliver_at: int | None = None
    ttl_ms: int | None = None
    priority: int = 5
    test: bool = False
    external: bool = False
    own: bool = False
    #: The first operation; empty: the first one of the lifecycle.
    operation: str = ""
    #: Facts that only its lifecycle needs.
    facts: Mapping[str, Any] = {}


class Start(Command, frozen=True, gc=False):
    """Journal an attempt before the call."""

    key: str
    #: Journal fields that only its lifecycle needs.
    facts: Mapping[str, Any] = {}
    #: The operation and intent that the call is for; None: those that are open.
    operation: str | None = None
    intent: int | None = None

    def is_for(self, operation: str, intent: int) -> bool:
        """Whether the call is for these."""
        return self.operation in (None, operation) and self.intent in (None, intent)


class RecordOutcome(Command, frozen=True, gc=False):
    """An attempt ended. `chance` is a random number in [0, 1) from the caller."""

    outcome: Outcome
    attempt: int
    at: int
    chance: float = 0.0
    #: The intent of the attempt; None: the one that is open. After a forced new intent, attempt
    #: numbers may repeat.
    intent: int | None = None
    #: `kind/code` of the config that it used → the version.
    used: Mapping[str, int] = {}
    #: Whether the provider was called, or may have been. A refusal by the engine says nothing about
    #: an earlier attempt.
    called: bool = True
    #: The operation that was attempted; None: the one that is open.
    operation: str | None = None
    #: The fields of events.AttemptEnd.
    facts: Mapping[str, Any] = {}


class Postpone(Command, frozen=True, gc=False):
    """An attempt ended before it called the provider, so it does not count."""


class HoldRequest(Command, frozen=True, gc=False):
    """Its job is held. A journaled attempt that did not call the provider is cancelled."""

    by: str


class ReleaseRequest(Command, frozen=True, gc=False):
    """A worker resumes a held request."""


class Lose(Command, frozen=True, gc=False):
    """A job was leased before and its attempt has no recorded end: the process died, or the queue
    was lost.
    """

    at: int
    reason: str = "lease_lost"
    chance: float = 0.0
    detail: str = ""


class Reconciled(Command, frozen=True, gc=False):
    """The provider was asked what it did. Retry means that it has no record of the call."""

    outcome: Outcome
    at: int
    chance: float = 0.0
    #: The operation and the intent that the provider was asked about; None: those that are open.
    operation: str | None = None
    intent: int | None = None


class Resolve(Command, frozen=True, gc=False):
    """A person says what happened."""

    result: Literal["executed", "not_executed", "rejected"]
    by: str
    evidence: str
    provider_id: str = ""
    #: The time of the decision; a transaction is not sent again after the gateway has forgotten its
    #: key.
    at: int = 0
    #: For a transaction: the amount that moved, in the smallest unit of its currency; None: what
    #: was asked for.
    amount: int | None = None
    currency: str = ""


class Cancel(Command, frozen=True, gc=False):
    """`active`: an attempt is running, so its outcome decides. `reason`: a short, stable code where
    the engine cancels.
    """

    active: bool = False
    reason: str = ""
    detail: str = ""


class Withdraw(Command, frozen=True, gc=False):
    """A request from an outbox turned out to be a duplicate, a conflict or invalid: do not send it.

    The error was not known at submit.
    """

    reason: Literal["duplicate", "conflict", "invalid_request"]
    detail: str


class Ignore(Command, frozen=True, gc=False):
    """An inbound event leads to nothing. The reason is a short, stable code."""

    reason: str
    detail: str = ""


class RetryNow(Command, frozen=True, gc=False):
    at: int


class Redrive(Command, frozen=True, gc=False):
    """`again` forces a new intent although an outcome is unknown; the metadata of the event names
    who decided.
    """

    at: int
    ttl_ms: int | None = None
    again: bool = False


class Expire(Command, frozen=True, gc=False):
    """Nothing more may be sent: the time to live is over or, after an unknown outcome, the provider
    has forgotten the idempotency key.

    It is checked before each attempt, at the time `at`, so that a redrive in between is not undone.
    None: the caller knows that the time to live is over.
    """

    at: int | None = None


class Purge(Command, frozen=True, gc=False):
    """Remove from the dead letters."""


class RecordReceipt(Command, frozen=True, gc=False):
    """The provider reports what happened to a message, which also shows that it accepted it."""

    kind: Literal["delivered", "bounced", "complained"]
    #: The provider's id of the report.
    report: str
    provider_id: str = ""
    reason: str = ""
    permanent: bool = False
    reported_at: int | None = None
