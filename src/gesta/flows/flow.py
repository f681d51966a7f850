"""The contract of a flow: its payload type, rules and executor."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_type_hints,
)

import msgspec

from gesta.domain.codec import event_types
from gesta.domain.commands import RecordReceipt, Rules
from gesta.domain.ids import FLOW
from gesta.domain.lifecycle import Lifecycle
from gesta.domain.lifecycles import declare, lifecycle_of
from gesta.domain.outcome import Outcome, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import BadFlow

if TYPE_CHECKING:
    from gesta.flows.attempt import Attempt
    from gesta.intake.inbound.source import Source
    from gesta.intake.job_contract import JobContract
    from gesta.intake.provider_reports import Reporting
    from gesta.tenants.config import TenantConfig
    from gesta.tenants.suppression import Addresses
    from gesta.tenants.templates.renderer import Renderer

T = TypeVar("T")
#: The lifecycle of the kind of flow.
BY_KIND = cast("Lifecycle", object())


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a request. Fields that the type does not name are refused."""


class AnyObject(Payload, frozen=True):
    """A payload without a declared type: any JSON object, stored as it is."""

    fields: dict[str, Any]


class PersonalMark:
    """Marks personal data. `apart`: it is about another person than the payload."""

    def __init__(self, *, apart: bool = False) -> None:
        self.apart = apart


#: `email: Personal[str]`: data about a person. It is encrypted under that person's key, so that it
#: can be erased, and kept out of logs, metrics, jobs and error texts.
Personal = Annotated[T, PersonalMark()]
#: `cc: list[PersonalApart[str]]`: the same about another person, encrypted under a key of its own
#: even where the payload has a subject.
PersonalApart = Annotated[T, PersonalMark(apart=True)]


class ConfigBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Config of a flow that a tenant stores by code. Secret fields go to the vault, never into an
    event.
    """

    #: Secret → the fields that decide where it is sent. If one of them changes, the secret must be
    #: given again: a person who may write config but read no secret cannot redirect it.
    sent_to: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    async def errors(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        """Field → error, for what the types cannot express. Checked when it is stored."""
        return {}


class SecretMark:
    """Marks a config field that is kept in the vault."""


#: `token: Secret[str]`: encrypted in the vault; the config event has only its name and version.
Secret = Annotated[T, SecretMark()]


def secret_fields(body: type[ConfigBody]) -> list[str]:
    """The fields of a config type that are kept in the vault."""
    hints = get_type_hints(body, include_extras=True)
    return [
        name
        for name, hint in hints.items()
        if any(isinstance(mark, SecretMark) for mark in getattr(hint, "__metadata__", ()))
    ]


class Notice(msgspec.Struct, frozen=True):
    """A message of the engine to its operators."""

    #: Notices with the same key are sent once.
    key: str
    title: str
    text: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Notices:
    """How a channel sends notices."""

    #: (destination, notice) → the payload.
    write: Callable[[str, Notice], Payload]
    #: (destination, the tenant's config) → why a notice would not arrive; empty if it would.
    error: Callable[[str, TenantConfig], str]


@dataclass(frozen=True)
class QueueAlarms:
    """When the queue of a flow needs a person: more jobs wait, the oldest has been ready for
    longer, or so many requests have failed for good.
    """

    depth: int
    age_seconds: float
    dead_letters: int


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """A call, ready to be sent. It is journalled before it is, `call` encrypted."""

    call: bytes
    #: What is journalled in clear.
    facts: Mapping[str, Any]
    #: What `execute` would make of `call`, for the attempt that rendered it (`Attempt.prepared`).
    prepared: Any = None


Executor = Callable[[Any, "Attempt"], Awaitable[Outcome]]
#: Makes the call of an intent, once: later attempts send the same. It has no effects. If it has to
#: wait for nothing, it returns the call itself, and the calls of a batch are journalled together.
Render = Callable[[Any, "Attempt"], Rendered | Coroutine[Any, Any, Rendered]]
#: (payload, the tenant's config, its templates) → field → error.
Check = Callable[[Any, "TenantConfig", Any], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True)
class Flow:
    """One kind of side effect: payload type, rules, executor."""

    name: str
    payload: type[Payload]
    execute: Executor
    rules: Rules = Rules()
    #: Asks the provider what it did. Returns Done, Rejected, Retry (not found) or Unknown (still
    #: undecided).
    reconcile: Executor | None = None
    #: The executor is cancelled after this; the outcome is then Unknown.
    timeout_seconds: float = 30.0
    #: A request not done this long after max(created, deliver_at) expires; None: never.
    ttl_seconds: float | None = None
    #: Attempts that may run at the same time in one process.
    concurrency: int = 100
    #: Append AttemptStarted before the call even where a durable lease is the journal (payments).
    journal: bool = False
    #: Config kinds of this flow by name, e.g. {"webhook.endpoint": Endpoint}.
    config: Mapping[str, type[ConfigBody]] = field(default_factory=dict)
    #: How long a final failure stays among the dead letters.
    dead_letter_seconds: float = 14 * 86_400
    #: Masked target of a payload for the logs, e.g. the host of a URL.
    target: Callable[[Any], str] | None = None
    #: `kind/code` of the tenant's config that a payload uses, so that it can be paused; None: none.
    credential: Callable[[Any], str | None] | None = None
    #: The URL that a payload's request calls, if it is known at submit: a warning says that its
    #: address is not allowed.
    url: Callable[[Any, TenantConfig], str | None] | None = None
    #: `kind/code` → the parts of a credential that the program declares, `env:NAME` or literal.
    #: After a refusal, a process that declares another one tries again.
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Checked at submit: errors of a payload beyond its type, given the tenant's current config.
    check: Check | None = None
    #: The caller's id of a payload, a UUID. It becomes the id and key of the request, so the same
    #: id with the same content is a duplicate.
    request_id: Callable[[Any], str | None] | None = None
    #: (payload, request id) → further fields of every log line about the request: codes, never
    #: content.
    tags: Callable[[Any, str], Mapping[str, str]] | None = None
    #: Reasons that may be labels of a metric. A closed set, or a provider could create a series
    #: with every word.
    reasons: frozenset[str] = frozenset()
    #: The channel composes the reasons, details and targets of its outcomes from codes, so that
    #: they are stored in clear. Otherwise, with a personal payload, they are encrypted under the
    #: keys of the data subjects.
    clear_texts: bool = False
    #: Reasons that need attention: such an attempt is logged as an error.
    alarms: frozenset[str] = frozenset()
    #: None: the general findings about queues are enough.
    queue_alarms: QueueAlarms | None = None
    #: None: this flow cannot send alerts.
    notices: Notices | None = None
    #: How the provider reports delivery; None: it does not.
    reports: Reporting | None = None
    #: Complete jobs of other programs that become requests; None: only pointers are understood.
    adopts: JobContract | None = None
    #: How events of other systems enter, where this flow records them; None: it is no source.
    inbound: Source | None = None
    #: The suppression list of this channel; None: it has none.
    addresses: Addresses | None = None
    #: "attempt": the executor acts only through `attempt.http` and `attempt.mail` and takes its
    #: secrets from `attempt.config`. Then a test request reaches only the sandbox, and an exception
    #: before anything was sent is a Retry. "any": the executor may act in other ways, so test
    #: requests are refused and every exception is Unknown.
    effects: Literal["attempt", "any"] = "any"
    #: payload → config that a test request uses where the tenant has stored none of that kind.
    stand_ins: Callable[[Any], Mapping[str, ConfigBody]] | None = None
    #: An example payload for the API documentation.
    example: Mapping[str, Any] | None = None
    #: For an external flow: how long a lease lasts. None: gesta executes the flow.
    lease_seconds: float | None = None
    #: By default that of its kind: a flow of a user is a task.
    lifecycle: Lifecycle = BY_KIND
    #: How a request of this payload begins: its first operation, and what its lifecycle keeps.
    #: None: as its lifecycle says.
    opens: Callable[[Any], tuple[str, dict[str, Any]]] | None = None
    #: Renders the call of an intent before it is journalled; None: the executor does.
    render: Render | None = None

    @property
    def is_external(self) -> bool:
        return self.lease_seconds is not None

    def __post_init__(self) -> None:
        if not FLOW.fullmatch(self.name):
            raise BadFlow(
                self.name,
                "a flow's name is two or more parts of [a-z0-9_] with dots between, like"
                " 'billing.receipt'",
            )
        if not (isinstance(self.payload, type) and issubclass(self.payload, Payload)):
            raise BadFlow(
                self.name,
                "the first parameter of the executor must be annotated with a subclass of"
                " gesta.Payload",
            )
        if self.rules.on_unknown not in ("resend", "reconcile", "manual"):
            raise BadFlow(
                self.name,
                "on_unknown must be 'resend', 'reconcile' or 'manual',"
                f" not {self.rules.on_unknown!r}",
            )
        if self.rules.on_unknown == "reconcile" and self.reconcile is None:
            raise BadFlow(
                self.name,
                "on_unknown='reconcile' needs reconcile=, the function that asks the provider what"
                " it did",
            )
        if self.effects not in ("attempt", "any"):
            raise BadFlow(self.name, f"effects must be 'attempt' or 'any', not {self.effects!r}")
        if self.rules.retry.attempts < 1 or self.timeout_seconds <= 0 or self.concurrency < 1:
            raise BadFlow(self.name, "attempts, timeout_seconds and concurrency must be positive")
        self._set_lifecycle()

    def _set_lifecycle(self) -> None:
        known = lifecycle_of(self.name)
        if self.lifecycle is BY_KIND:
            object.__setattr__(self, "lifecycle", known)
        elif self.lifecycle is not known:
            try:
                declare(self.name, self.lifecycle)
            except ValueError as error:
                raise BadFlow(self.name, str(error)) from None
            # This process may have read events of the flow before.
            event_types.cache_clear()
        for name, kind in self.lifecycle.needs.items():
            if self.opens is None and get_type_hints(self.payload).get(name) is not kind:
                raise BadFlow(
                    self.name,
                    f"a {self.lifecycle.name} needs a field `{name}: {kind.__name__}` in its"
                    " payload",
                )
        if self.lifecycle.journal and not self.is_external:
            object.__setattr__(self, "journal", True)
        if self.opens is None and self.lifecycle.opens is not None:
            object.__setattr__(self, "opens", self.lifecycle.opens)
        if self.is_external and len(self.lifecycle.operations) > 1 and self.lifecycle.opens is None:
            raise BadFlow(self.name, "external workers execute flows with one operation only")
        if self.reports is not None and RecordReceipt not in self.lifecycle.decisions:
            raise BadFlow(self.name, f"a {self.lifecycle.name} has no delivery receipts")


class FlowOptions(TypedDict, total=False):
    reconcile: Executor | None
    timeout_seconds: float
    ttl_seconds: float | None
    concurrency: int
    credential: Callable[[Any], str | None] | None
    effects: Literal["attempt", "any"]


#: The retries of a flow that names none: two hours on average, four at most.
DEFAULT_RETRY = RetryPolicy(attempts=15, base_seconds=2.0, cap_seconds=3600.0)
CHOOSE = (
    "choose on_unknown: what happens after an attempt that may or may not have taken effect."
    " 'resend' tries again with the same idempotency key; the receiver must ignore repeats."
    " 'reconcile' asks the provider through your function reconcile= what it did."
    " 'manual' stops until a person resolves the request."
)


def flow(
    name: str,
    *,
    on_unknown: UnknownPolicy | None = None,
    attempts: int | None = None,
    retry: RetryPolicy | None = None,
    key_protects_seconds: float | None = None,
    **options: Unpack[FlowOptions],
) -> Callable[[Executor], Flow]:
    """Make an async function `(payload, attempt) -> Outcome` a flow.

    `on_unknown` has no default, because every choice is wrong for some provider. `attempts`
    changes only the number of attempts of `retry`. Without `retry`: 15 attempts, exponential
    backoff with full jitter from 2 seconds to 1 hour.
    """
    if unknown := options.keys() - FlowOptions.__annotations__.keys():
        raise TypeError(f"flow() got an unexpected keyword argument {min(unknown)!r}")
    if on_unknown is None:
        raise BadFlow(
            name,
            f"{CHOOSE} If the receiver deduplicates by attempt.key, write on_unknown='resend',"
            " otherwise on_unknown='manual'",
        )
    rules = Rules(policy_of(retry, attempts), on_unknown, key_protects_seconds)

    def declare(execute: Executor) -> Flow:
        return Flow(name, payload_type(name, execute), execute, rules, **options)

    return declare


def policy_of(retry: RetryPolicy | None, attempts: int | None) -> RetryPolicy:
    policy = retry or DEFAULT_RETRY
    return policy if attempts is None else msgspec.structs.replace(policy, attempts=attempts)


def payload_type(name: str, execute: Callable[..., Any]) -> type[Payload]:
    if not inspect.iscoroutinefunction(execute):
        raise BadFlow(name, "the executor must be an async function (payload, attempt) -> Outcome")
    parameters = list(inspect.signature(execute).parameters)
    if len(parameters) != 2:
        raise BadFlow(name, "the executor takes exactly two parameters: payload and attempt")
    try:
        hints = get_type_hints(execute)
    except NameError:
        # The payload type was declared inside a function, so postponed annotations cannot be
        # resolved.
        hints = dict(getattr(execute, "__annotations__", {}))
    found = hints.get(parameters[0])
    if isinstance(found, str):
        found = inspect.getclosurevars(execute).nonlocals.get(found)
    if not isinstance(found, type):
        raise BadFlow(name, f"annotate the parameter {parameters[0]!r} with the payload's type")
    return found
