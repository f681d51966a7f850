"""The jobs of an application over HTTP, as an ASGI application that any framework can mount.

`GET /<id>` answers the job as it is; `?wait=20` waits for its end; with `Accept: text/event-stream`
it follows the job. `DELETE /<id>` cancels it.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

import msgspec

from gesta.errors import GestaError
from gesta.jobs.answers import Answer, JobProblem, problem_of
from gesta.jobs.endpoints import WAIT_SECONDS_MAX, EndpointsCore
from gesta.runtime.clock import spawn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_WAIT = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)s?")
_EVENTS = "text/event-stream"


class StatusApp:
    def __init__(self, endpoints: EndpointsCore) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive, send)
        except (JobProblem, GestaError) as error:
            answer = problem_of(error).answer()
        if answer is not None:
            await send_answer(answer, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        # Of a header that comes twice the first counts, as where jobs are submitted.
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(list(scope["headers"]))
        }
        if scope["method"] not in ("GET", "HEAD", "DELETE"):
            raise JobProblem(405, "method_not_allowed", "Use GET to read and DELETE to cancel")
        job_id = scope["path"].rstrip("/").rpartition("/")[2]
        request = await self._endpoints.find(job_id, self._endpoints.tenant_of(headers))
        if scope["method"] == "DELETE":
            await request.cancel()
            return Answer(202, msgspec.json.encode(await self._endpoints.read(request)))
        if _EVENTS in headers.get("accept", ""):
            await self._stream(request, receive, send)
            return None
        await self._endpoints.wait(request, wait_of(scope.get("query_string", b"")))
        return Answer(200, msgspec.json.encode(await self._endpoints.read(request)))

    async def _stream(self, request: Any, receive: Receive, send: Send) -> None:
        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        gone = spawn(until_gone(), "gesta-jobs-stream")
        headers = [(b"content-type", _EVENTS.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for job in self._endpoints.follow(request, gone.done):
                text = b": alive\n\n"
                if job is not None:
                    text = b"event: job\ndata: %b\n\n" % msgspec.json.encode(job)
                await send({"type": "http.response.body", "body": text, "more_body": True})
        except (JobProblem, GestaError) as error:
            # The answer has begun: the problem becomes its last event.
            text = b"event: problem\ndata: %b\n\n" % problem_of(error).answer().body
            await send({"type": "http.response.body", "body": text, "more_body": True})
        finally:
            gone.cancel()
            with suppress(CancelledError, Exception):
                await gone
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def wait_of(query: bytes) -> float:
    """Seconds of `wait=20` or `wait=20s`. Raises JobProblem."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("wait", ["0"])[-1]
    found = _WAIT.fullmatch(given)
    if found is None or float(found[1]) > WAIT_SECONDS_MAX:
        text = f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX:g}"
        raise JobProblem(400, "bad_wait", text)
    return float(found[1])


async def send_answer(answer: Answer, send: Send) -> None:
    headers = {"content-type": answer.media_type, "content-length": str(len(answer.body))}
    raw = [
        (name.lower().encode(), value.encode())
        for name, value in {**headers, **answer.headers}.items()
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body})
