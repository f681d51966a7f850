"""Subscriptions to events, and addresses that get no more messages."""

from gesta.api_types.structs import Representation


class WebhookSubscription(Representation, frozen=True, tag_field="kind", tag="webhook"):
    """A `webhook.subscription` of the tenant. `error` says why it sends nothing; null: it works."""

    code: str
    flow: str
    statuses: list[str]
    endpoint: str
    error: str | None


class HandlerSubscription(Representation, frozen=True, tag_field="kind", tag="handler"):
    """A handler of a program, or one of the engine's own, for the events of all tenants."""

    name: str
    #: Events that it has not seen yet; an estimate.
    behind: int
    #: Whether a running process calls it.
    is_held: bool
    #: Whether it keeps failing. The error is in `gesta doctor` and in the log.
    is_stuck: bool


class SuppressedRepresentation(Representation, frozen=True):
    id: str
    #: The address, masked.
    masked: str
    reason: str
    source: str
    since: str
