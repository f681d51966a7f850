"""A program's first request meets a closed port, a wrong URL or a refused key: what it awaits names
the cause, over real sockets.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from gesta import Attempt, Done, Engine, Outcome, Payload, Request, flow
from gesta.engine.environment import Environment, Wiring
from gesta.errors import BadConfig, OutcomeTimeout
from gesta.flows import email, slack, sms, webhook
from gesta.outbound.address_guard import PrivateAddressGuard
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from gesta.outbound.lookups import AresResolver
from gesta.outbound.smtp.smtp_transport import SmtpTransport
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.sandbox.server import SandboxServer
from gesta.security.envelope_encryption import MasterKey
from gesta.stores.memory.database import MemoryDatabase
from tests.outbound.name_server import name_server
from tests.outbound.raw_server import Connection, raw_server

GUARD = PrivateAddressGuard(["127.0.0.0/8"])
SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"


class Order(Payload, frozen=True):
    url: str


@flow("shop.order", on_unknown="resend", effects="attempt")
async def order(payload: Order, attempt: Attempt) -> Outcome:
    await attempt.http.post(payload.url, json={})
    return Done()


FLOWS = [slack.flow(), sms.flow(), webhook.flow(), email.flow(), order]


@asynccontextmanager
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine on memory stores with real HTTP and SMTP, and its own name server."""
    async with name_server() as names:

        async def wire(settings: Settings) -> Environment:
            runtime, resolver = SystemRuntime(), AresResolver([names.address])
            return Environment(
                runtime,
                MemoryDatabase(runtime).stores(),
                AioHttpTransport(GUARD, resolver),
                MasterKey(base64.b64encode(bytes(32)).decode(), "the test"),
                drain_seconds=0,
                mail=SmtpTransport(GUARD, runtime, resolver=AresResolver([names.address])),
            )

        monkeypatch.setattr(Wiring, "wire", staticmethod(wire))
        async with Engine("memory:", flows=FLOWS) as engine:
            yield engine


async def submit_all(engine: Engine, url: str, smtp_url: str = "") -> dict[str, Request]:
    """One request of each channel to this server; flow → request."""
    mail = urlsplit(smtp_url or url)
    configs: dict[str, dict[str, Any]] = {
        "slack.workspace": {"token": "xoxb-1", "api_url": f"{url}/slack/api/"},
        "sms.account": {
            "account_sid": "AC1",
            "auth_token": "old",
            "sender": "+15550100",
            "api_url": f"{url}/twilio",
        },
        "webhook.endpoint": {"url": f"{url}/webhook", "secret": SECRET},
        "email.sender": {
            "kind": "smtp",
            "from_address": "shop@example.com",
            "host": mail.hostname,
            "port": mail.port or 25,
            "tls": "none",
            "user": "shop",
            "password": "old",
        },
    }
    for kind, fields in configs.items():
        await engine.admin.put_config(kind, "default", fields)
    payloads = [
        slack.Message(channel="C012AB3CD", text="hello"),
        sms.Message(to="+4915155501234", body="hello"),
        webhook.Message("order.paid", {}),
        email.Message("ana@example.com", "hello", text="hello"),
        Order(f"{url}/http/order"),
    ]
    made = [await engine.submit(payload) for payload in payloads]
    return {one.flow: one for one in made}


async def causes(requests: dict[str, Request]) -> dict[str, str]:
    """Flow → the text of the OutcomeTimeout, or the outcome."""

    async def cause(request: Request) -> str:
        while not await _has_a_cause(request):
            await asyncio.sleep(0.01)
        try:
            return repr(await request.outcome(timeout=0.05))
        except OutcomeTimeout as late:
            return str(late)

    found = await asyncio.gather(*map(cause, requests.values()))
    return dict(zip(requests, found, strict=True))


async def _has_a_cause(request: Request) -> bool:
    state = (await request.view()).state
    return bool(state.reason or state.held)


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def test_a_closed_port_is_named_for_every_channel(monkeypatch):
    async with opened(monkeypatch) as engine:
        found = await causes(await submit_all(engine, f"http://127.0.0.1:{closed_port()}"))
    assert len(found) == 5
    for channel, text in found.items():
        assert (
            "its last attempt ended with refused (nothing was sent: no server accepts connections"
            " at this host and port)" in text
        ), channel


async def test_a_host_name_that_does_not_exist_is_named_for_every_channel(monkeypatch):
    async with opened(monkeypatch) as engine:
        found = await causes(await submit_all(engine, "https://no-such-host.example"))
    assert len(found) == 5
    for channel, text in found.items():
        assert (
            "its last attempt ended with dns (nothing was sent: the host name has no address; check"
            " the URL and the name server)" in text
        ), channel


async def test_a_path_that_does_not_exist_is_named_for_every_http_channel(monkeypatch):
    async def answer(connection: Connection) -> None:
        connection.say(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    async with raw_server(answer) as server, opened(monkeypatch) as engine:
        requests = await submit_all(engine, server.url.rstrip("/"))
        del requests["notification.email"]
        found = await causes(requests)
    for channel, text in found.items():
        assert "http_404" in text, channel
        assert "answered 404" in text, channel


async def test_a_refused_key_is_named_for_every_channel_with_what_to_store(monkeypatch):
    async with SandboxServer() as server, opened(monkeypatch) as engine:
        sandbox = server.sandbox
        sandbox.slack.next(error="invalid_auth")
        sandbox.twilio.on("old", error="20003")
        sandbox.webhook.next(status=401)
        sandbox.smtp.on("old", status=535)
        sandbox.http.next(status=401)
        found = await causes(await submit_all(engine, server.url, server.smtp_url))
    # A flow of the user's own has no credential that gesta knows: the attempt's end says it.
    assert found.pop("shop.order") == "Rejected(reason='http_401', detail='answered 401')"
    expected = {
        "notification.slack": ("slack.workspace", "invalid_auth"),
        "notification.sms": ("sms.account", "not_authenticated"),
        "notification.webhook": ("webhook.endpoint", "http_401"),
        "notification.email": ("email.sender", "login_refused"),
    }
    for channel, (kind, reason) in expected.items():
        text = found.pop(channel)
        pattern = (
            rf"it is held: the provider refuses {kind}/default \({reason}: [^)]+\);"
            rf" store a new one: gesta config put {kind} default"
        )
        assert re.search(pattern, text), text
    assert found == {}


async def test_an_invalid_url_is_refused_with_an_example(monkeypatch):
    async with opened(monkeypatch) as engine:
        with pytest.raises(BadConfig, match=r"url: does not have .*; for instance https://"):
            await engine.admin.put_config(
                "webhook.endpoint", "default", {"url": "localhost:80", "secret": SECRET}
            )
        request = await engine.submit(Order("localhost:80/order"))
        outcome = await request.outcome(timeout=5)
    assert repr(outcome) == (
        "Rejected(reason='unsendable', detail='nothing was sent: the URL or a header is not valid;"
        " a URL begins with https:// and names a host')"
    )


async def test_a_server_that_never_answers_is_named_while_the_attempt_runs(monkeypatch):
    async def hang(connection: Connection) -> None:
        await asyncio.sleep(60)

    async with raw_server(hang) as server, opened(monkeypatch) as engine:
        request = await engine.submit(Order(server.url))
        while not server.requests:
            await asyncio.sleep(0.01)
        with pytest.raises(OutcomeTimeout, match="its first attempt is running and has not ended"):
            await request.outcome(timeout=0.05)


async def test_a_request_for_later_and_one_without_a_worker_say_so(monkeypatch):
    async with opened(monkeypatch) as engine:
        later = await engine.submit(
            Order("https://example.com"), deliver_at=datetime(2099, 1, 1, tzinfo=UTC)
        )
        with pytest.raises(OutcomeTimeout, match=r"it is not due before 2099-01-01T00:00:00Z\."):
            await later.outcome(timeout=0.05)
    async with Engine("memory:", flows=FLOWS, work=False) as engine:
        request = await engine.submit(Order("https://example.com"))
        with pytest.raises(OutcomeTimeout, match="no process on this store runs a worker"):
            await request.outcome(timeout=0.05)
