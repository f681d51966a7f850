"""Transactions: what is asked of them, and their amounts."""

from typing import Annotated, Any

import msgspec

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
    #: Account → balance in the smallest unit of the currency; they sum to zero.
    balances: dict[str, int]
