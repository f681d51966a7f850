"""Transactions: what is asked of them, and their amounts."""

from typing import Annotated, Any

import msgspec

from gesta.api_types.bulk import Moment
from gesta.api_types.structs import Asked, Representation
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.domain.lifecycles import Status
from gesta.domain.money import Money

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_LENGTH_MAX)]


class Authorize(Asked, frozen=True):
    """Reserve an amount. `payload` is that of the flow, without `operation`."""

    payload: dict[str, Any]
    key: Key | None = None
    flow: str = "payment.card"


class Capture(Asked, frozen=True):
    """Take part or all of what was authorized; without `amount` all that is left.

    `key` is the caller's: the same one with the same content changes nothing. `final` false keeps
    the rest for further captures.
    """

    key: Key
    amount: Money | None = None
    final: bool = True


class Refund(Asked, frozen=True):
    """Give part or all of what was captured back; without `amount` all that is left."""

    key: Key
    amount: Money | None = None


class TakeBack(Asked, frozen=True):
    """Void or reverse a transaction."""

    key: Key | None = None


class TransactionRepresentation(Representation, frozen=True):
    """The amounts of a transaction. Its status follows from them."""

    id: str
    flow: str
    status: Status
    #: The operation that is open, or was the last one.
    operation: str
    #: Null: external workers execute it.
    gateway: str | None
    #: The gateway's id of the payment.
    provider_id: str | None
    requested: Money
    authorized: Money
    captured: Money
    refunded: Money
    #: Authorized and given up: voided, expired, or not taken by the final capture.
    released: Money
    capturable: Money
    refundable: Money
    #: An amount whose outcome is unknown, since when, and why.
    unknown: Money | None
    unknown_since: str | None
    reason: str | None
    #: An authorization ends then.
    capture_before: str | None
    #: Account → balance; they sum to zero, and an account with nothing is left out.
    balances: dict[str, Money]


class Reconcile(Asked, frozen=True):
    """Compare a gateway's ledger with the record. `gateway`: the code of its config.

    Rows created from `from` on and before `to`. Without `to` until now; without `from` three days.
    """

    gateway: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    since: Moment | None = msgspec.field(default=None, name="from")
    until: Moment | None = msgspec.field(default=None, name="to")


class FindingRepresentation(Representation, frozen=True):
    """A row of the ledger or a movement on record, and how the two sides compare."""

    kind: str = msgspec.field(name="class")
    #: The gateway's id of the row; empty: it has none.
    row: str
    #: The transaction; empty: none was found.
    request_id: str
    flow: str
    operation: str
    intent: int
    #: What the gateway says, and what is on record.
    found: Money | None
    recorded: Money | None
    #: An event was appended to the transaction, by this run or an earlier one.
    corrected: bool


class ReconciliationRepresentation(Representation, frozen=True):
    """One run: what was compared, and everything that differs."""

    gateway: str
    since: str = msgspec.field(name="from")
    until: str = msgspec.field(name="to")
    #: Rows of the ledger in the window.
    rows: int
    #: Class → how many.
    counts: dict[str, int]
    findings: list[FindingRepresentation]
    #: Corrective events that this run has appended.
    corrections: int
