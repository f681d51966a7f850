"""/v1/pauses: begin nothing more of the tenant, one of its flows or one of its credentials; and go
on again.

A pause for everybody, of a flow or of everything, is not one tenant's to make or to end: `gesta
pause`. It is shown, without who and why.
"""

from __future__ import annotations

from gesta.admin.representations import pause_representation
from gesta.api_types.admin import PauseRepresentation, Pauses, Resumed
from gesta.api_types.structs import Asked
from gesta.errors import NotFound
from gesta.flows.channels import unknown_flow
from gesta.http_api.problem import invalid
from gesta.http_api.route import Answer, Call, Route
from gesta.tenants.pauses import Pause


class Chosen(Asked, frozen=True):
    """Neither: everything of the tenant. `credential` is `kind/code` of its config."""

    flow: str | None = None
    credential: str | None = None


class PauseAsked(Chosen, frozen=True):
    #: For those who find it paused.
    reason: str = ""


async def list_pauses(call: Call) -> Answer:
    """What keeps the tenant's requests from going on, and how many of its jobs are held."""
    admin = call.engine.admin
    held = {one.scope: one.count for one in await admin.held() if one.tenant == call.tenant}
    pauses = [_own(pause) for pause in await admin.paused(call.tenant)]
    return Answer(
        Pauses([pause_representation(pause, held.get(str(pause.scope), 0)) for pause in pauses])
    )


async def pause(call: Call) -> Answer:
    """Begin nothing more. Requests are accepted and wait; attempts that run go on. Safe to
    repeat.
    """
    asked: PauseAsked = call.body
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


ROUTES = [
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
]
