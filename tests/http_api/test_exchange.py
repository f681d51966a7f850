"""The fast path between our server and an endpoint: a client sees no difference from ASGI."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter

import msgspec
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gesta.http_api import endpoint
from gesta.http_api.server import _Exchange
from gesta.runtime.clock import turn

#: What differs from one answer to the next by itself.
CHANGING = re.compile(
    rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=date: )[^\r]+|(?<=ratelimit-remaining: )\d+"
)
BODY = msgspec.json.encode({"flow": "shop.note", "payload": {"text": "hello"}})


def written(
    key: str, body: bytes = BODY, *more: str, path: str = "/v1/requests", method: str = "POST"
) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        *more,
    ]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def connected(api):
    host, _, port = api.address.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def read_answer(reader) -> tuple[bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    length = re.search(rb"content-length: (\d+)", head)
    return head, b"" if length is None else await asyncio.wait_for(
        reader.readexactly(int(length[1])), 20
    )


async def answered(api, sent: bytes) -> tuple[bytes, bytes]:
    reader, writer = await connected(api)
    try:
        writer.write(sent)
        return await read_answer(reader)
    finally:
        writer.close()


@pytest.fixture
def used(monkeypatch) -> list[int]:
    """The statuses that were answered by the fast path."""
    statuses: list[int] = []
    before = _Exchange.answer

    def answer(self, status, headers, body):
        is_answered = before(self, status, headers, body)
        if is_answered:
            statuses.append(status)
        return is_answered

    monkeypatch.setattr(_Exchange, "answer", answer)
    return statuses


async def test_the_short_way_and_asgi_give_the_same_bytes(monkeypatch, api_here, used):
    key = await api_here.key("admin")
    calls = [
        written(key),
        written(
            key,
            msgspec.json.encode(
                {"flow": "shop.note", "payload": {"text": "hello"}, "key": "order-1"}
            ),
        ),
        written(
            key,
            msgspec.json.encode(
                {"flow": "shop.note", "payload": {"text": "hello"}, "key": "order-1"}
            ),
        ),
        written(
            key,
            msgspec.json.encode({"requests": [{"flow": "shop.note", "payload": {"text": "x"}}]}),
            path="/v1/requests/batch",
        ),
        written(key, b"", path="/v1/requests?limit=1&status=failed", method="GET"),
        written(key, b"{"),
        written(key, msgspec.json.encode({"flow": "shop.note", "payload": {"text": 1}})),
        written("gesta_live_nobodys"),
    ]
    short = [await answered(api_here, call) for call in calls]
    assert used == [202, 202, 200, 200, 200]
    monkeypatch.setattr(endpoint, "exchange_of", lambda _: None)
    long = [
        await answered(api_here, call)
        for call in [calls[0], calls[1].replace(b"order-1", b"order-2"), *calls[2:]]
    ]
    assert len(used) == 5
    assert [CHANGING.sub(b"*", head + body) for head, body in short] == [
        CHANGING.sub(b"*", head + body) for head, body in long
    ]


@pytest.mark.parametrize("cut", [1, len(BODY) // 2, len(BODY) - 1])
async def test_a_body_that_comes_in_parts_is_read_whole(api_here, cut):
    key = await api_here.key("submit")
    sent = written(key)
    reader, writer = await connected(api_here)
    writer.write(sent[: cut - len(BODY)])
    await writer.drain()
    # The server is in this loop: by then it has begun to read.
    for _ in range(20):
        await turn()
    writer.write(sent[cut - len(BODY) :])
    assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 202 Accepted\r\n")
    writer.close()


async def test_calls_sent_behind_each_other_are_answered_in_their_order(api_here, used):
    key = await api_here.key("submit")
    reader, writer = await connected(api_here)
    texts = [
        msgspec.json.encode(
            {"flow": "shop.note", "payload": {"text": "hello"}, "key": f"order-{n}"}
        )
        for n in range(5)
    ]
    writer.write(b"".join(written(key, text) for text in [*texts, *texts]))
    answers = [await read_answer(reader) for _ in range(10)]
    writer.close()
    assert [head[9:12] for head, _ in answers] == [b"202"] * 5 + [b"200"] * 5
    ids = [msgspec.json.decode(body)["id"] for _, body in answers]
    assert ids[:5] == ids[5:]
    assert len(set(ids)) == 5
    assert used == [202] * 5 + [200] * 5


async def test_a_connection_is_closed_when_the_caller_asks_for_it(api_here, used):
    key = await api_here.key("submit")
    reader, writer = await connected(api_here)
    writer.write(written(key, BODY, "Connection: close"))
    head, _ = await read_answer(reader)
    assert b"connection: close\r\n" in head
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    assert used == []


async def test_a_caller_that_expects_100_continue_gets_it(api_here):
    key = await api_here.key("submit")
    reader, writer = await connected(api_here)
    writer.write(written(key, BODY, "Expect: 100-continue")[: -len(BODY)])
    assert (
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        == b"HTTP/1.1 100 Continue\r\n\r\n"
    )
    writer.write(BODY)
    assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 202")
    writer.close()


async def test_a_body_that_is_too_long_ends_the_connection(api_here, used):
    key = await api_here.key("submit")
    reader, writer = await connected(api_here)
    chunk = b"x" * 60_000
    head = written(key, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    writer.write(
        head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for _ in range(6)) + b"0\r\n\r\n"
    )
    head, _ = await read_answer(reader)
    assert head.startswith(b"HTTP/1.1 413")
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    assert used == []


async def test_a_caller_who_goes_away_after_a_body_at_once_is_noticed_while_they_wait(api_here):
    key = await api_here.key("submit")
    waiters = api_here.engine.pipeline.waiters
    _, writer = await connected(api_here)
    later = msgspec.json.encode({"flow": "shop.note", "payload": {"text": "later"}})
    writer.write(written(key, later, path="/v1/requests?wait=60s"))
    while not waiters.waiting:
        await asyncio.sleep(0.01)
    writer.close()
    while waiters.waiting:
        await asyncio.sleep(0.01)


async def test_a_call_leaves_nothing_to_the_search_for_cycles(api_here):
    key = await api_here.key("submit")
    reader, writer = await connected(api_here)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            writer.write(written(key))
            await read_answer(reader)
        # Of these, because whatever else runs in this process may leave something of its own.
        left = [
            type(one).__name__
            for one in gc.get_objects()
            if isinstance(one, RequestResponseCycle | _Exchange)
        ]
        assert len(left) < 10, Counter(left)
    finally:
        gc.enable()
        writer.close()
