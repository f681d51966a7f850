"""What a caller can ask about themselves and about what is here: the key, the flows, the counts,
what was set aside.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gesta.admin.representations import quarantined_representation
from gesta.api_types.admin import Count, Counts, FlowRepresentation, Flows, ParkedList
from gesta.api_types.keys import Myself
from gesta.api_types.structs import Asked
from gesta.flows.schemas import payload_schema
from gesta.http_api.route import Answer, Call, Route
from gesta.requests.dead_letters import iso

PARKED_MAX = 1_000


class ParkedAsked(Asked, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=PARKED_MAX)] = 100


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
        FlowRepresentation(
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
            [quarantined_representation(one) for one in found[: asked.limit]],
            len(found) > asked.limit,
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
