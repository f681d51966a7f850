"""The fakes on a port, as another process sees them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gesta.outbound.http import Http, HttpRequest, PrivateAddressGuard, TransportError
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from gesta.runtime.clock import SystemRuntime
from gesta.sandbox.server import SandboxServer


@pytest.fixture
async def server() -> AsyncIterator[SandboxServer]:
    async with SandboxServer() as server:
        yield server


@pytest.fixture
async def transport() -> AsyncIterator[AioHttpTransport]:
    transport = AioHttpTransport(PrivateAddressGuard(allow=["127.0.0.0/8"]))
    yield transport
    await transport.close()


@pytest.fixture
async def http(transport) -> Http:
    return Http(transport, SystemRuntime())


async def test_a_call_over_the_wire_has_its_effect_once(server, http):
    for _ in range(2):
        answer = await http.post(
            f"{server.url}/http/orders", json={"order": 7}, headers={"Idempotency-Key": "k"}
        )
        assert answer["id"] == "sandbox_1"
    reported = (await http.get(f"{server.url}/sandbox/http/effects")).json()
    assert reported["calls"] == 2
    assert [
        (effect["id"], effect["data"], effect["receipts"]) for effect in reported["effects"]
    ] == [("k", {"order": 7}, 2)]


async def test_another_process_can_arm_and_forget_faults(server, http):
    await http.post(
        f"{server.url}/sandbox/http/faults", json={"status": 503, "retry_after": 9, "times": None}
    )
    refused = await http.exchange("POST", f"{server.url}/http/orders")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "9")
    await http.delete(f"{server.url}/sandbox/http/faults")
    assert (await http.post(f"{server.url}/http/orders")).status == 200


async def test_an_unknown_fault_is_refused_with_its_name(server, http):
    response = await http.exchange(
        "POST", f"{server.url}/sandbox/http/faults", json={"explode": True}
    )
    assert (response.status, b"explode" in response.body) == (400, True)


async def test_accept_then_drop_is_a_reset_with_an_effect(server, transport):
    server.sandbox.webhook.next(drop=True)
    request = HttpRequest(
        "POST", f"{server.url}/webhook", {"webhook-id": "m"}, b'{"type": "a", "data": {}}'
    )
    with pytest.raises(TransportError) as caught:
        await transport.send(request)
    assert (caught.value.reason, caught.value.sent, len(server.sandbox.webhook.effects)) == (
        "reset",
        True,
        1,
    )
    assert (await transport.send(request)).status == 204
    assert [effect.receipts for effect in server.sandbox.webhook.effects] == [2]


async def test_a_slow_answer_runs_into_the_callers_limit_and_has_its_effect(server, transport):
    server.sandbox.http.next(slow_seconds=30)
    with pytest.raises(TransportError, match="timeout"):
        await transport.send(HttpRequest("POST", f"{server.url}/http", timeout_seconds=0.2))
    assert len(server.sandbox.http.effects) == 1


async def test_the_sandbox_runs_as_a_process_and_prints_its_port():
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gesta.sandbox",
        "--secret",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        reported = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        assert reported["webhook"] == f"http://127.0.0.1:{reported['port']}/webhook"
        async with (
            aiohttp.ClientSession() as session,
            session.post(reported["webhook"], json={}) as answer,
        ):
            assert answer.status == 401
    finally:
        process.terminate()
    assert await asyncio.wait_for(process.wait(), 60) == 0
