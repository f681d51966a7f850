"""/v1/endpoints: tried out.

Webhook endpoints themselves are config of kind webhook.endpoint:
/v1/config/webhook.endpoint/{code}.
"""

from __future__ import annotations

from dataclasses import replace

from gesta.api_types.requests import Submit, Submitted
from gesta.flows import webhook
from gesta.http_api import requests
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route
from gesta.http_api.waiting import Wait

#: The type of the message, and what its request is marked by: its correlation id.
TYPE = "gesta.test"
MARK = "test:webhook.endpoint/"


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
        replace(call, body=Submit(webhook.NAME, payload, correlation_id=MARK + code))
    )


ROUTES = [
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
    )
]
