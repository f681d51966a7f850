"""What can be asked of a request, and by which of the flow's rules it is decided."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gesta.domain.outcome import Outcome, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy


class CommandRefused(Exception):
    """The command is impossible in this state; `code` is stable, the text is for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Rules(msgspec.Struct, frozen=True, gc=False):
    """What a flow lays down for its requests."""

    retry: RetryPolicy = RetryPolicy()
    on_unknown: UnknownPolicy = "manual"
    #: How long the provider remembers our key, counted from the first attempt; None: for as long as
    #: the request lives.
    key_protects_seconds: float | None = None
    #: How long after an unknown outcome the provider is asked for the first time, and the least
    #: pause between two questions.
    ask_after_seconds: float = 5.0
    #: How often and how long a provider that cannot tell yet is asked again; about four hours, then
    #: a person has to decide.
    asking: RetryPolicy = RetryPolicy(attempts=30, base_seconds=10.0, cap_seconds=900.0)


class Command(msgspec.Struct, frozen=True, gc=False):
    """What is asked of one request. A lifecycle says which commands it takes."""


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


class Start(Command, frozen=True, gc=False):
    """Journal an attempt before the call."""

    key: str


class RecordOutcome(Command, frozen=True, gc=False):
    """An attempt ended. `chance` is a random number in [0, 1), drawn by the caller."""

    outcome: Outcome
    attempt: int
    at: int
    chance: float = 0.0
    #: The intent it ran under; None: the one that is open. Attempts of a forced new intent may
    #: carry the numbers of old ones.
    intent: int | None = None
    #: `kind/code` of the config it went by → the version that was used.
    used: Mapping[str, int] = {}
    #: Whether the provider was called, or may have been. What the engine itself refuses says
    #: nothing about an earlier attempt.
    called: bool = True
    #: The operation that was attempted; None: the one that is open.
    operation: str | None = None
    #: The fields of events.AttemptEnd.
    facts: Mapping[str, Any] = {}


class Postpone(Command, frozen=True, gc=False):
    """An attempt ended before it called anybody and does not count: if it was journalled, that is
    taken back.
    """


class HoldRequest(Command, frozen=True, gc=False):
    """Its job is held. A journalled attempt that did not call the provider is taken back."""

    by: str


class ReleaseRequest(Command, frozen=True, gc=False):
    """A worker takes a held request up again."""


class Lose(Command, frozen=True, gc=False):
    """A job was taken before and its attempt has no recorded end: the process died, or the queue
    was lost.
    """

    at: int
    reason: str = "lease_lost"
    chance: float = 0.0


class Reconciled(Command, frozen=True, gc=False):
    """The provider was asked what it did. Retry means: it has no trace of it."""

    outcome: Outcome
    at: int
    chance: float = 0.0
    #: The operation that the provider was asked about; None: the one that is open.
    operation: str | None = None


class Resolve(Command, frozen=True, gc=False):
    """A person says what happened."""

    result: Literal["executed", "not_executed", "rejected"]
    by: str
    evidence: str
    provider_id: str = ""


class Cancel(Command, frozen=True, gc=False):
    """`active`: an attempt is running, so its end decides."""

    active: bool = False


class Withdraw(Command, frozen=True, gc=False):
    """What was found when a request came out of an outbox, later than it could be said to the
    caller: nothing of it is to be sent.
    """

    reason: Literal["duplicate", "conflict", "invalid_request"]
    detail: str


class RetryNow(Command, frozen=True, gc=False):
    at: int


class Redrive(Command, frozen=True, gc=False):
    """`again` forces a new intent although an attempt is in doubt; who decided stands in the
    event's metadata.
    """

    at: int
    ttl_ms: int | None = None
    again: bool = False


class Expire(Command, frozen=True, gc=False):
    """Nothing may be sent any more: its time to live is over or, in doubt, the provider has
    forgotten our key.

    Asked before each attempt.

    Both are judged by `at`, so that a redrive in between is not undone; None: the caller knows that
    the time to live is over.
    """

    at: int | None = None


class Purge(Command, frozen=True, gc=False):
    """Remove from the dead letters."""


class RecordReceipt(Command, frozen=True, gc=False):
    """The provider tells what became of what it had taken, which also shows that it had."""

    kind: Literal["delivered", "bounced", "complained"]
    #: The provider's own name of the report.
    report: str
    provider_id: str = ""
    reason: str = ""
    permanent: bool = False
    reported_at: int | None = None
