"""The sandbox on a port of this machine: fakes for other processes, which survive a killed worker.
HELP lists the routes.
"""

import socket
from typing import Any, Literal, Self

import aiohttp
import msgspec
from aiohttp import web

from gesta.outbound.http import HttpRequest
from gesta.runtime.clock import Runtime, SystemRuntime, sleep
from gesta.sandbox import Sandbox
from gesta.sandbox.receiver import Fault, Receiver
from gesta.sandbox.smtp_server import SmtpFace

#: The address of the process on this machine that the report is for.
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


class OfStripe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    secret: str
    #: Which event: 0 is the oldest, -1 the latest.
    event: int = -1
    #: How long ago it was signed.
    late_seconds: int = 0


class StripeClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: Moves only the fake's clock: keys and authorizations expire.
    advance_seconds: float = 0.0
    #: How long a search does not find what was made.
    visible_after_seconds: int | None = None


def report_of(sandbox: Sandbox, face: str, asked: bytes, now_ms: int) -> HttpRequest:
    """The request by which a provider reports; raises msgspec.ValidationError or LookupError."""
    if face == "twilio":
        text = msgspec.json.decode(asked, type=OfTwilio)
        return sandbox.twilio.report(
            text.status, sid=text.sid, error_code=text.error_code, token=text.token
        )
    if face == "stripe":
        event = msgspec.json.decode(asked, type=OfStripe)
        return sandbox.stripe.webhook(event.url, event.secret, event.event, event.late_seconds)
    if face != "ses":
        raise LookupError(f"{face} reports nothing")
    email = msgspec.json.decode(asked, type=OfSes)
    sandbox.ses.now_ms = now_ms
    body = sandbox.ses.report(
        email.kind, email.topic, permanent=email.permanent, number=email.number
    )
    return HttpRequest("POST", email.url, {"Content-Type": "text/plain; charset=UTF-8"}, body)


async def post_report(sandbox: Sandbox, face: str, asked: dict[str, Any], runtime: Runtime) -> int:
    """Post it; returns the status that was answered."""
    report = report_of(sandbox, face, msgspec.json.encode(asked), runtime.now_ms())
    timeout = aiohttp.ClientTimeout(total=POST_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(report.url, data=report.body, headers=dict(report.headers)) as answer,
    ):
        return answer.status


def add_reports(app: web.Application, sandbox: Sandbox, runtime: Runtime) -> None:
    """Routes by which another process lets a fake report."""

    async def post(request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read() or b"{}", type=dict[str, Any])
            status = await post_report(sandbox, request.match_info["face"], asked, runtime)
        except (msgspec.MsgspecError, LookupError, StopIteration, aiohttp.ClientError) as fault:
            return web.Response(status=400, text=f"{type(fault).__name__}: {fault}\n")
        return web.json_response({"answered": status})

    async def set_clock(request: web.Request) -> web.Response:
        try:
            clock = msgspec.json.decode(await request.read(), type=StripeClock)
        except msgspec.MsgspecError as fault:
            return web.Response(status=400, text=f"{fault}\n")
        sandbox.stripe.advance(clock.advance_seconds)
        if clock.visible_after_seconds is not None:
            sandbox.stripe.visible_after_seconds = clock.visible_after_seconds
        return web.Response(status=204)

    app.router.add_post("/sandbox/{face}/reports", post)
    app.router.add_post("/sandbox/stripe/clock", set_clock)


HELP = """fakes of providers on a port of this machine; point a channel's api_url, host or url there

POST   /sandbox/FACE/faults    {"status": 429, "retry_after": 30}  the next call fails; also
                               "error" (the provider's error code), "slow_seconds": 9, "times": 3,
                               "drop": true (the effect happens, the answer is lost);
                               {"match": "xoxb-old", "error": "token_revoked"}  every call of that
                               token, channel, number or key does
DELETE /sandbox/FACE/faults    forget them
GET    /sandbox/FACE/effects   what was done, once for each effect
POST   /sandbox/twilio/reports {"status": "delivered"}  report on the latest text to the URL that it
                               asked for
POST   /sandbox/ses/reports    {"kind": "bounce", "topic": "arn:…",
                               "url": "http://127.0.0.1:8420/v1/reports/ses/default"}
POST   /sandbox/stripe/reports {"url": "…", "secret": "whsec_…", "event": -1, "late_seconds": 0}
                               post the webhook of one event: in any order, late, more than once
POST   /sandbox/stripe/clock   {"advance_seconds": 90000}  idempotency keys and authorizations
                               expire; {"visible_after_seconds": 60}  searches find nothing newer
"""
#: The fakes are for this machine only.
HOST = "127.0.0.1"
REQUEST_BYTES_MAX = 1_048_576
#: How long late answers are waited for when the sandbox ends. Zero would mean without limit.
SHUTDOWN_SECONDS = 0.1


def loopback_socket(port: int = 0) -> socket.socket:
    """Port 0 takes a free one."""
    return socket.create_server((HOST, port), backlog=1_024)


def address(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}"


def sandbox_app(sandbox: Sandbox, runtime: Runtime) -> web.Application:
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    names = [receiver.name for receiver in sandbox]

    async def explain(_: web.Request) -> web.Response:
        return web.Response(text=f"{HELP}\nfaces: {', '.join(names)}\n")

    app.router.add_get("/", explain)
    for receiver in sandbox:
        _add_face(app, receiver, runtime)
        _add_control(app, receiver)
    add_reports(app, sandbox, runtime)
    return app


def _add_face(app: web.Application, receiver: Receiver, runtime: Runtime) -> None:
    async def receive(request: web.Request) -> web.Response:
        call = HttpRequest(
            request.method, str(request.url), dict(request.headers), await request.read()
        )
        reply = receiver.receive(call, runtime.now_ms())
        if reply.slow_seconds:
            await sleep(runtime, reply.slow_seconds)
        if reply.drop and request.transport is not None:
            request.transport.abort()
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)

    app.router.add_route("*", f"/{receiver.name}", receive)
    app.router.add_route("*", f"/{receiver.name}/{{rest:.*}}", receive)


def _add_control(app: web.Application, receiver: Receiver) -> None:
    async def arm(request: web.Request) -> web.Response:
        try:
            receiver.arm(msgspec.json.decode(await request.read(), type=Fault))
        except msgspec.ValidationError as fault:
            return web.Response(status=400, text=str(fault))
        return web.Response(status=204)

    async def heal(_: web.Request) -> web.Response:
        receiver.heal()
        return web.Response(status=204)

    async def effects(_: web.Request) -> web.Response:
        body = msgspec.json.encode({"calls": receiver.calls, "effects": receiver.effects})
        return web.Response(body=body, content_type="application/json")

    app.router.add_post(f"/sandbox/{receiver.name}/faults", arm)
    app.router.add_delete(f"/sandbox/{receiver.name}/faults", heal)
    app.router.add_get(f"/sandbox/{receiver.name}/effects", effects)


class SandboxServer:
    """The sandbox on a free port, as a task of this process: `async with SandboxServer() as server:
    server.url`.
    """

    def __init__(
        self, sandbox: Sandbox | None = None, runtime: Runtime | None = None, port: int = 0
    ) -> None:
        self.sandbox = sandbox or Sandbox()
        self._runner = web.AppRunner(
            sandbox_app(self.sandbox, runtime or SystemRuntime()),
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            handler_cancellation=True,
        )
        self._port = port
        self.url = ""
        #: Where the mail server's fake listens, `smtp://host:port`.
        self.smtp_url = ""
        self._runtime = runtime or SystemRuntime()
        self._smtp: SmtpFace | None = None

    async def report(self, face: str, asked: dict[str, Any]) -> int:
        """Let a fake report on its latest message; returns the status that was answered."""
        return await post_report(self.sandbox, face, asked, self._runtime)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        listening = loopback_socket(self._port)
        self.url = address(listening)
        self.sandbox.ses.sns.url = f"{self.url}/ses"
        await web.SockSite(self._runner, listening).start()
        self._smtp = SmtpFace(self.sandbox.smtp, self._runtime, loopback_socket())
        self.smtp_url = self._smtp.url
        await self._smtp.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._smtp is not None:
            await self._smtp.close()
        await self._runner.cleanup()
