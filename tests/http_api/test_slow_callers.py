"""Those who never come to an end, and those who go away."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from gesta.http_api import endpoint, server

HEAD = "POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def connected(api):
    host, _, port = api.address.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /v1/req", HEAD.encode()],
    ids=["nothing", "half-a-line", "half-the-headers"],
)
async def test_headers_that_do_not_come_end_the_connection(monkeypatch, api_here, begun):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    reader, writer = await connected(api_here)
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /li"),
        (b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n"),
        (b"GET /live HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"x"),
        (f"{HEAD}Content-Length: 9\r\n\r\n".encode(), b"x"),
    ],
    ids=[
        "half-a-line",
        "a-blank-line",
        "half-a-body-nobody-asked-for",
        "half-a-body-of-a-refused-call",
    ],
)
async def test_an_unfinished_second_call_ends_the_connection(monkeypatch, api_here, first, later):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    reader, writer = await connected(api_here)
    writer.write(first)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 ")
    writer.write(later)
    # What is left of the answer, and then the end.
    await asyncio.wait_for(reader.read(), 20)
    writer.close()


async def test_an_answer_that_the_caller_does_not_read_ends_the_connection(monkeypatch, api_here):
    monkeypatch.setattr(server, "TAKE_SECONDS", 0.2)
    host, _, port = api_here.address.removeprefix("http://").partition(":")
    with socket.socket() as idle:
        # Small before it connects, so that the other end has little room to write to.
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect((host, int(port)))
        idle.setblocking(False)
        for _ in range(200):
            idle.send(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(3)
        leased = b""
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(20):
                while part := await asyncio.get_running_loop().sock_recv(idle, 1 << 20):
                    leased += part
    assert 0 < leased.count(b"HTTP/1.1 200") < 200


async def test_a_caller_beyond_the_limit_gets_429_with_retry_after(monkeypatch, api_here):
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    _, idle = await connected(api_here)
    refused = await api_here.call("GET", "/v1/requests", key="any")
    assert (refused.status, refused.body["code"]) == (503, "too_many_connections")
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert (refused.headers["Retry-After"], refused.headers["Connection"]) == ("5", "close")
    idle.close()
    async with asyncio.timeout(20):
        while (await api_here.call("GET", "/live")).status != 200:
            pass


async def test_headers_without_end_end_the_connection(api_here):
    reader, writer = await connected(api_here)
    writer.write(HEAD.encode())
    try:
        for number in range(100_000):
            writer.write(f"X-{number}: {'x' * 100}\r\n".encode())
            await writer.drain()
            if reader.at_eof():
                break
        assert await asyncio.wait_for(reader.read(), 20) == b""
    except ConnectionError:
        return
    finally:
        writer.close()


async def test_a_body_that_does_not_come_is_answered_408(monkeypatch, api_here):
    monkeypatch.setattr(endpoint, "BODY_SECONDS", 0.2)
    key = await api_here.key("submit")
    reader, writer = await connected(api_here)
    writer.write(f"{HEAD}Authorization: Bearer {key}\r\nContent-Length: 100\r\n\r\n{{".encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer
    writer.close()
    assert await api_here.engine.find() == []


async def test_a_caller_who_goes_away_while_waiting_leaves_nothing_behind(api_here):
    key = await api_here.key("submit", "read")
    made = await api_here.submit(key, "later")
    waiters = api_here.engine.pipeline.waiters
    _, writer = await connected(api_here)
    writer.write(
        f"GET {made.headers['Location']}?wait=60s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer"
        f" {key}\r\n\r\n".encode()
    )
    while not waiters.waiting:
        await asyncio.sleep(0.01)
    writer.close()
    while waiters.waiting:
        await asyncio.sleep(0.01)
    assert (await api_here.call("GET", made.headers["Location"], key=key)).status == 200


async def test_a_stream_that_is_left_is_closed(api_here):
    key = await api_here.key("read")
    web_streams = []
    async with api_here.session.get(
        f"{api_here.address}/v1/stream", headers={"Authorization": f"Bearer {key}"}
    ) as answer:
        await answer.content.readuntil(b"\n\n")
        web_streams.append(api_here.web.streams.total())
    while api_here.web.streams.total():
        await asyncio.sleep(0.01)
    assert web_streams == [1]


def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement():
    """asyncio switches Nagle's algorithm off only where the protocol is named; an error took 40
    milliseconds more.
    """
    with server.bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
