"""/v1/subscriptions: who is told of what happens: the tenant's webhooks, and how far programs'
handlers have come.
"""

from __future__ import annotations

from gesta.admin.admin import Listener
from gesta.api_types.subscriptions import (
    HandlerRepresentation,
    SubscriptionsRepresentation,
    WebhookRepresentation,
)
from gesta.errors import NotFound
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route


async def _handlers(call: Call) -> list[Listener]:
    """They listen for all tenants, so they are shown to those who run the installation alone: keys
    of the tenant of its settings.
    """
    return await call.engine.admin.handlers() if call.tenant == call.engine.settings.tenant else []


async def list_subscriptions(call: Call) -> Answer:
    admin = call.engine.admin
    webhooks = [
        WebhookRepresentation(one.code, one.flow, list(one.statuses), one.endpoint, one.fault)
        for one in await admin.told_webhooks(call.tenant)
    ]
    handlers = [
        HandlerRepresentation(one.name, one.behind, one.is_held, bool(one.error))
        for one in await _handlers(call)
    ]
    return Answer(SubscriptionsRepresentation(webhooks, handlers))


async def forget_subscription(call: Call) -> Answer:
    """The place of a handler that no program declares any more is forgotten: it holds nothing back.

    One that is in use stays.
    """
    name = call.params["name"]
    for one in await _handlers(call):
        if one.name == name:
            if one.is_held:
                raise Problem(
                    409, "in_use", "a running process tells this handler; stop that first"
                )
            await call.engine.admin.forget_handler(name, actor=call.actor)
            return Answer(status=204)
    raise NotFound("subscription", name)


ROUTES = [
    Route(
        "GET",
        "/v1/subscriptions",
        list_subscriptions,
        "operate",
        "Who is told of what happens",
        "subscriptions",
        answer=SubscriptionsRepresentation,
    ),
    Route(
        "DELETE",
        "/v1/subscriptions/{name:path}",
        forget_subscription,
        "admin",
        "Forget the place of an abandoned handler",
        "subscriptions",
        status=204,
        problems=(404, 409),
    ),
]
