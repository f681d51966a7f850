"""/v1/templates and /v1/endpoints: previews and test messages.

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

#: The correlation id of a test request begins with this.
TEMPLATE_MARK = "test:template/"
#: Previews at the same time in one process, and of one tenant: real messages use the same renderer.
PREVIEWS_MAX, TENANTS_MAX = 8, 2
#: The fields of a payload that uses templates, by their Python names.
_FIELDS = ("template", "data", "locale")
Locale = Annotated[str, msgspec.Meta(min_length=1, max_length=35)]
_TEMPLATES = "/v1/templates/{code}"
#: The type of the test message; the correlation id begins with the mark.
TYPE = "gesta.test"
ENDPOINT_MARK = "test:webhook.endpoint/"


class Preview(Asked, frozen=True):
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    #: The closest available locale is used.
    locale: Locale | None = None


class TestSend(Asked, frozen=True):
    """`destination`: the other fields of the flow's payload, such as the recipient."""

    flow: str
    destination: dict[str, Any] = msgspec.field(default_factory=dict)
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    locale: Locale | None = None


async def preview_template(call: Call) -> Answer:
    """Render a template with these variables. Nothing is sent or stored."""
    asked: Preview = call.body
    previews = call.web.previews
    if previews[call.tenant] >= TENANTS_MAX or previews.total() >= PREVIEWS_MAX:
        raise Problem(
            503,
            "too_many_previews",
            "too many previews are being rendered; try again",
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
    """Send a template as a normal request. The answer is the same as for a submit."""
    asked: TestSend = call.body
    code = call.params["code"]
    try:
        flow = call.engine.flow(asked.flow)
    except UnknownFlow as error:
        raise invalid({"flow": str(error)}) from None
    names = _names(flow)
    if names is None:
        raise invalid({"flow": f"{flow.name} uses no templates"})
    await call.engine.admin.template(code, asked.locale, tenant=call.tenant)
    reserved = {
        name: "set by `variables`, `locale` and the path"
        for name in names.values()
        if name in asked.destination
    }
    if reserved:
        raise invalid({f"destination.{name}": error for name, error in reserved.items()})
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
    """The JSON names of these fields in the flow's payload; None: the flow uses no templates."""
    stored = {
        field.name: field.encode_name
        for field in msgspec.structs.fields(flow.payload)
        if field.name in _FIELDS
    }
    return stored if TEMPLATE in flow.config and len(stored) == len(_FIELDS) else None


def _of_this_body(errors: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Errors of a payload under the names of this body."""
    renamed = {}
    for name, error in errors.items():
        path = name.removeprefix("payload.")
        if path == names["data"] or path.startswith(f"{names['data']}."):
            path = f"variables{path.removeprefix(names['data'])}"
        elif name.startswith("payload."):
            path = f"destination.{path}"
        renamed[path] = error
    return renamed


async def try_endpoint(call: Call) -> Answer:
    """Send a signed test message to an endpoint. The answer is the same as for a submit."""
    code = call.params["code"]
    flow, kind = call.engine.flows.get(webhook.NAME), webhook.ENDPOINT
    is_stored = bool(await call.engine.admin.config_version(kind, code, tenant=call.tenant))
    if flow is None or not (is_stored or f"{kind}/{code}" in flow.declared):
        raise Problem(
            404,
            "not_found",
            f"no endpoint {code!r} for this tenant; store it: PUT /v1/config/{kind}/{{code}}",
        )
    payload = {
        "type": TYPE,
        "data": {"endpoint": code, "note": "a test message from gesta"},
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
        "Preview a template",
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
        "Send a template as a test",
        "templates",
        query=Wait,
        body=TestSend,
        answer=Submitted,
        status=202,
        problems=(200, 404, 409),
        example={
            "flow": "notification.slack",
            "destination": {"channel": "C012AB3CD"},
            "variables": {"name": "Ada"},
        },
        headers={"Idempotency-Key": "Makes the call safe to repeat"},
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
        headers={"Idempotency-Key": "Makes the call safe to repeat"},
    ),
]
