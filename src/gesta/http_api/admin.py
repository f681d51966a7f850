"""Routes for operators: flows, counts, quarantine, pauses, erasure, the caller's key.

A tenant cannot make or end a pause that affects every tenant; `gesta pause` does that. The list
shows such a pause without its reason and author.
"""

from collections import Counter
from typing import Annotated, Any

import msgspec

from gesta.admin.representations import pause_representation, quarantined_representation
from gesta.api_types.admin import (
    Count,
    ErasedRepresentation,
    FlowRepresentation,
    PauseRepresentation,
    QuarantinedRepresentation,
    Resumed,
)
from gesta.api_types.keys import Myself
from gesta.api_types.structs import PRINTABLE, Asked, ListOf
from gesta.domain.durations import iso
from gesta.domain.ids import FLOW
from gesta.errors import NotFound
from gesta.flows.channels import unknown_flow
from gesta.flows.schemas import payload_schema
from gesta.http_api.problem import invalid
from gesta.http_api.route import Answer, Call, Route
from gesta.tenants.pauses import CREDENTIAL_LENGTH_MAX, REASON_LENGTH_MAX, Pause

#: The list of quarantined events and jobs ends here.
QUARANTINED_MAX = 10_000


class QuarantinedQuery(Asked, frozen=True):
    cursor: Annotated[int, msgspec.Meta(ge=0, le=QUARANTINED_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


async def whoami(call: Call) -> Answer:
    """The key that was sent, with its scopes."""
    grant = call.grant
    expires = None if grant.expires_ms is None else iso(grant.expires_ms)
    return Answer(
        Myself(grant.key_id, grant.name, grant.tenant, sorted(grant.scopes), grant.is_test, expires)
    )


async def list_flows(call: Call) -> Answer:
    """The flows of this process, with the schemas of their payloads."""
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
    return Answer(ListOf(items=found))


async def count_requests(call: Call) -> Answer:
    """How many requests the tenant has, by flow and status. The counts may lag by some
    milliseconds.
    """
    counts: dict[tuple[str, Any], int] = dict(await call.engine.admin.counts(call.tenant))
    items = [Count(flow, status, count) for (flow, status), count in sorted(counts.items())]
    return Answer(ListOf(items=items))


async def list_quarantined(call: Call) -> Answer:
    """Events and jobs of the tenant that could not be processed. They block no other request."""
    asked: QuarantinedQuery = call.query
    end = asked.cursor + asked.limit
    found = await call.engine.admin.quarantined(call.tenant, end + 1)
    return Answer(
        ListOf(
            items=[quarantined_representation(one) for one in found[asked.cursor : end]],
            next=str(end) if len(found) > end <= QUARANTINED_MAX else None,
        )
    )


#: Checked by `pauses.checked`, together with the rest.
_CREDENTIAL = msgspec.Meta(
    extra_json_schema={"pattern": r"^[!-.0-~]+/[!-~]+$", "maxLength": CREDENTIAL_LENGTH_MAX}
)


class Chosen(Asked, frozen=True):
    """Without both: the whole tenant. `credential` is the `kind/code` of its config."""

    flow: (
        Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{FLOW.pattern}$"})] | None
    ) = None
    credential: Annotated[str, _CREDENTIAL] | None = None


_REASON = msgspec.Meta(
    extra_json_schema={
        "pattern": PRINTABLE,
        "maxLength": REASON_LENGTH_MAX,
    }
)


class PauseAsked(Chosen, frozen=True):
    #: Shown to operators who find it paused.
    reason: Annotated[str, _REASON] | None = None


async def list_pauses(call: Call) -> Answer:
    """The pauses that affect the tenant, and how many of its jobs each one holds."""
    admin, is_local = call.engine.admin, call.web.grant is not None
    held = [one for one in await admin.held() if is_local or one.tenant == call.tenant]
    counts: Counter[str] = Counter()
    for one in held:
        counts[one.scope] += one.count
    # In local mode the pauses of every tenant that has held jobs are shown.
    found = [*(await admin.paused() if is_local else ()), *await admin.paused(call.tenant)]
    pauses = {str(pause.scope): pause if is_local else _own(pause) for pause in found}
    items = [pause_representation(pause, counts[name]) for name, pause in sorted(pauses.items())]
    return Answer(ListOf(items=items))


async def pause(call: Call) -> Answer:
    """Pause the tenant, one of its flows or a credential: requests are accepted and wait until it
    is resumed. Running attempts finish. Safe to repeat.
    """
    asked: PauseAsked = call.body
    if call.web.grant is None:
        await _refuse_unknown(call, asked)
    made = await call.engine.admin.pause(
        flow=asked.flow,
        tenant=call.tenant,
        credential=asked.credential,
        reason=asked.reason or "",
        actor=call.actor,
    )
    return Answer(pause_representation(made, 0))


async def resume(call: Call) -> Answer:
    """End a pause. It may also be one that the engine made because a provider refused the
    credential.
    """
    asked: Chosen = call.query
    held = await call.engine.admin.resume(
        flow=asked.flow, tenant=call.tenant, credential=asked.credential, actor=call.actor
    )
    return Answer(Resumed(held))


async def _refuse_unknown(call: Call, asked: PauseAsked) -> None:
    """Every worker remembers every pause, so only existing flows and credentials can be paused."""
    errors = {}
    if asked.flow is not None and asked.flow not in call.engine.flows:
        errors["flow"] = str(unknown_flow(asked.flow, call.engine.flows))
    declared = {credential for flow in call.engine.flows.values() for credential in flow.declared}
    if asked.credential is not None and asked.credential not in declared:
        kind, _, code = asked.credential.partition("/")
        if not await call.engine.admin.config_version(kind, code, tenant=call.tenant):
            errors["credential"] = str(NotFound("config", asked.credential))
    if errors:
        raise invalid(errors)


def _own(pause: Pause) -> Pause:
    """Hides the reason and the author of a pause that affects every tenant."""
    return pause if pause.scope.tenant is not None else Pause(pause.scope, "", pause.since_ms, "")


class Erase(Asked, frozen=True):
    """`subject`: the exact text of a personal field, or of a payload's `subject`."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


async def erase(call: Call) -> Answer:
    """Destroy the keys that encrypt a person's data in payloads.

    This cannot be undone. Safe to repeat.
    """
    return Answer(
        ErasedRepresentation(
            await call.engine.erase(call.body.subject, tenant=call.tenant, actor=call.actor)
        )
    )


ROUTES = [
    Route("GET", "/v1/whoami", whoami, "any", "Get the key of the call", "access", answer=Myself),
    Route(
        "GET",
        "/v1/flows",
        list_flows,
        "read",
        "List flows",
        "requests",
        answer=ListOf[FlowRepresentation],
    ),
    Route(
        "GET",
        "/v1/counts",
        count_requests,
        "read",
        "Count requests by flow and status",
        "requests",
        answer=ListOf[Count],
    ),
    Route(
        "GET",
        "/v1/quarantined",
        list_quarantined,
        "operate",
        "List quarantined events and jobs",
        "operations",
        query=QuarantinedQuery,
        answer=ListOf[QuarantinedRepresentation],
    ),
    Route(
        "GET",
        "/v1/pauses",
        list_pauses,
        "operate",
        "List pauses",
        "operations",
        answer=ListOf[PauseRepresentation],
    ),
    Route(
        "POST",
        "/v1/pauses",
        pause,
        "operate",
        "Pause the tenant, a flow or a credential",
        "operations",
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
        "Resume what is paused",
        "operations",
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
