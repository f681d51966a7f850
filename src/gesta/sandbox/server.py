"""The sandbox behind a port of this machine: doubles for other processes, which outlive a worker
that is killed.

POST   /webhook/…  /http/…          the faces themselves; the mail server's (smtp) has a port of its
own
POST   /sandbox/{face}/faults       arm a fault (see receiver.Fault)
DELETE /sandbox/{face}/faults       forget the faults to come
POST   /sandbox/twilio/reports      report on the latest text to where it asked for that: {"status":
"delivered"}; answers what was answered
POST   /sandbox/ses/reports         {"kind": "bounce", "topic": "arn:…", "url":
"http://…/v1/reports/ses/default"}
GET    /sandbox/{face}/effects      {"calls": 3, "effects": [{"id": …, "type": …, "data": …,
"receipts": 2}]}
"""

from __future__ import annotations

import socket
from typing import Any, Self

import msgspec
from aiohttp import web

from gesta.outbound.http import HttpRequest
from gesta.runtime.clock import Runtime, SystemRuntime, sleep
from gesta.sandbox import Sandbox
from gesta.sandbox.receiver import Fault, Receiver
from gesta.sandbox.reporting import add_reports, post_report
from gesta.sandbox.smtp_server import SmtpFace

#: What whoever knocks is told.
HELP = """doubles of providers on a port of this machine; point a channel's api_url, host or url at one

POST   /sandbox/FACE/faults    {"status": 429, "retry_after": 30}  the next call goes wrong; also "error" (the provider's word for it),
                               "drop": true (the effect happens, the answer is lost), "slow_seconds": 9, "times": 3;
                               {"match": "xoxb-old", "error": "token_revoked"}  every call of that token, channel, number or key does
DELETE /sandbox/FACE/faults    forget them
GET    /sandbox/FACE/effects   what was done, once for each effect
POST   /sandbox/twilio/reports {"status": "delivered"}  report on the latest text to the URL that it asked for
POST   /sandbox/ses/reports    {"kind": "bounce", "topic": "arn:…", "url": "http://127.0.0.1:8420/v1/reports/ses/default"}
"""
#: The doubles are for this machine only.
HOST = "127.0.0.1"
REQUEST_BYTES_MAX = 1_048_576
#: What is still being answered late when the sandbox ends is not waited for. Zero would mean: for
#: as long as it takes.
SHUTDOWN_SECONDS = 0.1


def loopback_socket(port: int = 0) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    return socket.create_server((HOST, port), backlog=1_024)


def address(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}"


def sandbox_app(sandbox: Sandbox, runtime: Runtime) -> web.Application:
    """The doubles and their control as an aiohttp application."""
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
        #: Where the mail server's double listens, `smtp://host:port`.
        self.smtp_url = ""
        self._runtime = runtime or SystemRuntime()
        self._smtp: SmtpFace | None = None

    async def report(self, face: str, asked: dict[str, Any]) -> int:
        """Let a face report on its latest message; the status that was answered."""
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
