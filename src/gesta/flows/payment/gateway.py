"""What a payment gateway must do: the protocol, the call that is journaled, and its answers.

A call has two steps. `render` turns an instruction into a GatewayCall: the exact bytes, the key and
the account. The flow journals it. `execute` then sends exactly these bytes. A resend and a look-up
use the journaled call only, so that a change of config in between cannot change what is sent or
where.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol

import msgspec

from gesta.domain.ids import FLOW, REQUEST_ID, TENANT
from gesta.domain.money import Money
from gesta.flows.flow import ConfigBody, Secret
from gesta.flows.payment.descriptor import GatewayDescriptor
from gesta.outbound.http import Http
from gesta.outbound.rate_limits import PerSecond

if TYPE_CHECKING:
    from gesta.tenants.templates.renderer import Renderer

#: The config kind of accounts at gateways.
GATEWAY: Final = "payment.gateway"

#: What a gateway executes. sale: authorize and capture in one call. payout: to our own bank.
Verb = Literal["authorize", "sale", "capture", "void", "refund", "payout"]


class GatewayAccount(ConfigBody, frozen=True):
    """An account at a gateway, stored by code (`stripe-eu`)."""

    sent_to: ClassVar = {"api_key": ("type", "api_url")}

    #: Which gateway speaks to it: `stripe`, `http`, or one that the program adds.
    type: Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,31}$", examples=["stripe"])]
    #: The account's id at the gateway, e.g. acct_1…. A resend never reaches another account.
    account: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    api_key: Secret[str]
    #: Verifies webhooks; empty: webhooks of this account are refused.
    webhook_secret: Secret[str] = ""
    #: Empty: the gateway's own address. The private-address guard applies.
    api_url: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^(https?://[^\s/?#]+[^\s]*)?$", examples=["https://api.example.com"]
        ),
    ] = ""
    per_second: PerSecond = 50.0
    #: What only this type of gateway needs; checked by the gateway when it is used.
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    async def errors(self, code: str, renderer: "Renderer") -> Mapping[str, str]:
        # Imported here, because every gateway needs this module.
        from gesta.flows.payment.gateways import installed

        # Another type is a gateway of the program; this process may not have it.
        found = [one.errors(self) for one in installed() if one.type == self.type]
        return found[0] if found else {}

    def __repr__(self) -> str:
        return f"GatewayAccount({self.type}, {self.account})"


class Reference(msgspec.Struct, frozen=True, gc=False):
    """Our own name of one intent. Each call carries it, and the gateway is asked by it when the
    answer, and so the gateway's id, was lost.
    """

    tenant: str
    flow: str
    request_id: str
    operation: str
    intent: int

    def __str__(self) -> str:
        return ":".join((self.tenant, self.flow, self.request_id, self.operation, str(self.intent)))

    @classmethod
    def parse(cls, text: object) -> "Reference | None":
        """None: it is not a reference of gesta."""
        parts = text.split(":") if isinstance(text, str) and len(text) < 300 else []
        if len(parts) != 5 or not parts[4].isdecimal() or not parts[3].isalpha():
            return None
        tenant, flow, request_id, operation, intent = parts
        if not (TENANT.fullmatch(tenant) and FLOW.fullmatch(flow)):
            return None
        if not REQUEST_ID.fullmatch(request_id):
            return None
        return cls(tenant, flow, request_id, operation, int(intent))


class Instruction(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An instruction in neutral terms, independent of any gateway."""

    verb: Verb
    #: The idempotency key, `tenant:requestId:operation:intent`.
    key: str
    reference: Reference
    #: None only for void.
    amount: Money | None
    #: The gateway's name of the means of payment, e.g. pm_1. For authorize and sale.
    source: str = ""
    #: Who gets the money, where the gateway supports it, e.g. acct_1.
    destination: str = ""
    #: The gateway's id of what is captured, voided or refunded.
    target: str = ""
    #: For capture: no further capture follows; the gateway releases the rest.
    is_final: bool = True
    description: str = ""


class GatewayCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One rendered call without its credential. It is journaled, encrypted, before it is sent."""

    #: The code of the account's config.
    gateway: str
    type: str
    #: Connection.fingerprint when it was rendered.
    account: str
    verb: Verb
    key: str
    reference: Reference
    amount: Money | None
    method: str
    url: str
    body: bytes
    #: Without credentials.
    headers: dict[str, str] = {}
    target: str = ""
    #: GatewayDescriptor.resend_seconds when it was rendered: a change of config prolongs nothing.
    resend_seconds: float

    @property
    def request_hash(self) -> str:
        """Identifies the bytes, for the journal's clear part."""
        return sha256(b"\0".join((self.method.encode(), self.url.encode(), self.body))).hexdigest()

    def __repr__(self) -> str:
        return f"GatewayCall({self.verb}, {self.key})"


class Connection(msgspec.Struct, frozen=True, gc=False):
    """How one attempt reaches an account: its HTTP, config and API key."""

    http: Http
    code: str
    account: GatewayAccount
    api_key: str
    timeout_seconds: float = 30.0

    def fingerprint(self, mode: str = "") -> str:
        """The same for the same account at the same address, whatever its API key is.

        `mode`: what else decides where a call arrives, e.g. that the API key is one for tests.
        """
        account = self.account
        return _fingerprint(account.type, account.api_url, account.account, mode)

    def __repr__(self) -> str:
        return f"Connection({self.code})"


@lru_cache(maxsize=1_000)
def _fingerprint(*whose: str) -> str:
    return sha256("\0".join(whose).encode()).hexdigest()[:32]


class Unrenderable(Exception):
    """The gateway cannot express the instruction. Nothing was sent. `reason` is a code."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class CallSucceeded(msgspec.Struct, frozen=True, gc=False, tag="succeeded"):
    """The gateway did it, with the amount that the call asked for."""

    #: The gateway's id of the payment; later calls name it as their target.
    id: str
    amount: Money
    #: The gateway's id of this one movement (charge, capture, refund), as its ledger names it.
    movement_id: str = ""
    #: After this, an authorization is void by itself. Epoch milliseconds.
    capture_before: int | None = None
    #: The gateway answered from its memory of the key.
    replayed: bool = False


class CallPending(msgspec.Struct, frozen=True, tag="pending"):
    """The gateway has accepted it and will decide later; ask it, or wait for its webhook."""

    id: str
    status: str
    #: The customer must do something first (3-D Secure).
    needs_customer: bool = False


class CallDeclined(msgspec.Struct, frozen=True, tag="declined"):
    """The bank declined; final for this intent. `soft`: a new intent may succeed later."""

    code: str
    soft: bool = False
    id: str = ""


class CallRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The gateway refused the call itself; the same call would be refused again."""

    code: str
    detail: str = ""


class CallRetry(msgspec.Struct, frozen=True, tag="retry"):
    """Nothing happened yet; safe to send again with the same key.

    `throttled`: all calls to the account should wait. `in_progress`: an earlier call with this key
    is still running, so this one may be sent again, but the outcome is not decided.
    """

    reason: str
    detail: str = ""
    after_seconds: float = 0.0
    throttled: bool = False
    in_progress: bool = False


class CallUnknown(msgspec.Struct, frozen=True, tag="unknown"):
    """It may have happened."""

    reason: str
    detail: str = ""
    after_seconds: float = 0.0
    #: The gateway stored this answer under the key and would only repeat it: a resend is useless,
    #: a look-up decides.
    is_stored: bool = False


class CallContradicted(msgspec.Struct, frozen=True, tag="contradicted"):
    """The gateway says that it is done already, or that the key was used for another body. Look it
    up and compare; never compensate.
    """

    code: str


class CallConflicted(msgspec.Struct, frozen=True, tag="conflicted"):
    """The gateway did something else: another amount or currency. A person must decide."""

    id: str
    found: Money
    movement_id: str = ""


class AccountRefused(msgspec.Struct, frozen=True, tag="account_refused"):
    """The gateway refuses the credential. Nothing happened."""

    reason: str
    detail: str = ""


#: The reason where the options of an account do not describe it.
OPTIONS_INVALID: Final = "options_invalid"
#: The reason where a connection reaches another account than the one a call was rendered for.
ACCOUNT_CHANGED: Final = "account_changed"
OTHER_ACCOUNT: Final = AccountRefused(
    ACCOUNT_CHANGED,
    "the config of the gateway now names another account than the one this call was made for;"
    " nothing was sent",
)


class CallNotFound(msgspec.Struct, frozen=True, tag="not_found"):
    """The gateway has no record of the reference. It counts only after
    `GatewayDescriptor.visible_after_seconds`, and only twice in a row.
    """


CallAnswer = (
    CallSucceeded
    | CallPending
    | CallDeclined
    | CallRefused
    | CallRetry
    | CallUnknown
    | CallContradicted
    | CallConflicted
    | AccountRefused
)
#: A look-up answers only from the gateway's own records. CallRetry, CallUnknown and AccountRefused
#: then mean that the question was not answered, and say nothing about the payment.
LookUpAnswer = (
    CallSucceeded
    | CallPending
    | CallDeclined
    | CallConflicted
    | CallNotFound
    | CallRetry
    | CallUnknown
    | AccountRefused
)


class Window(msgspec.Struct, frozen=True):
    """A span of the gateway's ledger: from_ms ≤ created < to_ms."""

    from_ms: int
    to_ms: int


#: return: the gateway moved money back by itself: a charge, refund or payout that failed later.
RowKind = Literal["charge", "refund", "payout", "fee", "dispute", "return", "other"]


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the gateway's own ledger. Amounts are signed: a refund is negative."""

    #: The gateway's id of the row: the same in every run.
    id: str
    kind: RowKind
    amount: Money
    fee: Money
    #: pending: not final yet.
    status: Literal["pending", "available"]
    at_ms: int
    #: The gateway's id of the movement (CallSucceeded.movement_id) and of the payment.
    movement_id: str = ""
    payment_id: str = ""
    #: Ours, if the movement carries it.
    reference: Reference | None = None


class LedgerPage(msgspec.Struct, frozen=True):
    rows: tuple[LedgerRow, ...]
    #: Where the next page begins; None: this was the last.
    next: str | None = None


class Delivery(msgspec.Struct, frozen=True):
    """A posted webhook, not verified yet. Header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Delivery({len(self.body)} bytes)"


class GatewayEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A verified webhook. It says that something happened to a payment and which id it has, but
    not what is true now: webhooks come late, twice and out of order. Look the payment up.
    """

    #: The gateway's id of the event: the same in every delivery.
    id: str
    kind: str
    at_ms: int
    #: The gateway's ids of the payment and of the movement; empty: the event names none.
    payment_id: str = ""
    movement_id: str = ""
    #: None: the payment was not made by gesta.
    reference: Reference | None = None


class Gateway(Protocol):
    """One type of gateway. It has no state: accounts and credentials come with each call."""

    #: GatewayAccount.type.
    type: str

    def descriptor(self, account: GatewayAccount) -> GatewayDescriptor:
        """How the gateway treats keys, look-ups and currencies."""

    def errors(self, account: GatewayAccount) -> Mapping[str, str]:
        """Field → what is wrong with an account of this type, beyond its types."""

    def render(self, instruction: Instruction, connection: Connection) -> GatewayCall:
        """The exact call. Raises Unrenderable when the gateway cannot express it."""

    async def execute(self, call: GatewayCall, connection: Connection) -> CallAnswer:
        """Send the call once, with its key. Never raises for what the gateway answers.

        Sends nothing and answers AccountRefused where the connection reaches another account than
        the one that the call was rendered for. The same holds for `look_up`.
        """

    async def look_up(
        self, call: GatewayCall, connection: Connection, payment_id: str = ""
    ) -> LookUpAnswer:
        """What the gateway has recorded about this call, found by its reference.

        `payment_id`: the gateway's id, where a webhook or an earlier answer named it.
        """

    async def list(
        self, window: Window, connection: Connection, cursor: str | None = None
    ) -> LedgerPage:
        """One page of the ledger. Raises ListingFailed."""

    def verify(
        self, delivery: Delivery, account: GatewayAccount, secrets: Sequence[str], now_ms: int
    ) -> GatewayEvent:
        """The event of a webhook, verified on its raw bytes.

        Raises InvalidSignature for whatever the gateway did not send, and for what is too old.
        """
