"""Status events: what handlers and webhooks receive when the status of a request changes."""

import msgspec

from gesta.domain import events as e
from gesta.domain.ids import id_text
from gesta.domain.outcome import clear_text
from gesta.domain.state import State

CREATED, ATTEMPT_FAILED = "created", "attempt_failed"
#: Every status to which a handler can subscribe: those of notifications, those of transactions,
#: then delivery receipts.
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
    "refunded",
    "reversed",
    "conflicted",
    "compensated",
    "delivered",
    "bounced",
    "complained",
)

#: `Meta.source` of requests that the engine itself submitted. They cause no status webhooks,
#: because a webhook would then report itself forever, and a failed alert causes no alert.
STATUS_WEBHOOKS, ALERTING = "gesta/webhooks", "gesta/alerts"
#: The steps of sagas carry this, followed by the flow and id of the saga. Unlike those above they
#: are reported as any other request.
OF_SAGA = "gesta/saga/"
#: Replies in the thread of a Slack message that asked for an issue. A reply that the issue could
#: not be created carries this, followed by `/` and the flow and id of the ticket (`about_failed`).
REPLIES = "gesta/replies"


def is_own(source: str) -> bool:
    """Whether the engine submitted the request to report another one."""
    return source in (STATUS_WEBHOOKS, ALERTING) or is_reply(source)


def is_reply(source: str) -> bool:
    return source == REPLIES or source.startswith(f"{REPLIES}/")


def about_failed(flow: str, request_id: str) -> str:
    """The source of a reply that is true only as long as that request has not succeeded."""
    return f"{REPLIES}/{flow}/{request_id}"


def premise_of(source: str) -> tuple[str, str] | None:
    """Flow and id of the request that must not have succeeded; None: it is sent in any case."""
    if not source.startswith(f"{REPLIES}/"):
        return None
    flow, _, request_id = source.removeprefix(f"{REPLIES}/").partition("/")
    return flow, request_id


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of a request, as handlers receive it.

    It has no payload: a handler that needs the payload asks the engine. A handler may receive an
    event more than once, each time with the same `id`. Times are epoch milliseconds.
    """

    #: Its position in the log. Handlers receive events in this order.
    position: int
    id: str
    #: The status of the subscription: created, sent, failed, expired, cancelled, unknown,
    #: attempt_failed, delivered, bounced, complained.
    status: str
    #: The stored type, e.g. notification.webhook.Sent.v1.
    type: str
    flow: str
    tenant: str
    request_id: str
    #: How many events the request has, this one included.
    version: int
    at_ms: int
    attempts: int
    reason: str
    detail: str
    provider_id: str
    correlation_id: str
    key: str | None
    #: A test request: it reached the sandbox only.
    test: bool = False


def changed_status(word: str, before: State | None) -> bool:
    """Whether the event changed the status: an outcome that stays unknown did not."""
    return before is None or word == ATTEMPT_FAILED or before.status != word


def status_event(
    word: str, after: State, meta: e.Meta, position: int, event_id: bytes, type_name: str
) -> Event:
    """The status event, from the state right after the stored event."""
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
