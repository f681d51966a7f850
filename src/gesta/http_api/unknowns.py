"""/v1/unknown: outcomes that only a person can tell.

POST /v1/requests/{flow}/{id}/resolve ends such a doubt.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gesta.api_types.decisions import UnknownOutcome, UnknownOutcomes
from gesta.api_types.requests import FlowName
from gesta.api_types.structs import PAGE_MAX, Asked
from gesta.domain.ids import REQUEST_ID
from gesta.domain.state import State
from gesta.errors import BadCursor
from gesta.http_api.route import Answer, Call, Route
from gesta.requests.dead_letters import iso


class Choice(Asked, frozen=True):
    flow: FlowName | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


async def list_unknown(call: Call) -> Answer:
    """Requests whose outcome waits for a person's word, with age and reason."""
    asked: Choice = call.query
    if asked.cursor is not None and not REQUEST_ID.fullmatch(asked.cursor):
        raise BadCursor
    page = await call.engine.admin.undecided_page(
        call.tenant, asked.flow, before_id=asked.cursor, limit=asked.limit
    )
    now = call.pipeline.runtime.now_ms()
    return Answer(UnknownOutcomes([_represent(state, now) for state in page.items], page.next))


def _represent(state: State, now_ms: int) -> UnknownOutcome:
    return UnknownOutcome(
        state.id,
        state.flow,
        state.key,
        state.reason,
        state.detail,
        state.attempts,
        iso(state.created_at),
        iso(state.updated_at),
        max(0, now_ms - state.updated_at) // 1000,
        state.correlation_id,
    )


ROUTES = [
    Route(
        "GET",
        "/v1/unknown",
        list_unknown,
        "read",
        "Outcomes that wait for a person",
        "decisions",
        query=Choice,
        answer=UnknownOutcomes,
    )
]
