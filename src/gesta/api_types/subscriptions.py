"""Who hears of what happens, and which addresses get no more messages."""

from gesta.api_types.structs import Representation


class WebhookRepresentation(Representation, frozen=True):
    """A `webhook.subscription` of the tenant. `fault` says why it tells nobody; empty: it does."""

    code: str
    flow: str
    statuses: list[str]
    endpoint: str
    fault: str


class HandlerRepresentation(Representation, frozen=True):
    """A handler of a program, or one of the engine's own. No event is in it, and no tenant."""

    name: str
    #: Events that it has not seen yet; roughly.
    behind: int
    #: Whether a running process tells it.
    is_held: bool
    #: Whether it is stuck. What it stumbled over is in `gesta doctor`, and in the log.
    is_stuck: bool


class SubscriptionsRepresentation(Representation, frozen=True):
    webhooks: list[WebhookRepresentation]
    handlers: list[HandlerRepresentation]


class SuppressedRepresentation(Representation, frozen=True):
    id: str
    #: Enough to recognise, too little to learn.
    masked: str
    reason: str
    source: str
    since: str


class SuppressedPage(Representation, frozen=True):
    """In no order that means anything. `next` continues the list; null: that was all."""

    items: list[SuppressedRepresentation]
    next: str | None
