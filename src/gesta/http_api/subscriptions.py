"""/v1/subscriptions: who hears of what happens. /v1/suppression/{flow}: who gets no more messages.

Suppressed addresses are never shown, and never in a URL: entries have ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gesta.admin.admin import Listener
from gesta.api_types.structs import PAGE_MAX, Asked
from gesta.api_types.subscriptions import (
    HandlerSubscription,
    Subscriptions,
    SuppressedPage,
    SuppressedRepresentation,
    WebhookSubscription,
)
from gesta.errors import BadCursor, NotFound
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route
from gesta.requests.dead_letters import iso
from gesta.tenants.suppression import REASON_LENGTH_MAX, Entry

if TYPE_CHECKING:
    from gesta.engine.engine import Engine

_ID = re.compile(r"[0-9a-f]{32}")
_SUPPRESSION = "/v1/suppression/{flow}"


async def _handlers(call: Call) -> list[Listener]:
    """They listen for all tenants, so they are shown to those who run the installation alone: keys
    of the tenant of its settings.
    """
    return await call.engine.admin.handlers() if call.tenant == call.engine.settings.tenant else []


async def list_subscriptions(call: Call) -> Answer:
    admin = call.engine.admin
    webhooks = [
        WebhookSubscription(one.code, one.flow, list(one.statuses), one.endpoint, one.error or None)
        for one in await admin.told_webhooks(call.tenant)
    ]
    handlers = [
        HandlerSubscription(one.name, one.behind, one.is_held, bool(one.error))
        for one in await _handlers(call)
    ]
    return Answer(Subscriptions(items=[*webhooks, *handlers]))


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


class Address(Asked, frozen=True):
    """`reason` is for whoever asks later why."""

    address: Annotated[str, msgspec.Meta(min_length=1, max_length=254)]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_LENGTH_MAX)] = "by hand"


class Sought(Asked, frozen=True):
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=254)]


class SuppressedListing(Asked, frozen=True):
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


def represent(entry: Entry) -> SuppressedRepresentation:
    told = entry.suppressed
    return SuppressedRepresentation(entry.id, told.masked, told.reason, told.source, iso(told.at))


async def list_suppressed(call: Call) -> Answer:
    asked: SuppressedListing = call.query
    if asked.cursor is not None and not _ID.fullmatch(asked.cursor):
        raise BadCursor
    found, following = await call.engine.admin.list_suppressed(
        call.params["flow"], after=asked.cursor or "", limit=asked.limit, tenant=call.tenant
    )
    return Answer(SuppressedPage(items=[represent(one) for one in found], next=following))


async def suppress(call: Call) -> Answer:
    """No more messages of this flow to this address.

    One that is on the list stays there for its first reason; the audit trail has who decided it.
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
    """Why an address gets no messages; 404 where it does.

    A POST, because an address must not stand in a URL.
    """
    asked: Sought = call.body
    entry = await call.engine.admin.suppressed(
        call.params["flow"], asked.address, tenant=call.tenant
    )
    if entry is None:
        # Not the address: it must not come back in a text.
        raise Problem(404, "not_found", "this address is not suppressed for this flow")
    return Answer(represent(entry))


async def unsuppress(call: Call) -> Answer:
    """Messages may go there again; the audit trail has who decided it."""
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
    """Of a flow that is unknown, nobody mends a body."""
    engine.flow(path["flow"])
    return {}


ROUTES = [
    Route(
        "GET",
        "/v1/subscriptions",
        list_subscriptions,
        "operate",
        "Who is told of what happens",
        "subscriptions",
        answer=Subscriptions,
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
    Route(
        "GET",
        _SUPPRESSION,
        list_suppressed,
        "operate",
        "Addresses that get no more messages",
        "suppression",
        query=SuppressedListing,
        answer=SuppressedPage,
        problems=(400, 422),
    ),
    Route(
        "PUT",
        _SUPPRESSION,
        suppress,
        "operate",
        "No more messages to an address",
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
        "Whether an address is on the list",
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
        "Messages to an address again",
        "suppression",
        status=204,
        problems=(404, 422),
    ),
]
