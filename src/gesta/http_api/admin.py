"""What operators ask and do: flows, counts, what was quarantined, pauses, erasure, whose key it is.

A pause for everybody, of a flow or of everything, is not one tenant's to make or to end: `gesta
pause`. It is shown, without who and why.
"""

from collections import Counter
from typing import Annotated, Any

import msgspec

from gesta.admin.representations import pause_representation, quarantined_representation
from gesta.api_types.admin import (
    Count,
    Counts,
    ErasedRepresentation,
    FlowRepresentation,
    Flows,
    PauseRepresentation,
    Pauses,
    QuarantinedList,
    Resumed,
)
from gesta.api_types.keys import Myself
from gesta.api_types.structs import Asked
from gesta.errors import NotFound
from gesta.flows.channels import unknown_flow
from gesta.flows.schemas import payload_schema
from gesta.http_api.problem import invalid
from gesta.http_api.route import Answer, Call, Route
from gesta.requests.dead_letters import iso
from gesta.tenants.pauses import Pause

#: The most quarantined events and jobs that the list pages through.
QUARANTINED_MAX = 10_000


class QuarantinedQuery(Asked, frozen=True):
    cursor: Annotated[int, msgspec.Meta(ge=0, le=QUARANTINED_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


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
    return Answer(Flows(items=found))


async def count_requests(call: Call) -> Answer:
    """How many requests the tenant has, by flow and status. They may lag some milliseconds
    behind.
    """
    counts: dict[tuple[str, Any], int] = dict(await call.engine.admin.counts(call.tenant))
    items = [Count(flow, status, count) for (flow, status), count in sorted(counts.items())]
    return Answer(Counts(items=items))


async def list_quarantined(call: Call) -> Answer:
    """Events and jobs of the tenant that could not be processed. They block no other request."""
    asked: QuarantinedQuery = call.query
    end = asked.cursor + asked.limit
    found = await call.engine.admin.quarantined(call.tenant, end + 1)
    return Answer(
        QuarantinedList(
            items=[quarantined_representation(one) for one in found[asked.cursor : end]],
            next=str(end) if len(found) > end <= QUARANTINED_MAX else None,
        )
    )


class Chosen(Asked, frozen=True):
    """Neither: everything of the tenant. `credential` is `kind/code` of its config."""

    flow: str | None = None
    credential: str | None = None


class PauseAsked(Chosen, frozen=True):
    #: For those who find it paused.
    reason: str = ""


async def list_pauses(call: Call) -> Answer:
    """What keeps the tenant's requests from going on, and how many of its jobs are held."""
    admin, is_local = call.engine.admin, call.web.grant is not None
    held = [one for one in await admin.held() if is_local or one.tenant == call.tenant]
    counts: Counter[str] = Counter()
    for one in held:
        counts[one.scope] += one.count
    # On the store itself everybody's are shown, also those of other tenants that hold jobs.
    found = [*(await admin.paused() if is_local else ()), *await admin.paused(call.tenant)]
    pauses = {str(pause.scope): pause if is_local else _own(pause) for pause in found}
    items = [pause_representation(pause, counts[name]) for name, pause in sorted(pauses.items())]
    return Answer(Pauses(items=items))


async def pause(call: Call) -> Answer:
    """Begin nothing more. Requests are accepted and wait; attempts that run go on. Safe to
    repeat.
    """
    asked: PauseAsked = call.body
    if call.web.grant is None:
        await _refuse_unknown(call, asked)
    made = await call.engine.admin.pause(
        flow=asked.flow,
        tenant=call.tenant,
        credential=asked.credential,
        reason=asked.reason,
        actor=call.actor,
    )
    return Answer(pause_representation(made, 0))


async def resume(call: Call) -> Answer:
    """Let it go on, whoever had paused it: a person, or the engine because a provider refused the
    credential.
    """
    asked: Chosen = call.query
    held = await call.engine.admin.resume(
        flow=asked.flow, tenant=call.tenant, credential=asked.credential, actor=call.actor
    )
    return Answer(Resumed(held))


async def _refuse_unknown(call: Call, asked: PauseAsked) -> None:
    """Every worker remembers every pause, so there is one only of what there is."""
    faults = {}
    if asked.flow is not None and asked.flow not in call.engine.flows:
        faults["flow"] = str(unknown_flow(asked.flow, call.engine.flows))
    declared = {credential for flow in call.engine.flows.values() for credential in flow.declared}
    if asked.credential is not None and asked.credential not in declared:
        kind, _, code = asked.credential.partition("/")
        if not await call.engine.admin.config_version(kind, code, tenant=call.tenant):
            faults["credential"] = str(NotFound("config", asked.credential))
    if faults:
        raise invalid(faults)


def _own(pause: Pause) -> Pause:
    """What a tenant may know: of a pause for everybody, that it is there."""
    return pause if pause.scope.tenant is not None else Pause(pause.scope, "", pause.since_ms, "")


class Erase(Asked, frozen=True):
    """`subject`: the text that stands in a personal field, letter by letter, or what a payload's
    `subject` said.
    """

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


async def erase(call: Call) -> Answer:
    """Destroy the keys that seal what payloads tell about a person.

    It cannot be undone; it is safe to repeat.
    """
    return Answer(
        ErasedRepresentation(
            await call.engine.erase(call.body.subject, tenant=call.tenant, actor=call.actor)
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
        "/v1/quarantined",
        list_quarantined,
        "operate",
        "List quarantined events and jobs",
        "operating",
        query=QuarantinedQuery,
        answer=QuarantinedList,
    ),
    Route(
        "GET", "/v1/pauses", list_pauses, "operate", "What is paused", "operating", answer=Pauses
    ),
    Route(
        "POST",
        "/v1/pauses",
        pause,
        "operate",
        "Begin nothing more",
        "operating",
        body=PauseAsked,
        answer=PauseRepresentation,
        example={"reason": "the receiver is being moved"},
        is_broad=True,
    ),
    Route(
        "DELETE",
        "/v1/pauses",
        resume,
        "operate",
        "Let it go on",
        "operating",
        query=Chosen,
        answer=Resumed,
        problems=(404,),
    ),
    Route(
        "POST",
        "/v1/erase",
        erase,
        "admin",
        "Erase a person",
        "people",
        body=Erase,
        answer=ErasedRepresentation,
        example={"subject": "ada@example.org"},
    ),
]
