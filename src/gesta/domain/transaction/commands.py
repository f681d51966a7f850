"""The commands that only transactions take. Amounts are in the smallest unit of the currency."""

from typing import Literal

from gesta.domain.commands import Command


class OperationCommand(Command, frozen=True, gc=False):
    """Open a further operation.

    `key` deduplicates: the same key with the same content changes nothing; with other content it is
    refused.
    """

    at: int
    #: None: the whole rest.
    amount: int | None = None
    currency: str = ""
    #: The caller's key as it may be stored, and its digest.
    key: str = ""
    key_digest: str = ""


class Capture(OperationCommand, frozen=True, gc=False):
    """Capture part or all of an authorization. `is_final`: the rest is released."""

    is_final: bool = True


class Post(Capture, frozen=True, gc=False):
    """Post part or all of a reservation."""


class Void(OperationCommand, frozen=True, gc=False):
    """Release the amount that was authorized and not captured."""


class Refund(OperationCommand, frozen=True, gc=False):
    """Return part or all of the captured amount."""


class Reverse(OperationCommand, frozen=True, gc=False):
    """Reverse the transaction: void it, or refund it if it was captured."""


class NoteWebhook(Command, frozen=True, gc=False):
    """A verified webhook named this transaction: learn its ids, and ask the gateway now."""

    report: str
    kind: str
    at: int
    payment_id: str = ""
    movement_id: str = ""
    #: The operation and intent that our reference in it names.
    operation: str = ""
    intent: int = 0


class Correct(Command, frozen=True, gc=False):
    """Reconciliation found a row of the gateway's ledger that differs from the record.

    `executed`: the movement happened. `conflict`: it cannot be explained; only noted.
    """

    row: str
    finding: str
    result: Literal["executed", "conflict"]
    evidence: str
    operation: str = ""
    intent: int = 0
    amount: int | None = None
    payment_id: str = ""
    movement_id: str = ""
