"""The amounts of a transaction, in the smallest unit of its currency. Its status follows from them.

`State.facts` holds them. So two partial captures or a partial refund need no status of their own.
"""

from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from gesta.domain.money import Money
from gesta.domain.state import State

#: How an operation changes the amounts.
CAPTURING = {"authorization": "capture", "reservation": "posting"}
#: Operations that move money in one step.
SINGLE = frozenset({"sale", "transfer", "settlement"})
#: The reason if the gateway stored a failure with the key and repeats it for every resend.
STORED = "stored_failure"


class Asked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a caller requested under a key of its own."""

    operation: str
    #: None: the whole rest.
    amount: int | None
    is_final: bool = True


class Funds(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What was authorized, captured, refunded and released so far."""

    currency: str
    exponent: int
    #: The amount of the first operation, and its name.
    requested: int
    first: str
    gateway: str = ""
    authorized: int = 0
    captured: int = 0
    refunded: int = 0
    #: Authorized and released: voided, expired, or not captured by the final capture.
    released: int = 0
    #: The amount of the operation that is open or failed last.
    pending: int = 0
    #: For a capture: the rest of the authorization is released with it.
    is_final: bool = True
    #: For a reversal: whether it voids or refunds.
    undoes: str = ""
    #: The gateway's id of the payment, and when its authorization ends.
    payment_id: str = ""
    capture_before: int | None = None
    #: Whether the gateway accepts several captures of one authorization.
    multiple_captures: bool = False
    #: How long the gateway remembers our key, and when a look-up can be trusted; from the journal.
    key_seconds: float | None = None
    can_look_up: bool = False
    visible_seconds: float = 0.0
    #: The gateway stored a failure with the key of this intent: a resend is useless.
    is_stored: bool = False
    #: Look-ups in a row that found nothing, after the gateway could see the call.
    absent: int = 0
    #: When the last call of this intent ended without an answer.
    doubt_at: int = 0
    #: The authorization expired unused.
    lapsed: bool = False
    #: Operation → the number of its newest intent.
    intents: dict[str, int] = {}
    #: Digest of a caller's key → what was requested under it.
    keys: dict[str, Asked] = {}
    #: Successes on record, `operation:intent` → amount.
    moved: dict[str, int] = {}
    #: Account → balance of this transaction; they sum to zero.
    balances: dict[str, int] = {}
    #: Facts of the gateway that corrected or contradicted the record, by name: each is recorded
    #: once.
    rows: tuple[str, ...] = ()

    @property
    def capturable(self) -> int:
        return self.authorized - self.captured - self.released

    @property
    def refundable(self) -> int:
        return self.captured - self.refunded

    @property
    def visible_at(self) -> int:
        """From then on, a look-up that finds nothing counts."""
        return self.doubt_at + ceil(self.visible_seconds * 1000)

    def money(self, minor: int) -> Money:
        return Money.of_minor(minor, self.currency)


def read_funds(stored: dict[str, Any], operation: str) -> Funds:
    """The amounts as they are stored. Without any, nothing of the payload could be read: the
    transaction ends without a call.
    """
    return msgspec.convert(stored, Funds) if stored else Funds("", 0, 0, operation)


def funds_of(state: State) -> Funds:
    funds: Funds = state.facts
    return funds


def in_doubt(state: State) -> Money | None:
    """The amount that the open operation may have moved."""
    funds = funds_of(state)
    return funds.money(funds.pending) if funds.currency else None


def opening_facts(amount: Money, operation: str, gateway: str = "") -> dict[str, Any]:
    """The facts in the first event of a transaction."""
    minor = amount.minor
    # Funds as they are stored: without what is at its default.
    facts: dict[str, Any] = {
        "currency": amount.currency,
        "exponent": amount.exponent,
        "requested": minor,
        "first": operation,
    }
    if gateway:
        facts["gateway"] = gateway
    if minor:
        facts["pending"] = minor
    facts["intents"] = {operation: 1}
    return facts


def with_funds(state: State, funds: Funds, **changes: Any) -> State:
    """The state with these amounts and with what else changes."""
    return replace(state, facts=funds, **changes)


def status_of(funds: Funds) -> str | None:
    """The status that follows from the amounts; None: no money has moved yet."""
    if funds.captured:
        if funds.refundable == 0 and funds.capturable == 0:
            return "reversed"
        return "completed" if funds.first in SINGLE else "captured"
    if not funds.authorized:
        return None
    if funds.capturable:
        return "authorized"
    return "expired" if funds.lapsed else "cancelled"
