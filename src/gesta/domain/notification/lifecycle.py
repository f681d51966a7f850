"""A notification is sent once, and its provider may report later whether it was delivered."""

from dataclasses import replace

from gesta.domain import events as e
from gesta.domain.commands import RecordReceipt
from gesta.domain.lifecycle import lifecycle
from gesta.domain.notification.receipts import decide_receipt, fold_receipt
from gesta.domain.operation import Operation

_RECEIPTS: dict[type, str] = {
    e.Delivered: "delivered",
    e.Bounced: "bounced",
    e.Complained: "complained",
}

NOTIFICATION = lifecycle(
    "notification",
    Operation("send", e.Sent, e.SentLate, "sent"),
    decisions={RecordReceipt: decide_receipt},
    folds=dict.fromkeys(_RECEIPTS, fold_receipt),
    event_names={kind: kind.__name__ for kind in _RECEIPTS},
    words=_RECEIPTS,
)
#: The same under the event names of the contract that the Slack channel took over.
SLACK = replace(
    NOTIFICATION,
    event_names={
        **NOTIFICATION.event_names,
        e.Created: "MessageRequestCreated",
        e.Updated: "MessageRequestUpdated",
        e.Sent: "MessageSent",
        e.SentLate: "MessageSentLate",
        e.Failed: "MessageFailed",
    },
)
