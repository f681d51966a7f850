"""Every route of the table that changes something leaves an event that says who did it, or has a
reason here why not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gesta.domain.codec import decode_meta
from gesta.http_api import app
from gesta.http_api.route import Answer, Call, Route, Stream
from tests.http_api.served import Served, served
from tests.http_api.tenant_walk import COMMON, OWNER, Planted, calls_of, flows, plant

#: Who calls in these walks. Another actor plants the data.
WALKER = "walker"

#: Operation → why no event of its own says who called.
EXEMPT = {
    "find_suppressed": "changes nothing: a POST, because an address must not stand in a URL",
    "preview_template": "changes nothing: a POST for its body",
    "take_work": (
        "the lease is in the queue; the event of the attempt that follows says that it was handed"
        " out, and the report says by whom it was done"
    ),
    "extend_lease": "the lease is in the queue; nothing of the request is another",
    "first_key": (
        "asks for no key, so no actor is known; `key_created` by the link is on the trail:"
        " test_first_key.py"
    ),
    "first_key_form": "the same, by the button of a page",
    "receive_slack_event": "the sender's word, signed: tests/intake/inbound",
    "receive_slack_event_of_tenant": "the sender's word, signed: tests/intake/inbound",
    "receive_webhook": "the sender's word, signed: tests/intake/inbound",
    "receive_gateway_webhook": "the gateway's word, signed: tests/flows/payment/test_webhooks.py",
    "post_reservation": "no reservation is planted; it is opened as `capture` is",
    "report_of_twilio": "the provider's word, an event of the request: test_reports.py",
    "report_of_ses": "the provider's word, an event of the request: test_reports.py",
}
#: Operation → what its body has to say so that it changes something: what the walk would say stands
#: already.
FRESH: dict[str, dict[str, Any]] = {
    "submit_batch": {"requests": [{"flow": COMMON, "payload": {"text": "another"}}]},
    "bulk": {"action": "redrive", "flow": COMMON, "dryRun": False},
    "suppress": {"address": "+4915187654321"},
}
CHANGING = [route for route in app.ROUTES if route.method != "GET"]


async def deeds(api: Served) -> int:
    """How many events there are that say that the walker did it."""
    events, position, count = api.engine.pipeline.environment.stores.events, 0, 0
    while batch := await events.follow(position, 500):
        position = batch[-1].position
        actors = [decode_meta(one.meta).actor for one in batch]
        count += sum(actor is not None and actor.user_id == WALKER for actor in actors)
    return count


async def look_for_deed(api: Served, route: Route, planted: Planted) -> None:
    """Call a route until it succeeds; raises unless that left an event with the name of who
    called.
    """
    key = await api.key(tenant=OWNER)
    heard = []
    for sent in calls_of(route, planted):
        headers = {**sent.headers, "Gesta-Actor": WALKER}
        body = None if sent.body is None else sent.body | FRESH.get(route.name, {})
        reply = await api.call(route.method, sent.path, body, key=key, headers=headers)
        heard.append(f"{sent}: {reply.status} {reply.text}")
        if reply.status < 300:
            assert await deeds(api), (
                f"{sent} left no event that says who did it: give it one, or a reason in EXEMPT"
            )
            return
    raise AssertionError(
        "no call succeeded: teach the walk what the route wants\n" + "\n".join(heard)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "route",
    [one for one in CHANGING if one.name not in EXEMPT],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_every_route_that_changes_something_records_the_actor(route):
    """On one store in memory: whatever the store, the events are the same.

    Handlers are the installation's, so the owner runs it.
    """
    async with served("memory:audit", flows(), tenant=OWNER) as api:
        await look_for_deed(api, route, await plant(api))


def test_only_routes_of_the_table_are_exempt():
    assert set(EXEMPT) <= {route.name for route in CHANGING}


async def test_the_walk_finds_a_route_that_records_no_actor(monkeypatch):
    (pausing,) = [route for route in CHANGING if route.name == "pause"]

    async def silent(call: Call) -> Answer | Stream:
        await call.engine.admin.paused(call.tenant)
        return Answer()

    broken = replace(pausing, handler=silent)
    monkeypatch.setattr(app, "ROUTES", [broken if one is pausing else one for one in app.ROUTES])
    async with served("memory:audit", flows(), tenant=OWNER) as api:
        with pytest.raises(AssertionError, match="left no event"):
            await look_for_deed(api, broken, await plant(api))
