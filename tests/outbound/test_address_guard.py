"""Nothing reaches an address that is not public, however it is written and whenever its name
changes its mind.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gesta.outbound.http import HttpRequest, PrivateAddressGuard, TransportError
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from tests.outbound.raw_server import Connection, ok, raw_server


async def answers(connection: Connection) -> None:
    connection.say(ok())


class Answers(AbstractResolver):
    """A double of the name service: says something else each time it is asked."""

    def __init__(self, *turns: list[str]) -> None:
        self.turns = list(turns)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        hosts = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in hosts
        ]

    async def close(self) -> None: ...


@asynccontextmanager
async def opened(
    guard: PrivateAddressGuard, resolver: AbstractResolver | None = None
) -> AsyncIterator[AioHttpTransport]:
    transport = AioHttpTransport(guard, resolver)
    yield transport
    await transport.close()


async def error_of(transport: AioHttpTransport, url: str) -> str:
    with pytest.raises(TransportError) as caught:
        await transport.send(HttpRequest("POST", url, timeout_seconds=5))
    assert not caught.value.sent
    return caught.value.reason


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "198.18.0.1",
        "192.0.2.1",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:1::",
        "2001:db8::1",
        "3fff::1",
        "100::1",
        "5f00::1",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "017700000001",
        "localhost",
        "",
    ],
)
def test_an_address_that_is_not_public_is_refused(address):
    # S1-27: deny private, link-local and metadata ranges
    assert PrivateAddressGuard().refusal(address, "https") == "private_address"


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "172.15.255.255",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "2001:4860:4860::8888",
    ],
)
def test_a_public_address_is_let_through_with_tls_and_refused_without(address):
    assert PrivateAddressGuard().refusal(address, "https") is None
    assert PrivateAddressGuard().refusal(address, "http") == "plain_http"  # S1-27: https only


def test_a_network_that_is_named_is_let_through_also_without_tls():
    guard = PrivateAddressGuard(allow=["127.0.0.0/8", "fd00::/8"])
    assert [guard.refusal(address, "http") for address in ("127.0.0.1", "fd00::1")] == [None, None]
    assert [
        guard.refusal(address, "https") for address in ("10.0.0.1", "::ffff:127.0.0.1", "::1")
    ] == ["private_address"] * 3


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "１２７.0.0.1",
        "localhost",
        "user:pass@127.0.0.1",
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_spelling_of_loopback_is_connected_to(host, scheme):
    async with raw_server(answers) as server, opened(PrivateAddressGuard()) as transport:
        # Some spellings are no web address at all for the library; the rest meets the guard.
        assert await error_of(transport, f"{scheme}://{host}:{server.port}/") in {
            "private_address",
            "unsendable",
        }  # S1-27
        assert server.connections == 0


async def test_a_name_that_resolves_to_a_private_address_is_refused():
    async with (
        raw_server(answers) as server,
        opened(PrivateAddressGuard(), Answers(["127.0.0.1"])) as transport,
    ):
        assert (
            await error_of(transport, f"https://inside.example:{server.port}/") == "private_address"
        )
        assert server.connections == 0


async def test_a_name_with_several_addresses_none_of_them_public_is_refused():
    inside = Answers(["127.0.0.1", "10.0.0.1", "::1"])
    async with raw_server(answers) as server, opened(PrivateAddressGuard(), inside) as transport:
        assert (
            await error_of(transport, f"https://inside.example:{server.port}/") == "private_address"
        )
        assert server.connections == 0


async def test_a_name_that_changes_its_address_after_the_first_call_gains_nothing():
    async def answer_and_close(connection: Connection) -> None:
        connection.say(ok(headers=b"connection: close\r\n"))
        connection.writer.close()

    guard, names = (
        PrivateAddressGuard(allow=["127.0.0.1/32"]),
        Answers(["127.0.0.1"], ["127.0.0.2"]),
    )
    async with raw_server(answer_and_close) as environment, opened(guard, names) as transport:
        url = f"http://rebinding.example:{environment.port}/"
        assert (await transport.send(HttpRequest("POST", url))).status == 200
        assert (
            await error_of(transport, url) == "private_address"
        )  # S1-27: the address connected to is the one checked


async def test_of_a_name_with_several_addresses_only_the_permitted_one_is_used():
    guard, names = (
        PrivateAddressGuard(allow=["127.0.0.1/32"]),
        Answers(["127.0.0.2", "::1", "127.0.0.1"]),
    )
    async with raw_server(answers) as server, opened(guard, names) as transport:
        assert (
            await transport.send(HttpRequest("POST", f"http://mixed.example:{server.port}/"))
        ).status == 200


async def test_a_name_with_an_empty_answer_is_not_found():
    async with opened(PrivateAddressGuard(), Answers([])) as transport:
        assert await error_of(transport, "https://empty.example/") == "dns"


async def test_plain_http_to_a_public_name_is_refused_before_it_is_connected_to():
    async with opened(PrivateAddressGuard(), Answers(["93.184.215.14"])) as transport:
        assert (
            await error_of(transport, "http://public.example/") == "plain_http"
        )  # S1-27: https only


async def test_a_receiver_without_tls_fails_the_handshake():
    async def nonsense(connection: Connection) -> None:
        connection.say(b"this is not TLS\r\n")
        connection.writer.close()

    async with (
        raw_server(nonsense, reads=False) as server,
        opened(PrivateAddressGuard(allow=["127.0.0.0/8"])) as transport,
    ):
        assert await error_of(transport, f"https://127.0.0.1:{server.port}/") == "tls"


async def test_an_untrusted_certificate_is_refused(tmp_path):
    async with (
        raw_server(answers, tls=_own_certificate(tmp_path)) as server,
        opened(PrivateAddressGuard(allow=["127.0.0.0/8"])) as transport,
    ):
        assert await error_of(transport, server.url) == "tls"
        assert server.requests == []


def _own_certificate(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime(2020, 1, 1, tzinfo=UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
    )
    certificate = (
        builder.not_valid_before(start)
        .not_valid_after(start.replace(year=2100))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "both.pem"
    path.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.mark.parametrize("host", ["93.184.215.14", "[2606:4700::1111]"])
async def test_plain_http_to_a_public_address_is_refused_before_it_is_connected_to(host):
    async with opened(PrivateAddressGuard(allow=["127.0.0.0/8"])) as transport:
        assert await error_of(transport, f"http://{host}/") == "plain_http"  # S1-27: https only
