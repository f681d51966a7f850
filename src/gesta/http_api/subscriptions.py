"""/v1/subscriptions: consumers of events. /v1/suppression/{flow}: addresses that get no more
messages.

Answers and URLs never contain suppressed addresses: entries have ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gesta.admin.admin import Listener
from gesta.api_types.structs import Asked, ListOf
from gesta.api_types.subscriptions import (
    HandlerSubscription,
    SuppressedRepresentation,
    WebhookSubscription,
)
from gesta.domain.durations import iso
from gesta.engine.engine import Engine
from gesta.errors import BadCursor, NotFound
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Paging, Route
from gesta.tenants.suppression import REASON_LENGTH_MAX, Entry

_ID = re.compile(r"[0-9a-f]{32}")
_SUPPRESSION = "/v1/suppression/{flow}"


async def _handlers(call: Call) -> list[Listener]:
    """Handlers consume the events of all tenants, so only keys of the tenant in the process's
    settings see them.
    """
    return await call.engine.admin.handlers() if call.tenant == call.engine.settings.tenant else []


async def list_subscriptions(call: Call) -> Answer:
    admin = call.engine.admin
    webhooks = [
        WebhookSubscription(one.code, one.flow, list(one.statuses), one.endpoint, one.error or None)
        for one in await admin.event_webhooks(call.tenant)
    ]
    handlers = [
        HandlerSubscription(one.name, one.behind, one.is_held, bool(one.error))
        for one in await _handlers(call)
    ]
    return Answer(ListOf(items=[*webhooks, *handlers]))


async def forget_subscription(call: Call) -> Answer:
    """Delete the checkpoint of a handler that no program declares any more.

    A handler that a running process uses is not deleted.
    """
    name = call.params["name"]
    for one in await _handlers(call):
        if one.name == name:
            if one.is_held:
                raise Problem(
                    409, "in_use", "a running process calls this handler; stop that process first"
                )
            await call.engine.admin.forget_handler(name, actor=call.actor)
            return Answer(status=204)
    raise NotFound("subscription", name)


class Address(Asked, frozen=True):
    """`reason` is shown to operators later."""

    address: Annotated[str, msgspec.Meta(min_length=1, max_length=254)]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_LENGTH_MAX)] = "by hand"


class Sought(Asked, frozen=True):
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=254)]


def represent(entry: Entry) -> SuppressedRepresentation:
    stored = entry.suppressed
    return SuppressedRepresentation(
        entry.id, stored.masked, stored.reason, stored.source, iso(stored.at)
    )


async def list_suppressed(call: Call) -> Answer:
    asked: Paging = call.query
    if asked.cursor is not None and not _ID.fullmatch(asked.cursor):
        raise BadCursor
    found, following = await call.engine.admin.list_suppressed(
        call.params["flow"], after=asked.cursor or "", limit=asked.limit, tenant=call.tenant
    )
    return Answer(ListOf(items=[represent(one) for one in found], next=following))


async def suppress(call: Call) -> Answer:
    """Send no more messages of this flow to this address.

    An address that is listed keeps its first reason. The audit log names the actor.
    """
    asked: Address = call.body
    actor = call.actor
    entry = await call.engine.admin.suppress(
        call.params["flow"],
        asked.address,
        reason=asked.reason,
        source=actor.user_id,
        tenant=call.tenant,
        actor=actor,
    )
    return Answer(represent(entry))


async def find_suppressed(call: Call) -> Answer:
    """Why an address is suppressed; 404 if it is not.

    A POST, because URLs must not contain addresses.
    """
    asked: Sought = call.body
    entry = await call.engine.admin.suppressed(
        call.params["flow"], asked.address, tenant=call.tenant
    )
    if entry is None:
        # The text must not repeat the address.
        raise Problem(404, "not_found", "this address is not suppressed for this flow")
    return Answer(represent(entry))


async def unsuppress(call: Call) -> Answer:
    """Allow messages to an address again. The audit log names the actor."""
    entry_id = call.params["id"]
    if not _ID.fullmatch(entry_id):
        raise NotFound("suppressed address", entry_id)
    await call.engine.admin.unsuppress_entry(
        call.params["flow"], entry_id, tenant=call.tenant, actor=call.actor
    )
    return Answer(status=204)


async def flow_first(
    engine: Engine, _tenant: str, path: Mapping[str, str], _given: dict[str, Any]
) -> dict[str, str]:
    """An unknown flow is reported before errors of the body."""
    engine.flow(path["flow"])
    return {}


ROUTES = [
    Route(
        "GET",
        "/v1/subscriptions",
        list_subscriptions,
        "operate",
        "List subscriptions",
        "subscriptions",
        answer=ListOf[WebhookSubscription | HandlerSubscription],
    ),
    Route(
        "DELETE",
        "/v1/subscriptions/{name:path}",
        forget_subscription,
        "admin",
        "Delete an abandoned handler",
        "subscriptions",
        status=204,
        problems=(404, 409),
    ),
    Route(
        "GET",
        _SUPPRESSION,
        list_suppressed,
        "operate",
        "List suppressed addresses",
        "suppression",
        query=Paging,
        answer=ListOf[SuppressedRepresentation],
        problems=(400, 422),
    ),
    Route(
        "PUT",
        _SUPPRESSION,
        suppress,
        "operate",
        "Suppress an address",
        "suppression",
        body=Address,
        also=flow_first,
        answer=SuppressedRepresentation,
        problems=(422,),
        example={"address": "ada@example.com", "reason": "asked by phone"},
    ),
    Route(
        "POST",
        f"{_SUPPRESSION}/find",
        find_suppressed,
        "operate",
        "Find a suppressed address",
        "suppression",
        body=Sought,
        also=flow_first,
        answer=SuppressedRepresentation,
        problems=(404, 422),
        example={"address": "ada@example.com"},
    ),
    Route(
        "DELETE",
        f"{_SUPPRESSION}/{{id}}",
        unsuppress,
        "operate",
        "Remove an address from the list",
        "suppression",
        status=204,
        problems=(404, 422),
    ),
]
