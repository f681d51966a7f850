"""A server in a process of its own, for a search over the whole API: `python -m
tests.http_api.searched STORE_URL` prints its address and a key.

Everything is as it always is, but a stream ends after its first part: a search waits for the end of
each answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gesta import Payload
from gesta.api_types.structs import ListOf
from gesta.flows import slack, sms, webhook
from gesta.flows.external import external
from gesta.http_api import description
from gesta.http_api.app import ROUTES
from gesta.http_api.openapi import describe
from gesta.http_api.problem import invalid
from gesta.http_api.route import Answer, Call, Route
from gesta.http_api.server import address_of, bind, serving
from gesta.runtime import clock as runtime
from tests.http_api.served import MASTER, note, served


class Pick(Payload, frozen=True):
    order: int


class Ending:
    """The application with streams that end."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_stream = is_over = False

        async def heard() -> Any:
            return {"type": "http.disconnect"} if is_over else await receive()

        async def sent(message: Any) -> None:
            nonlocal is_stream, is_over
            if message["type"] == "http.response.start":
                is_stream = any(
                    name == b"content-type" and value == b"text/event-stream"
                    for name, value in message["headers"]
                )
            elif is_stream:
                is_over = True
                message = {**message, "more_body": False}
            await send(message)

        await self._app(scope, heard, sent)


async def _crashes(call: Call) -> Answer:
    """Answers 500 to what is no plain name."""
    flow = call.query.flow
    assert flow is None or flow.isascii()
    return Answer(ListOf(items=[]))


async def _lies(_: Call) -> Answer:
    """Answers something else than its type."""
    return Answer(b'{"items": [], "next": 7}')


async def _takes_all(_: Call) -> Answer:
    """Never asks what it was given."""
    return Answer(ListOf(items=[]))


async def _refuses(_: Call) -> Answer:
    """Refuses what the description allows."""
    raise invalid({"limit": "never fits"})


#: Errors that a search must find: the route, and what is wrong with it.
PLANTS: dict[str, Callable[[Route], Route]] = {
    "listing": lambda route: replace(route, handler=_crashes),
    "list_unknown": lambda route: replace(route, handler=_lies),
    "audit": lambda route: replace(route, handler=_refuses),
    "list_dead_letters": lambda route: replace(route, handler=_takes_all, scope=None),
}


def plant() -> None:
    """What is described stays as it was; what is done does not."""
    before = describe(ROUTES, {})
    ROUTES[:] = [PLANTS[route.name](route) if route.name in PLANTS else route for route in ROUTES]
    vars(description)["describe"] = lambda *_: before


async def main(url: str) -> None:
    flows = [
        note,
        slack.flow(),
        webhook.flow(),
        sms.flow(),
        external("shop.pick", on_unknown="manual", payload=Pick),
    ]
    async with served(url, flows=flows, api_rate=1_000_000) as api:
        put = api.engine.admin.put_config
        await put(
            "webhook.endpoint",
            "shop",
            {"url": "https://shop.example/hooks", "secret": f"whsec_{MASTER}"},
        )
        await put("slack.workspace", "default", {"token": "xoxb-1-a"})
        await put("template", "hello", {"text": "Hello {{ name }}"})
        listener = bind("127.0.0.1", 0)
        async with serving(Ending(api.engine.web()), listener):
            print(address_of(listener), await api.key(), flush=True)
            await runtime.Signal(runtime.SystemRuntime()).wait(3_600)


if __name__ == "__main__":
    if "--planted" in sys.argv:
        plant()
    runtime.run(main(sys.argv[1]))
