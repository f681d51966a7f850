"""A server in a process of its own, for a search over the whole API: `python -m tests.web.searched STORE_URL` prints its address and a key.

Everything is as it always is, but a stream ends after its first part: a search waits for the end of each answer.
"""

from __future__ import annotations

import sys
from typing import Any

from gesta import runtime
from gesta.web.server import address_of, bind, serving
from tests.web.served import MASTER, served


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
                is_stream = any(name == b"content-type" and value == b"text/event-stream" for name, value in message["headers"])
            elif is_stream:
                is_over = True
                message = {**message, "more_body": False}
            await send(message)

        await self._app(scope, heard, sent)


async def main(url: str) -> None:
    async with served(url, api_rate=1_000_000) as api:
        put = api.engine.operating.put_config
        await put("webhook.endpoint", "shop", {"url": "https://shop.example/hooks", "secret": f"whsec_{MASTER}"})
        await put("slack.workspace", "default", {"token": "xoxb-1-a"})
        await put("template", "hello", {"text": "Hello {{ name }}"})
        listener = bind("127.0.0.1", 0)
        async with serving(Ending(api.engine.web()), listener):
            print(address_of(listener), await api.key(), flush=True)
            await runtime.Signal(runtime.SystemRuntime()).wait(3_600)


if __name__ == "__main__":
    runtime.run(main(sys.argv[1]))
