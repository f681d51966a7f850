"""The events that only transactions have. Amounts are in the smallest unit of the currency."""

from typing import Literal

import msgspec

from gesta.domain import events as e
from gesta.domain.transaction.postings import Leg


class CallStarted(e.AttemptStarted, frozen=True, gc=False):
    """Journal: the call of this intent. The first one of an intent contains the rendered call,
    encrypted; each resend and look-up uses only that.
    """

    intent: int = 1
    #: The rendered call, encrypted; empty: that of the intent's first attempt.
    call: bytes = b""
    request_hash: str = ""
    gateway: str = ""
    #: The fingerprint of the account at the gateway.
    account: str = ""
    #: How long the gateway remembers the key, less a margin; None: forever.
    key_seconds: float | None = None
    can_look_up: bool = False
    visible_seconds: float = 0.0
    multiple_captures: bool = False


class Moved(e.Succeeded, frozen=True, gc=False):
    """An operation succeeded: this amount was moved, and these legs were posted."""

    provider_id: str = msgspec.field(default="", name="providerTxnId")
    amount: int = 0
    intent: int = 1
    #: The gateway's id of this one movement, as its ledger names it.
    movement_id: str = ""
    legs: tuple[Leg, ...] = ()
    #: For an authorization: it expires at this time.
    capture_before: int | None = None


class Authorized(Moved, frozen=True, gc=False):
    """The payer's bank holds the amount for us."""


class Reserved(Moved, frozen=True, gc=False):
    """The amount of a transfer is reserved."""


class Captured(Moved, frozen=True, gc=False):
    """Part or all of an authorization was captured; a final capture releases the rest."""


class Posted(Moved, frozen=True, gc=False):
    """Part or all of a reservation was transferred."""


class Completed(Moved, frozen=True, gc=False):
    """A sale, a transfer or a settlement in one step."""


class Voided(Moved, frozen=True, gc=False):
    """The amount that was authorized and not captured was released."""


class Refunded(Moved, frozen=True, gc=False):
    """Part or all of the captured amount was returned to the payer."""


class Reversed(Moved, frozen=True, gc=False):
    """The transaction was reversed: voided, or refunded if it was captured."""


class OperationRequested(e.Event, frozen=True, gc=False):
    """A further operation was opened."""

    amount: int
    intent: int
    #: The caller's key as it may be shown, and its digest.
    key: str = ""
    key_digest: str = ""
    #: For a capture: the rest is released.
    is_final: bool = True
    #: As the caller requested it; None: the whole rest.
    asked: int | None = None


class CaptureRequested(OperationRequested, frozen=True, gc=False):
    pass


class PostingRequested(OperationRequested, frozen=True, gc=False):
    pass


class VoidRequested(OperationRequested, frozen=True, gc=False):
    pass


class RefundRequested(OperationRequested, frozen=True, gc=False):
    pass


class ReversalRequested(OperationRequested, frozen=True, gc=False):
    """`undoes`: void an authorization, or refund captured money."""

    undoes: Literal["void", "refund"] = "refund"


class Resolved(e.Event, frozen=True, gc=False):
    """An unknown outcome is now known. The event of the movement or failure follows it."""

    result: Literal["executed", "not_executed", "rejected"]
    #: retry, lookup, webhook, ledger, or the person.
    by: str
    evidence: str
    operation: str
    intent: int
    provider_id: str = msgspec.field(default="", name="providerTxnId")
    next_attempt_at: int | None = None


class Lapsed(e.Event, frozen=True, gc=False):
    """The authorization ended before it was captured in full; the gateway released the rest."""

    amount: int
    legs: tuple[Leg, ...] = ()


class GatewayNotified(e.Event, frozen=True, gc=False):
    """A verified webhook named the payment. It proves nothing else, so gesta asks the gateway."""

    #: The gateway's id of the webhook: a repeated one is not recorded again.
    report: str
    kind: str
    provider_id: str = msgspec.field(default="", name="providerTxnId")
    movement_id: str = ""


class Corrected(e.Event, frozen=True, gc=False):
    """The gateway's ledger shows a movement that was not recorded; this event records it."""

    row: str
    finding: str
    operation: str
    intent: int
    amount: int
    evidence: str
    provider_id: str = msgspec.field(default="", name="providerTxnId")
    movement_id: str = ""
    legs: tuple[Leg, ...] = ()


class Conflicted(e.Event, frozen=True, gc=False):
    """A fact contradicts the record and changes no amount: a person has to look at it."""

    row: str
    finding: str
    evidence: str
    amount: int | None = None
    operation: str = ""
    intent: int = 0
