"""Names whose server never answers delay no other tenant, over HTTP and SMTP."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gesta import Attempt, Done, Engine, Outcome, Payload, Request, flow
from gesta.domain.outcome import Unknown
from gesta.engine.environment import Environment, Wiring
from gesta.errors import OutcomeTimeout
from gesta.flows.deferrals import Postponed
from gesta.outbound.address_guard import PrivateAddressGuard
from gesta.outbound.http import AttemptEnded, Http, HttpRequest, TransportError
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from gesta.outbound.lookups import LOOKUP_TENANT, OPEN_MAX, AresResolver, Lookups
from gesta.outbound.smtp import Envelope, MailError, MailServer
from gesta.outbound.smtp.smtp_transport import SmtpTransport
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.security.envelope_encryption import MasterKey
from gesta.stores.memory.database import MemoryDatabase
from tests.outbound.name_server import NameServer, name_server
from tests.outbound.raw_server import Connection, RawServer, ok, raw_server

GUARD = PrivateAddressGuard(["127.0.0.0/8"])
DEAD = [f"n{number}.dead" for number in range(20)]


class Call(Payload, frozen=True):
    url: str


@flow("test.call", on_unknown="manual", effects="attempt", timeout_seconds=30)
async def call(payload: Call, attempt: Attempt) -> Outcome:
    return Done(str((await attempt.http.post(payload.url)).status))


async def accept(connection: Connection) -> None:
    connection.say(ok())


@asynccontextmanager
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[NameServer, RawServer]]:
    """Engines on memory stores and the system's clock, with real HTTP and this name server."""
    async with name_server() as names, raw_server(accept) as receiver:

        async def wire(settings: Settings) -> Environment:
            runtime = SystemRuntime()
            transport = AioHttpTransport(GUARD, AresResolver([names.address]))
            master = MasterKey(base64.b64encode(bytes(32)).decode(), "the test")
            return Environment(
                runtime, MemoryDatabase(runtime).stores(), transport, master, drain_seconds=0
            )

        monkeypatch.setattr(Wiring, "wire", staticmethod(wire))
        yield names, receiver


async def test_another_tenants_sends_are_delivered_while_twenty_names_hang(monkeypatch):
    async with world(monkeypatch) as (names, receiver), Engine("memory:", flows=[call]) as engine:
        hanging: list[Request] = []
        for number, name in enumerate(DEAD):
            # More than the flow has slots, of one tenant and of many.
            for tenant in ["acme"] * 4 + [f"t{number}"] * 4:
                one = await engine.submit(Call(f"http://{name}:{receiver.port}/"), tenant=tenant)
                hanging.append(one)
        while len(names.asked) < len(DEAD):
            await asyncio.sleep(0.01)
        url = f"http://shop.good:{receiver.port}/"
        sends = [await engine.submit(Call(url), tenant="shop") for _ in range(30)]
        outcomes = [await one.outcome(timeout=30) for one in sends]
        assert outcomes == [Done("200")] * 30
        # "A lookup that got no answer uses up no attempt of another tenant."
        assert {(await one.view()).state.attempts for one in sends} == {1}
        assert {(await one.view()).state.status for one in hanging} == {"queued"}


@pytest.mark.slow
async def test_a_name_without_an_answer_fails_attempts_of_its_own_request(monkeypatch):
    async with world(monkeypatch) as (_, receiver), Engine("memory:", flows=[call]) as engine:
        request = await engine.submit(Call(f"http://n.dead:{receiver.port}/"))
        while (await request.view()).state.attempts == 0:
            await asyncio.sleep(0.05)
        assert (await request.view()).state.reason == "dns"
        with pytest.raises(OutcomeTimeout, match="its last attempt ended with dns"):
            await request.outcome(timeout=0.01)


async def test_localhost_literal_addresses_and_etc_hosts_need_no_name_server():
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    hosts = {name: line[0] for line in reversed(lines) for name in line[1:] if ":" not in line[0]}
    expected = hosts | {"localhost": "127.0.0.1", "::1": "::1", "127.1": "127.0.0.1"}
    async with name_server() as names:
        resolver = AresResolver([names.address])
        for name, address in expected.items():
            assert address in {one["host"] for one in await resolver.resolve(name, 80)}, name
        await resolver.close()
    assert not names.asked


async def test_a_missing_name_and_an_impossible_name_give_different_errors():
    async with name_server() as names:
        transport = AioHttpTransport(GUARD, AresResolver([names.address]))
        reasons = []
        for host in ("no.such.name", f"{'a' * 64}.good"):
            with pytest.raises(TransportError) as error:
                await transport.send(HttpRequest("GET", f"http://{host}/"))
            reasons.append(error.value.reason)
        await transport.close()
    assert reasons == ["dns", "unsendable"]


async def test_one_tenant_may_have_only_so_many_look_ups_open():
    async with name_server() as names:
        lookups = Lookups(AresResolver([names.address]))
        LOOKUP_TENANT.set("acme")
        waiting = [
            asyncio.ensure_future(lookups.resolve(f"m{number}.dead")) for number in range(OPEN_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Postponed):
            await lookups.resolve("one-more.dead")
        LOOKUP_TENANT.set("shop")
        (found,) = await lookups.resolve("a.good")
        assert found["host"] == "127.0.0.1"
        for one in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(one, Postponed)
        await lookups.close()


async def test_mail_to_a_server_whose_name_hangs_is_postponed():
    async with name_server() as names:
        transport = SmtpTransport(GUARD, SystemRuntime(), resolver=AresResolver([names.address]))
        LOOKUP_TENANT.set("acme")
        envelope = Envelope("a@example.com", "b@example.com", message=b"hi")
        with pytest.raises(Postponed):
            await transport.send(MailServer("mail.dead", 25, "none"), envelope)
        with pytest.raises(MailError) as error:
            await transport.send(MailServer("mail.nowhere", 25, "none"), envelope)
        assert error.value.reason == "dns"
        await transport.close()


async def test_a_slow_look_up_after_a_call_that_had_its_effect_ends_the_attempt_as_unknown():
    async with name_server() as names, raw_server(accept) as receiver:
        transport = AioHttpTransport(GUARD, AresResolver([names.address]))
        LOOKUP_TENANT.set("acme")
        http = Http(transport, SystemRuntime())
        await http.post(f"http://a.good:{receiver.port}/")
        with pytest.raises(AttemptEnded) as ended:
            await http.post(f"http://b.dead:{receiver.port}/")
        assert isinstance(ended.value.outcome, Unknown)
        await transport.close()
