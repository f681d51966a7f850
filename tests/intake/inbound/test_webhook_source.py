"""inbound.webhook: a second source, whose verified data becomes a request of any flow."""

from __future__ import annotations

import json
import time
from typing import Any

from gesta.outbound.signatures import sign
from tests.http_api.served import Reply
from tests.intake.inbound.stage import Stage

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
PATH = "/inbound/webhook/default/shop"


async def post(
    stage: Stage, body: Any, number: int = 1, path: str = PATH, secret: str = SECRET
) -> Reply:
    raw, now = json.dumps(body).encode(), round(time.time())
    headers = {
        "webhook-id": f"msg_{number}",
        "webhook-timestamp": str(now),
        "webhook-signature": sign([secret], f"msg_{number}", now, raw),
    }
    return await stage.api.call("POST", path, raw=raw, headers=headers)


async def test_a_signed_webhook_becomes_a_request_of_the_named_flow_once(
    slack_to_backlog: Stage,
) -> None:
    stage = slack_to_backlog
    await stage.put("inbound.webhook", "shop", secret=SECRET, flow="shop.note", types=["noted"])
    body = {"type": "noted", "data": {"text": "hello"}}
    for verdict in ("accepted", "duplicate"):
        answer = await post(stage, body)
        assert (answer.status, answer.body["events"]) == (
            200,
            [{"id": "webhook-shop-msg_1", "verdict": verdict}],
        )
    await stage.ended("completed", flow="shop.note")
    # Another type is ignored with a verdict.
    other = await post(stage, {"type": "moved", "data": {}}, 2)
    assert other.body["events"][0]["verdict"] == "ignored"
    (view,) = await stage.ended("ignored", flow="inbound.webhook")
    assert view.state.reason == "type_not_configured"


async def test_a_webhook_that_is_forged_unknown_or_invalid_stores_nothing(here: Stage) -> None:
    await here.put("inbound.webhook", "shop", secret=SECRET, flow="shop.note")
    body = {"type": "noted", "data": {"text": "hello"}}
    for path, secret in (
        (PATH, "whsec_" + "WFhYREVGR0hJSktMTU5PUFFSU1RVVldY"),
        ("/inbound/webhook/default/other", SECRET),
        ("/inbound/webhook/acme/shop", SECRET),
        ("/inbound/webhook/%20/shop", SECRET),
    ):
        answer = await post(here, body, path=path, secret=secret)
        assert (answer.status, answer.body["code"]) == (403, "forged")
    assert (await post(here, [])).status == 400
    wrong = await post(here, {"type": "noted", "data": {"txt": "hello"}})
    assert (wrong.status, set(wrong.body["errors"])) == (422, {"text", "txt"})
    assert await here.everything() == 0


async def test_an_event_for_a_flow_that_is_missing_is_5xx(here: Stage) -> None:
    await here.put("inbound.webhook", "shop", secret=SECRET, flow="shop.gone")
    answer = await post(here, {"type": "noted", "data": {}})
    assert (answer.status, answer.body["code"]) == (503, "flow_missing")
