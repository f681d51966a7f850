"""Reports of the doubles, posted on demand to whoever asked for them: what Twilio and SES do by
themselves.
"""

from __future__ import annotations

from typing import Any, Literal

import aiohttp
import msgspec
from aiohttp import web

from gesta.outbound.http import HttpRequest
from gesta.runtime.clock import Runtime
from gesta.sandbox import Sandbox

#: For whom the report is: a process on this machine.
POST_SECONDS = 20.0


class OfTwilio(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    status: str = "delivered"
    error_code: str = ""
    sid: str | None = None
    token: str | None = None


class OfSes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    kind: Literal["delivery", "bounce", "complaint"]
    topic: str
    url: str
    permanent: bool = True
    number: int = 1


def report_of(sandbox: Sandbox, face: str, asked: bytes, now_ms: int) -> HttpRequest:
    """What a face posts; raises msgspec.ValidationError or LookupError."""
    if face == "twilio":
        text = msgspec.json.decode(asked, type=OfTwilio)
        return sandbox.twilio.report(
            text.status, sid=text.sid, error_code=text.error_code, token=text.token
        )
    if face != "ses":
        raise LookupError(f"{face} reports nothing")
    letter = msgspec.json.decode(asked, type=OfSes)
    sandbox.ses.now_ms = now_ms
    body = sandbox.ses.report(
        letter.kind, letter.topic, permanent=letter.permanent, number=letter.number
    )
    return HttpRequest("POST", letter.url, {"Content-Type": "text/plain; charset=UTF-8"}, body)


async def post_report(sandbox: Sandbox, face: str, asked: dict[str, Any], runtime: Runtime) -> int:
    """Post it; the status that was answered."""
    report = report_of(sandbox, face, msgspec.json.encode(asked), runtime.now_ms())
    timeout = aiohttp.ClientTimeout(total=POST_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(report.url, data=report.body, headers=dict(report.headers)) as answer,
    ):
        return answer.status


def add_reports(app: web.Application, sandbox: Sandbox, runtime: Runtime) -> None:
    """The routes by which another process lets a face report."""

    async def post(request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read() or b"{}", type=dict[str, Any])
            status = await post_report(sandbox, request.match_info["face"], asked, runtime)
        except (msgspec.MsgspecError, LookupError, StopIteration, aiohttp.ClientError) as fault:
            return web.Response(status=400, text=f"{type(fault).__name__}: {fault}\n")
        return web.json_response({"answered": status})

    app.router.add_post("/sandbox/{face}/reports", post)
