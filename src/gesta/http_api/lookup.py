"""/v1/requests/{id}: for whoever knows the id and not the flow."""

from __future__ import annotations

from gesta.api_types.requests import Whole
from gesta.http_api.requests import whole
from gesta.http_api.route import Answer, Call, Route


async def look_up(call: Call) -> Answer:
    """A request as it is now, of whatever flow the tenant has used."""
    return Answer(
        await whole(call, await call.engine.admin.look_up(call.params["id"], call.tenant))
    )


ROUTES = [
    Route(
        "GET",
        "/v1/requests/{id}",
        look_up,
        "read",
        "A request by its id alone",
        "requests",
        answer=Whole,
        problems=(404,),
    )
]
