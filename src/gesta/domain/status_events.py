"""What a user's application is told: one word for each event that changed a request's status."""

import msgspec

from gesta.domain import events as e
from gesta.domain.ids import id_text
from gesta.domain.outcome import clear_text
from gesta.domain.state import State

CREATED, ATTEMPT_FAILED = "created", "attempt_failed"
#: Every word that can be listened for: those of notifications, then those that only transactions
#: have, then what providers report.
WORDS = (
    CREATED,
    "sent",
    "failed",
    "expired",
    "cancelled",
    "unknown",
    ATTEMPT_FAILED,
    "authorized",
    "captured",
    "completed",
    "reversed",
    "delivered",
    "bounced",
    "complained",
)

#: Who asked, where it was the engine itself: in `Meta.source` of every event of such a request.
#: What these come to is told to no tenant's
#: webhook, or a webhook would tell of itself for ever; and what becomes of alerts makes no alert.
STATUS_WEBHOOKS, ALERTING = "gesta/told", "gesta/alerts"
OWN_SOURCES = frozenset({STATUS_WEBHOOKS, ALERTING})


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of a request, as handlers get it.

    Never the payload: ask the engine for it, if it is needed.

    An event may be told more than once; `id` is the same each time. Times are epoch milliseconds.
    """

    #: Its place in the log: events are told in this order.
    position: int
    id: str
    #: The word that was listened for: created, sent, failed, expired, cancelled, unknown,
    #: attempt_failed, delivered, bounced, complained.
    status: str
    #: The stored type, e.g. notification.webhook.Sent.v1.
    type: str
    flow: str
    tenant: str
    request_id: str
    #: How many events the request had with this one.
    version: int
    at_ms: int
    attempts: int
    reason: str
    detail: str
    provider_id: str
    correlation_id: str
    key: str | None
    #: It reached the sandbox and nobody else.
    test: bool = False


def changed_status(word: str, before: State | None) -> bool:
    """Whether the event changed something: an outcome that stays unknown did not."""
    return before is None or word == ATTEMPT_FAILED or before.status != word


def told(
    word: str, after: State, meta: e.Meta, position: int, event_id: bytes, type_name: str
) -> Event:
    """What handlers get, from the request as it was right after the event."""
    reason = (
        after.bounce
        if word == "bounced"
        else after.complaint
        if word == "complained"
        else after.reason
    )
    return Event(
        position,
        id_text(event_id),
        word,
        type_name,
        after.flow,
        after.tenant,
        after.id,
        after.version,
        meta.occurred_at,
        after.attempts,
        reason,
        clear_text(after.detail),
        after.provider_id,
        meta.correlation_id,
        after.key,
        after.test,
    )
