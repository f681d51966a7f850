"""What a caller can ask about themselves and about what is here: the key, the flows, the counts,
what was set aside.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gesta.api_types.representations import QuarantinedShape, quarantined_shape
from gesta.domain.lifecycles import Status
from gesta.domain.outcome import UnknownPolicy
from gesta.flows.schemas import payload_schema
from gesta.http_api.route import Answer, Asked, Call, Route, Shape
from gesta.requests.dead_letters import iso

PARKED_MAX = 1_000


class Myself(Shape, frozen=True):
    """The key that was sent."""

    key_id: str
    name: str
    tenant: str
    scopes: list[str]
    test: bool
    expires_at: str | None


class FlowShape(Shape, frozen=True):
    """`payload` is a JSON schema; what is `x-personal` in it is stored sealed.

    `external`: others execute it, by POST /v1/flows/{flow}/work.
    """

    name: str
    payload: dict[str, Any]
    external: bool
    on_unknown: UnknownPolicy
    attempts: int
    ttl_seconds: float | None
    #: Kinds of config that it uses.
    config: list[str]


class Flows(Shape, frozen=True):
    items: list[FlowShape]


class Count(Shape, frozen=True):
    flow: str
    status: Status
    count: int


class Counts(Shape, frozen=True):
    items: list[Count]


class ParkedAsked(Asked, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=PARKED_MAX)] = 100


class ParkedList(Shape, frozen=True):
    """Newest first. `more`: there are others than these."""

    items: list[QuarantinedShape]
    more: bool


async def whoami(call: Call) -> Answer:
    """Whose key this is, and what it allows."""
    grant = call.grant
    expires = None if grant.expires_ms is None else iso(grant.expires_ms)
    return Answer(
        Myself(grant.key_id, grant.name, grant.tenant, sorted(grant.scopes), grant.is_test, expires)
    )


async def list_flows(call: Call) -> Answer:
    """What can be asked for: the flows of this process."""
    found = [
        FlowShape(
            flow.name,
            payload_schema(flow.payload),
            external=flow.is_external,
            on_unknown=flow.rules.on_unknown,
            attempts=flow.rules.retry.attempts,
            ttl_seconds=flow.ttl_seconds,
            config=sorted(flow.config),
        )
        for _, flow in sorted(call.engine.flows.items())
    ]
    return Answer(Flows(found))


async def count_requests(call: Call) -> Answer:
    """How many requests the tenant has, by flow and status. They may lag some milliseconds
    behind.
    """
    counts: dict[tuple[str, Any], int] = dict(await call.engine.admin.counts(call.tenant))
    return Answer(
        Counts([Count(flow, status, count) for (flow, status), count in sorted(counts.items())])
    )


async def list_parked(call: Call) -> Answer:
    """Events and jobs of the tenant that could not be processed and were set aside, so that the
    rest goes on.
    """
    asked: ParkedAsked = call.query
    found = await call.engine.admin.quarantined(call.tenant, asked.limit + 1)
    return Answer(
        ParkedList(
            [quarantined_shape(one) for one in found[: asked.limit]], len(found) > asked.limit
        )
    )


ROUTES = [
    Route("GET", "/v1/whoami", whoami, "any", "The key that was sent", "access", answer=Myself),
    Route(
        "GET", "/v1/flows", list_flows, "read", "What can be asked for", "requests", answer=Flows
    ),
    Route(
        "GET",
        "/v1/counts",
        count_requests,
        "read",
        "Requests by flow and status",
        "requests",
        answer=Counts,
    ),
    Route(
        "GET",
        "/v1/parked",
        list_parked,
        "operate",
        "What was set aside",
        "operating",
        query=ParkedAsked,
        answer=ParkedList,
    ),
]
