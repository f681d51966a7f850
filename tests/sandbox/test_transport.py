"""The sandbox transport: the fakes without a socket, on the manual clock."""

from __future__ import annotations

import asyncio

import pytest

from gesta.domain.outcome import Unknown
from gesta.outbound.http import AttemptEnded, Http, HttpRequest, TransportError
from gesta.runtime.clock import ManualRuntime, spawn
from gesta.sandbox import SandboxTransport

URL = "https://api.example/receipts"


@pytest.fixture
def runtime() -> ManualRuntime:
    return ManualRuntime()


@pytest.fixture
def transport(runtime) -> SandboxTransport:
    return SandboxTransport(runtime)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_flow_of_a_user_reaches_the_fake_http_api(transport, runtime):
    answer = await Http(transport, runtime).post(
        URL, json={"order": "7"}, headers={"Idempotency-Key": "k"}
    )
    assert answer["id"] == "sandbox_1"
    [effect] = transport.sandbox.http.effects
    assert (effect.id, effect.type, effect.data) == ("k", "POST /receipts", {"order": "7"})


async def test_a_webhook_goes_to_the_fake_receiver(transport):
    await transport.send(
        HttpRequest("POST", URL, {"Webhook-Id": "m"}, b'{"type": "a", "data": {}}')
    )
    assert (transport.sandbox.webhook.calls, transport.sandbox.http.calls) == (1, 0)


async def test_a_lost_answer_is_a_reset_after_sending(transport, runtime):
    transport.sandbox.http.next(drop=True)
    with pytest.raises(AttemptEnded) as caught:
        await Http(transport, runtime).post(URL)
    assert caught.value.outcome == Unknown("reset", "the request may have arrived")


async def test_a_slow_answer_takes_the_runtimes_time(transport, runtime):
    transport.sandbox.http.next(slow_seconds=5)
    call = spawn(transport.send(HttpRequest("POST", URL)), "call")
    await settle()
    runtime.advance(4.9)
    await settle()
    assert not call.done()
    runtime.advance(0.1)
    assert (await call).status == 200


async def test_an_answer_later_than_the_time_limit_is_a_time_out_at_the_limit(transport, runtime):
    transport.sandbox.http.next(slow_seconds=60)
    call = spawn(transport.send(HttpRequest("POST", URL, timeout_seconds=20)), "call")
    await settle()
    runtime.advance(20)
    with pytest.raises(TransportError) as caught:
        await call
    assert (caught.value.reason, caught.value.sent) == ("timeout", True)
