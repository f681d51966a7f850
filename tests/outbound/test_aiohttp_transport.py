"""Real sockets on loopback: each way in which a call can go wrong, and what it is called."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from gesta.outbound.http import HttpRequest, PrivateAddressGuard, TransportError
from gesta.outbound.http.aiohttp_transport import ANSWER_BYTES_MAX, AioHttpTransport
from tests.outbound.raw_server import Connection, ok, raw_server


@pytest.fixture
async def transport() -> AsyncIterator[AioHttpTransport]:
    transport = AioHttpTransport(PrivateAddressGuard(allow=["127.0.0.0/8"]))
    yield transport
    await transport.close()


def post(url: str, timeout_seconds: float = 5.0) -> HttpRequest:
    return HttpRequest("POST", url, {"x-note": "1"}, b"hello", timeout_seconds)


async def error_of(transport: AioHttpTransport, request: HttpRequest) -> tuple[str, bool]:
    with pytest.raises(TransportError) as caught:
        await transport.send(request)
    return caught.value.reason, caught.value.sent


async def answers(connection: Connection) -> None:
    connection.say(ok(b'{"id": 7}', b"X-Kind: mixed\r\n"))


async def test_an_answer_comes_back_with_status_headers_and_body(transport):
    async with raw_server(answers) as server:
        response = await transport.send(post(server.url))
        assert (response.status, response.body, response.is_whole) == (200, b'{"id": 7}', True)
        assert response.headers["X-KIND"] == response.headers["x-kind"] == "mixed"
        assert server.requests[0].endswith(b"\r\n\r\nhello")


async def test_a_status_that_is_not_a_success_is_an_answer_too(transport):
    async def unavailable(connection: Connection) -> None:
        connection.say(b"HTTP/1.1 503 Busy\r\nretry-after: 9\r\ncontent-length: 0\r\n\r\n")

    async with raw_server(unavailable) as server:
        response = await transport.send(post(server.url))
        assert (response.status, response.headers["Retry-After"]) == (503, "9")


async def test_a_refused_connection_was_surely_not_sent(transport):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert await error_of(transport, post(url)) == ("refused", False)


class NoNames(AbstractResolver):
    """A fake name service that knows no name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        raise socket.gaierror(socket.EAI_NONAME, f"no such name {host}")

    async def close(self) -> None: ...


@pytest.fixture
async def nameless() -> AsyncIterator[AioHttpTransport]:
    transport = AioHttpTransport(resolver=NoNames())
    yield transport
    await transport.close()


async def test_a_name_without_an_address_was_surely_not_sent(nameless):
    assert await error_of(nameless, post("https://nobody.example/")) == ("dns", False)


async def test_a_connection_that_takes_too_long_was_surely_not_sent(transport):
    async def stay_silent(connection: Connection) -> None:
        await connection.reader.read()

    # The receiver takes the connection and never answers the TLS handshake.
    async with raw_server(stay_silent, reads=False) as server:
        url = server.url.replace("http://", "https://")
        assert await error_of(transport, post(url, timeout_seconds=0.3)) == (
            "connect_timeout",
            False,
        )


async def test_a_reset_before_anything_was_read_counts_as_sent(transport):
    async def hang_up(connection: Connection) -> None:
        connection.reset()

    async with raw_server(hang_up, reads=False) as server:
        assert await error_of(transport, post(server.url)) == ("reset", True)


async def test_a_reset_after_the_request_counts_as_sent(transport):
    async def hang_up(connection: Connection) -> None:
        connection.reset()

    async with raw_server(hang_up) as server:
        assert await error_of(transport, post(server.url)) == ("reset", True)
        assert len(server.requests) == 1


async def test_a_receiver_that_does_not_answer_in_time_counts_as_sent(transport):
    async def stay_silent(connection: Connection) -> None:
        await connection.reader.read()

    async with raw_server(stay_silent) as server:
        assert await error_of(transport, post(server.url, timeout_seconds=0.2)) == ("timeout", True)


async def test_the_time_limit_holds_for_an_answer_that_trickles_in(transport):
    async def trickle(connection: Connection) -> None:
        connection.say(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfirst")
        await connection.writer.drain()
        await connection.reader.read()

    async with raw_server(trickle) as server:
        assert await error_of(transport, post(server.url, timeout_seconds=0.2)) == ("timeout", True)


@pytest.mark.parametrize(
    "half",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort",
    ],
)
async def test_half_an_answer_counts_as_sent(transport, half):
    async def stop(connection: Connection) -> None:
        connection.say(half)
        connection.writer.close()

    async with raw_server(stop) as server:
        assert await error_of(transport, post(server.url)) == ("bad_answer", True)


async def test_an_answer_that_is_not_http_counts_as_sent(transport):
    async def talk(connection: Connection) -> None:
        connection.say(b"220 mail.example ready\r\n\r\n")
        connection.writer.close()

    async with raw_server(talk) as server:
        assert await error_of(transport, post(server.url)) == ("bad_answer", True)


async def test_a_long_answer_is_cut_and_its_status_is_still_valid(transport):
    async def flood(connection: Connection) -> None:
        connection.say(ok(b"x" * (16 * ANSWER_BYTES_MAX)))

    async with raw_server(flood) as server:
        response = await transport.send(post(server.url))
        assert (response.status, len(response.body), response.is_whole) == (
            200,
            ANSWER_BYTES_MAX,
            False,
        )
        # The rest of it must not be taken for the next answer.
        assert (await transport.send(post(server.url))).status == 200
        assert server.connections == 2


async def test_a_redirect_is_not_followed(transport):
    async def point_elsewhere(connection: Connection) -> None:
        connection.say(b"HTTP/1.1 307 Go\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")

    async with raw_server(point_elsewhere) as server:
        assert (await transport.send(post(server.url))).status == 307  # S1-27: no redirects
        assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"])
async def test_no_method_is_repeated_behind_our_back(transport, method):
    async def hang_up(connection: Connection) -> None:
        connection.reset()

    async with raw_server(hang_up) as server:
        assert await error_of(transport, HttpRequest(method, server.url)) == ("reset", True)
        assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_a_kept_connection_that_the_receiver_closes_counts_as_sent_and_is_not_repeated(
    transport, method
):
    async def answer_once(connection: Connection) -> None:
        if len(server.requests) == 1:
            connection.say(ok())
        else:
            connection.reset()

    async with raw_server(answer_once) as server:
        await transport.send(HttpRequest(method, server.url))
        assert await error_of(transport, HttpRequest(method, server.url)) == ("reset", True)
        assert (server.connections, len(server.requests)) == (1, 2)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "example.com",
        "",
        "https://",
        f"https://{'a' * 64}.example/",
        "http://[::1/",
    ],
)
async def test_an_address_other_than_http_is_not_called(transport, url):
    assert await error_of(transport, post(url)) == ("unsendable", False)


async def test_a_header_cannot_smuggle_in_another(transport):
    async with raw_server(answers) as server:
        request = HttpRequest("GET", server.url, {"x-note": "a\r\nx-evil: b"})
        assert await error_of(transport, request) == ("unsendable", False)
        assert server.connections == 0


async def test_compressed_answers_are_neither_asked_for_nor_unfolded(transport):
    async with raw_server(answers) as server:
        await transport.send(post(server.url))
        assert b"accept-encoding: identity" in server.requests[0].lower()


async def test_a_call_that_is_cut_off_closes_its_connection(transport):
    closed = asyncio.Event()

    async def wait_for_the_end(connection: Connection) -> None:
        arrived.set()
        await connection.reader.read()
        closed.set()

    arrived = asyncio.Event()
    async with raw_server(wait_for_the_end) as server:
        call = asyncio.create_task(transport.send(post(server.url)))
        await arrived.wait()
        call.cancel()
        await asyncio.wait_for(closed.wait(), 5)


async def test_no_error_shows_the_url_it_was_about(nameless):
    with pytest.raises(TransportError) as caught:
        await nameless.send(post("https://user:pass@nobody.example/hook?token=t0psecret"))
    seen = f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert caught.value.__suppress_context__
    assert "nobody" not in seen
    assert "t0psecret" not in seen
