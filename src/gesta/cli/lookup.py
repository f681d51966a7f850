"""Requests by their id, whether or not this process has their flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gesta.domain.ids import REQUEST_ID
from gesta.errors import BadInput, NotFound

if TYPE_CHECKING:
    from gesta.cli.backend import Backend
    from gesta.engine.engine import Engine
    from gesta.engine.request import Request
    from gesta.ports.read_model import View

#: Of what a key led to, so many are named.
MANY = 10
Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The request's id, or the key that it was submitted with."),
]


async def id_of(backend: Backend, named: str) -> str:
    """The id of a request that is named by it or by its key; raises NotFound."""
    try:
        return (await backend.whole(named))[0].id
    except NotFound as error:
        ids = [shown.id for shown, _ in await backend.find(None, None, named, MANY)]
        return _only(ids, named, backend.tenant, error)


async def find_view(engine: Engine, named: str, tenant: str) -> View:
    """A request of any flow that the tenant has ever used, named by its id or its key; raises
    NotFound.
    """
    try:
        return await engine.admin.look_up(named, tenant)
    except NotFound as error:
        found = {
            view.state.id: view for view in await engine.find(key=named, tenant=tenant, limit=MANY)
        }
        return found[_only(list(found), named, tenant, error)]


def _only(ids: list[str], named: str, tenant: str, error: NotFound) -> str:
    if not ids and not REQUEST_ID.fullmatch(named):
        raise NotFound(
            "request", named, f" ({tenant}), by its id or its key; another tenant's: --tenant NAME"
        )
    if not ids:
        raise error
    if len(ids) > 1:
        raise BadInput(
            f"the key {named!r} led to several requests: {', '.join(ids)}; give the id of one"
        )
    return ids[0]


async def find_request(engine: Engine, request_id: str, tenant: str) -> Request:
    """A request to decide about: that needs its flow's rules."""
    flow = (await engine.admin.look_up(request_id, tenant)).state.flow
    if flow not in engine.flows:
        from gesta.cli.flows import how_to_get

        remedy = how_to_get(flow, engine.settings)
        raise BadInput(
            f"request {request_id} is of flow {flow!r}, which is not declared here; {remedy}"
        )
    return await engine.request(request_id, flow=flow, tenant=tenant)
