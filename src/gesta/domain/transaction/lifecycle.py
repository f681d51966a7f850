"""A transaction moves money in its own operations; its status follows from the amounts."""

from dataclasses import replace
from typing import Any

from gesta.domain import events as e
from gesta.domain.lifecycle import lifecycle
from gesta.domain.money import Money
from gesta.domain.operation import Operation
from gesta.domain.transaction import events as t
from gesta.domain.transaction.decide import TRANSACTION_DECISIONS
from gesta.domain.transaction.evolve import TRANSACTION_FOLDS, requested, succeeded
from gesta.domain.transaction.funds import in_doubt, opening_facts, read_funds

#: Operation → its success, and the status of a transaction that has nothing else.
_OPERATIONS: dict[str, tuple[type[t.Moved], str]] = {
    "sale": (t.Completed, "completed"),
    "transfer": (t.Completed, "completed"),
    "settlement": (t.Completed, "completed"),
    "authorization": (t.Authorized, "authorized"),
    "reservation": (t.Reserved, "authorized"),
    "capture": (t.Captured, "captured"),
    "posting": (t.Posted, "captured"),
    "void": (t.Voided, "cancelled"),
    "refund": (t.Refunded, "reversed"),
    "reversal": (t.Reversed, "reversed"),
}
_REQUESTS: dict[type[e.Event], str] = {
    t.CaptureRequested: "capture",
    t.PostingRequested: "posting",
    t.VoidRequested: "void",
    t.RefundRequested: "refund",
    t.ReversalRequested: "reversal",
}
_MORE: tuple[type[e.Event], ...] = (t.GatewayNotified, t.Corrected, t.Conflicted)

_MADE = lifecycle(
    "transaction",
    *(Operation(name, done, done, status) for name, (done, status) in _OPERATIONS.items()),
    decisions=TRANSACTION_DECISIONS,
    folds={
        **TRANSACTION_FOLDS,
        **{kind: requested(name) for kind, name in _REQUESTS.items()},
    },
    event_names={
        e.Created: "TransactionCreated",
        e.Updated: "TransactionUpdated",
        t.CallStarted: "AttemptStarted",
        t.Resolved: "OutcomeResolved",
        t.Lapsed: "AuthorizationExpired",
        **{kind: kind.__name__ for kind in (*_REQUESTS, *_MORE)},
    },
    words={
        t.Authorized: "authorized",
        t.Reserved: "authorized",
        t.Captured: "captured",
        t.Posted: "captured",
        t.Completed: "completed",
        t.Voided: "cancelled",
        t.Refunded: "refunded",
        t.Reversed: "reversed",
        t.Lapsed: "expired",
        t.Conflicted: "conflicted",
    },
)
#: Their successors of this lifecycle are stored under the same names.
_REPLACED = (e.AttemptStarted, e.OutcomeResolved)
_FOLD_OF_DONE = {
    t.Authorized: "authorization",
    t.Reserved: "reservation",
    t.Captured: "capture",
    t.Posted: "posting",
    t.Voided: "void",
    t.Refunded: "refund",
    t.Reversed: "reversal",
}


def _opening(payload: Any) -> tuple[str, dict[str, Any]]:
    """A sale, unless the payload has a field `operation` that says `authorize`."""
    is_sale = getattr(payload, "operation", "sale") != "authorize"
    first = "sale" if is_sale else "authorization"
    return first, opening_facts(payload.amount, first)


TRANSACTION = replace(
    _MADE,
    stream="transaction",
    counters={
        t.Authorized: "authorized",
        t.Reserved: "authorized",
        t.Captured: "captured",
        t.Posted: "captured",
        t.Completed: "captured",
        t.Refunded: "reversed",
        t.Reversed: "reversed",
    },
    journal=True,
    needs={"amount": Money},
    opens=_opening,
    facts=read_funds,
    in_doubt=in_doubt,
    statuses=(
        "initiated",
        "validated",
        "queued",
        "authorized",
        "captured",
        "completed",
        "failed",
        "reversed",
        "expired",
        "cancelled",
        "unknown",
    ),
    terminal=frozenset({"completed", "captured", "failed", "reversed", "expired", "cancelled"}),
    folds={
        **_MADE.folds,
        **{kind: succeeded(name) for kind, name in _FOLD_OF_DONE.items()},
        t.Completed: succeeded(""),
    },
    event_names={kind: name for kind, name in _MADE.event_names.items() if kind not in _REPLACED},
)
