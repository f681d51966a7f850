"""/v1/templates and /v1/endpoints: looked at and tried out before anybody gets a message.

Templates are config of kind template, webhook endpoints of kind webhook.endpoint.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from gesta.api_types.config import Previewed
from gesta.api_types.requests import Submit, Submitted
from gesta.api_types.structs import Asked
from gesta.errors import UnknownFlow
from gesta.flows import webhook
from gesta.flows.flow import Flow
from gesta.http_api import requests
from gesta.http_api.problem import Problem, invalid
from gesta.http_api.requests import Wait
from gesta.http_api.route import Answer, Call, Route
from gesta.tenants.templates.templates import TEMPLATE

#: What the request of a test is marked by: its correlation id.
TEMPLATE_MARK = "test:template/"
#: Previews of one process at a time, and of one tenant: what is really sent waits for the same
#: renderer, and so do the others.
PREVIEWS_MAX, TENANTS_MAX = 8, 2
#: What a flow that takes templates calls its fields, in Python: code, what to fill in, and the
#: locale.
_FIELDS = ("template", "data", "locale")
Locale = Annotated[str, msgspec.Meta(min_length=1, max_length=35)]
_TEMPLATES = "/v1/templates/{code}"
#: The type of the message, and what its request is marked by: its correlation id.
TYPE = "gesta.test"
ENDPOINT_MARK = "test:webhook.endpoint/"


class Preview(Asked, frozen=True):
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    #: The nearest one that is there is taken.
    locale: Locale | None = None


class Trial(Asked, frozen=True):
    """`destination`: those fields of the flow's payload that say where to, and whatever else it
    needs beside the template.
    """

    flow: str
    destination: dict[str, Any] = msgspec.field(default_factory=dict)
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    locale: Locale | None = None


async def preview_template(call: Call) -> Answer:
    """What a template makes of some variables. Nothing is sent and nothing is stored."""
    asked: Preview = call.body
    previews = call.web.previews
    if previews[call.tenant] >= TENANTS_MAX or previews.total() >= PREVIEWS_MAX:
        raise Problem(
            503,
            "too_many_previews",
            "other previews are being made; ask again",
            headers={"Retry-After": "1"},
        )
    previews[call.tenant] += 1
    try:
        entity, parts = await call.while_there(
            call.engine.admin.preview(
                call.params["code"], asked.variables, asked.locale, tenant=call.tenant
            )
        )
    finally:
        previews[call.tenant] -= 1
        if not previews[call.tenant]:
            del previews[call.tenant]
    return Answer(Previewed(entity.code, entity.version, parts))


async def try_template(call: Call) -> Answer:
    """Send a template to somebody, as a request like any other. 202: where to look what became of
    it.
    """
    asked: Trial = call.body
    code = call.params["code"]
    try:
        flow = call.engine.flow(asked.flow)
    except UnknownFlow as error:
        raise invalid({"flow": str(error)}) from None
    names = _names(flow)
    if names is None:
        raise invalid({"flow": f"{flow.name} takes no templates"})
    await call.engine.admin.template(code, asked.locale, tenant=call.tenant)
    leased = {
        name: "this is what `variables`, `locale` and the path say"
        for name in names.values()
        if name in asked.destination
    }
    if leased:
        raise invalid({f"destination.{name}": fault for name, fault in leased.items()})
    payload = asked.destination | {names["template"]: code, names["data"]: asked.variables}
    if asked.locale is not None:
        payload[names["locale"]] = asked.locale
    try:
        return await requests.submit(
            replace(call, body=Submit(flow.name, payload, correlation_id=TEMPLATE_MARK + code))
        )
    except Problem as problem:
        if problem.status != 422:
            raise
        raise invalid(_of_this_body(problem.representation.errors, names)) from None


def _names(flow: Flow) -> Mapping[str, str] | None:
    """What the flow's payload calls these in JSON; None: it takes no templates."""
    stored = {
        field.name: field.encode_name
        for field in msgspec.structs.fields(flow.payload)
        if field.name in _FIELDS
    }
    return stored if TEMPLATE in flow.config and len(stored) == len(_FIELDS) else None


def _of_this_body(faults: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The faults of a payload under the names of what the caller sent."""
    told = {}
    for name, fault in faults.items():
        path = name.removeprefix("payload.")
        if path == names["data"] or path.startswith(f"{names['data']}."):
            path = f"variables{path.removeprefix(names['data'])}"
        elif name.startswith("payload."):
            path = f"destination.{path}"
        told[path] = fault
    return told


async def try_endpoint(call: Call) -> Answer:
    """Send a signed test message to an endpoint, on the road like any other. 202: where to look
    what became of it.
    """
    code = call.params["code"]
    flow, kind = call.engine.flows.get(webhook.NAME), webhook.ENDPOINT
    is_stored = bool(await call.engine.admin.config_version(kind, code, tenant=call.tenant))
    if flow is None or not (is_stored or f"{kind}/{code}" in flow.declared):
        raise Problem(
            404,
            "not_found",
            f"no endpoint {code!r} for this tenant; put it: PUT /v1/config/{kind}/{{code}}",
        )
    payload = {
        "type": TYPE,
        "data": {"endpoint": code, "note": "a test message of gesta"},
        "endpoint": code,
    }
    return await requests.submit(
        replace(call, body=Submit(webhook.NAME, payload, correlation_id=ENDPOINT_MARK + code))
    )


ROUTES = [
    Route(
        "POST",
        f"{_TEMPLATES}/preview",
        preview_template,
        "read",
        "What a template makes of some variables",
        "templates",
        body=Preview,
        answer=Previewed,
        problems=(404, 409),
        example={"variables": {"name": "Ada"}, "locale": "pt-BR"},
    ),
    Route(
        "POST",
        f"{_TEMPLATES}/test",
        try_template,
        "submit",
        "Send a template to somebody",
        "templates",
        query=Wait,
        body=Trial,
        answer=Submitted,
        status=202,
        problems=(200, 404, 409),
        example={
            "flow": "notification.slack",
            "destination": {"channel": "C012AB3CD"},
            "variables": {"name": "Ada"},
        },
        headers={"Idempotency-Key": "Makes it safe to send this call again"},
    ),
    Route(
        "POST",
        "/v1/endpoints/{code}/test",
        try_endpoint,
        "submit",
        "Send a test message to a webhook endpoint",
        "config",
        query=Wait,
        answer=Submitted,
        status=202,
        problems=(200, 404, 409),
        headers={"Idempotency-Key": "Makes it safe to send this call again"},
    ),
]
