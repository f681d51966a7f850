"""/inbound: events that other systems post.

A signature authenticates them. Every forged one gets the same answer. A success is answered only
when the event is on disk.
"""

from collections.abc import Awaitable

from gesta.errors import InvalidSignature, UnknownFlow
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Handler, Route
from gesta.intake.inbound.slack import BODY_BYTES_MAX
from gesta.intake.inbound.source import Challenge, Malformed

#: The handlers read the body themselves: it is verified before it is parsed.
RAW_JSON = "application/json; charset=utf-8"
#: This tells Slack not to send the event again.
NO_RETRY = {"X-Slack-No-Retry": "1"}
_SLACK_HEADERS = {
    "X-Slack-Signature": "v0= and the HMAC-SHA256 of v0:timestamp:body under the signing secret",
    "X-Slack-Request-Timestamp": "epoch seconds, at most 300 seconds from now",
}


def receive_slack_event(call: Call) -> Awaitable[Answer]:
    """An event of Slack, of a team of the server's own tenant."""
    return _receive(call, "slack", call.engine.settings.tenant, ())


def receive_slack_event_of_tenant(call: Call) -> Awaitable[Answer]:
    """An event of Slack, of a team of the tenant in the path."""
    return _receive(call, "slack", call.params["tenant"], ())


def receive_webhook(call: Call) -> Awaitable[Answer]:
    """A webhook of a sender that the tenant has stored as `inbound.webhook`."""
    return _receive(call, "webhook", call.params["tenant"], (call.params["code"],))


def receive_gateway_webhook(call: Call) -> Awaitable[Answer]:
    """A webhook of the account that the tenant has stored as `payment.gateway`."""
    return _receive(call, "gateway", call.params["tenant"], (call.params["code"],))


async def _receive(call: Call, source: str, tenant: str, parts: tuple[str, ...]) -> Answer:
    try:
        found = await call.pipeline.inbox.take(source, tenant, parts, call.header, call.raw)
    except InvalidSignature as forged:
        raise Problem(403, "forged", str(forged)) from None
    except Malformed as malformed:
        raise Problem(400, "malformed", str(malformed), headers=NO_RETRY) from None
    except UnknownFlow as error:
        # The sender made no error and will send the event again; the log says what to do.
        call.pipeline.telemetry.crashed(f"inbound {source}", error)
        raise Problem(503, "flow_missing", "the event cannot be handled now") from None
    if isinstance(found, Challenge):
        return Answer(dict(found.answer))
    return Answer({"events": [{"id": one.id, "verdict": one.verdict} for one in found]})


def _route(path: str, handler: Handler, summary: str, headers: dict[str, str]) -> Route:
    return Route(
        "POST",
        path,
        handler,
        None,
        summary,
        "inbound",
        problems=(400, 403, 413, 422, 503),
        takes=RAW_JSON,
        body_bytes_max=BODY_BYTES_MAX,
        headers=headers,
    )


ROUTES = [
    _route("/inbound/slack/events", receive_slack_event, "Receive events of Slack", _SLACK_HEADERS),
    _route(
        "/inbound/slack/events/{tenant}",
        receive_slack_event_of_tenant,
        "Receive events of Slack for a tenant",
        _SLACK_HEADERS,
    ),
    _route(
        "/inbound/webhook/{tenant}/{code}",
        receive_webhook,
        "Receive signed webhooks of another system",
        {
            "webhook-id": "the id of the message",
            "webhook-timestamp": "epoch seconds",
            "webhook-signature": "v1, and the HMAC-SHA256 of id.timestamp.body in base64",
        },
    ),
    _route(
        "/inbound/gateway/{tenant}/{code}",
        receive_gateway_webhook,
        "Receive webhooks of a payment gateway",
        {"Stripe-Signature": "of Stripe; another gateway sends the header of its own scheme"},
    ),
]
