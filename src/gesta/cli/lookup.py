"""Requests by their id, whether or not this process has their flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gesta.errors import BadInput, NotFound

if TYPE_CHECKING:
    from gesta.engine import Engine
    from gesta.request import Request
    from gesta.views import View

Id = Annotated[str, typer.Argument(metavar="ID", help="The request's id.")]


async def find_view(engine: Engine, request_id: str, tenant: str) -> View:
    """A request of any flow that the tenant has ever used; raises NotFound."""
    try:
        return await engine.get(request_id, tenant=tenant)
    except NotFound:
        used = {flow for flow, _ in await engine.operating.counts(tenant)}
        for flow in sorted(used - engine.flows.keys()):
            try:
                return await engine.get(request_id, flow=flow, tenant=tenant)
            except NotFound:
                continue
        raise


async def find_request(engine: Engine, request_id: str, tenant: str) -> Request:
    """A request to decide about: that needs its flow's rules."""
    flow = (await find_view(engine, request_id, tenant)).state.flow
    if flow not in engine.flows:
        raise BadInput(
            f"request {request_id} is of flow {flow!r}, which is not declared here; name its program with --app MODULE:NAME"
        )
    return await engine.request(request_id, flow=flow, tenant=tenant)
