"""What the client makes of answers, and what it never lets out."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import traceback

import msgspec
import pytest

from gesta.client import Client, SyncClient
from gesta.errors import (
    BadInput,
    BadSettings,
    Forbidden,
    GestaError,
    NotFound,
    Overloaded,
    Unreachable,
)
from tests.http_api.losing import Hasty, scripted

KEY = "gesta_live_abcdefgh_" + "S" * 43
FINE: tuple[int, dict[str, str], bytes] = (
    200,
    {},
    b'{"id":"1","flow":"shop.note","status":"queued"}',
)


def problem(status, code, headers=None):
    body = {
        "type": "about:blank",
        "title": "x",
        "status": status,
        "code": code,
        "detail": f"detail of {code}",
    }
    return (
        status,
        {"Content-Type": "application/problem+json", **(headers or {})},
        msgspec.json.encode(body),
    )


@pytest.mark.parametrize(
    ("answer", "is_repeatable", "calls"),
    [
        (problem(429, "rate_limited", {"Retry-After": "2"}), False, 2),
        (problem(503, "overloaded", {"Retry-After": "2"}), False, 2),
        (problem(503, "not_running"), False, 2),
        (problem(503, "store_unavailable"), False, 1),
        (problem(500, "internal_error"), False, 1),
        ((502, {}, b"<html>"), False, 1),
        (problem(503, "store_unavailable"), True, 2),
        (problem(500, "internal_error"), True, 2),
        ((502, {}, b"<html>"), True, 2),
        (problem(404, "not_found"), True, 1),
        (problem(422, "invalid"), True, 1),
    ],
)
async def test_a_call_is_made_again_where_nothing_was_done_or_nothing_is_done_twice(
    answer, is_repeatable, calls
):
    async with (
        scripted(answer, FINE) as server,
        Client(server.address, KEY, runtime=Hasty()) as client,
    ):
        call = client.cancel if is_repeatable else client.redrive
        try:
            assert (await call("1")).status == "queued"
        except GestaError:
            assert calls == 1
        assert len(server.calls) == calls


async def test_the_server_says_how_long_to_wait_and_chance_adds_to_it():
    runtime = Hasty()
    answers = problem(429, "rate_limited", {"Retry-After": "7"}), FINE
    async with scripted(*answers) as server, Client(server.address, KEY, runtime=runtime) as client:
        await client.retry("1")
    assert [one for one in runtime.pauses if 7 < one < 8] == [7.4]


async def test_a_long_retry_after_is_raised_at_once():
    async with scripted(problem(429, "rate_limited", {"Retry-After": "600"})) as server:
        async with Client(server.address, KEY, runtime=Hasty()) as client:
            with pytest.raises(Overloaded) as later:
                await client.get("1")
            assert later.value.retry_after_seconds == 600
        assert len(server.calls) == 1


async def test_the_same_key_is_sent_each_time():
    made: tuple[int, dict[str, str], bytes] = (
        202,
        {},
        b'{"id":"1","flow":"shop.note","verdict":"created"}',
    )
    answers = problem(500, "internal_error"), problem(503, "store_unavailable"), made
    async with scripted(*answers) as server, Client(server.address, KEY, runtime=Hasty()) as client:
        await client.submit("shop.note", {"text": "hello"})
        keys = [msgspec.json.decode(body)["key"] for _, _, _, body in server.calls]
        assert (len(keys), len(set(keys))) == (3, 1)
        await client.submit("shop.note", {"text": "hello"})
        assert msgspec.json.decode(server.calls[-1][3])["key"] not in keys


async def test_a_key_is_sent_nowhere_else():
    async with (
        scripted(FINE) as other,
        scripted((307, {"Location": f"{other.address}/v1/x"}, b"")) as server,
    ):
        async with Client(server.address, KEY, runtime=Hasty()) as client:
            with pytest.raises(Unreachable, match="redirects elsewhere"):
                await client.cancel("1")
        assert other.calls == []


@pytest.mark.parametrize(
    "answer",
    [
        problem(401, "key_refused"),
        problem(404, "not_found"),
        problem(500, "internal_error"),
        (200, {}, b"<html>"),
        (204, {}, b""),
    ],
)
async def test_a_key_is_in_no_text(answer):
    async with (
        scripted(answer) as server,
        Client(server.address, KEY, runtime=Hasty(), attempts=2) as client,
    ):
        assert KEY not in f"{client!r}{client.line!r}{client!s}"
        with pytest.raises(GestaError) as raised:
            await client.whoami()
    assert "S" * 43 not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_text_that_cannot_be_a_key_is_refused_and_not_repeated(key):
    with pytest.raises(BadInput) as raised:
        Client("http://127.0.0.1:1", key)
    assert not key or key not in str(raised.value)


@pytest.mark.parametrize(
    "server",
    ["", "localhost:8420", "ftp://host", "http://", "http://ada:secret@host", "http://host/?a=b"],
)
def test_an_invalid_address_is_refused(server):
    with pytest.raises(BadInput) as raised:
        Client(server, KEY)
    assert "secret" not in str(raised.value)


def test_without_words_the_settings_count(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match="GESTA_SERVER"):
        Client()
    monkeypatch.setenv("GESTA_SERVER", "http://127.0.0.1:8420/")
    with pytest.raises(BadSettings, match="GESTA_API_KEY"):
        Client()
    monkeypatch.setenv("GESTA_API_KEY", KEY)
    assert repr(Client()) == "Client('http://127.0.0.1:8420')"


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_both_clients_have_the_same_methods():
    inner = {"post", "read", "change", "pages", "rest"}
    assert public(Client) - inner == public(SyncClient)
    for name in public(SyncClient) - {"close"}:
        assert list(inspect.signature(getattr(SyncClient, name)).parameters) == list(
            inspect.signature(getattr(Client, name)).parameters
        )


async def test_the_client_without_a_loop_does_the_same(api):
    key = await api.key()

    def program():
        with SyncClient(api.address, key) as client:
            made = client.submit("shop.note", {"text": "hello"}, key="order-7")
            assert client.wait(made.id).status == "completed"
            assert [one.id for one in client.find()] == [made.id]
            with pytest.raises(NotFound):
                client.get("nothing")
            return next(event.flow for event in client.stream())

    running = asyncio.ensure_future(asyncio.to_thread(program))
    while not api.web.streams.total() and not running.done():
        await asyncio.sleep(0.01)
    await api.submit(key, "to be seen")
    assert await asyncio.wait_for(running, 20) == "shop.note"


async def test_a_stranger_is_refused_without_a_loop_too(api_here):
    def program():
        with SyncClient(api_here.address, KEY) as client, pytest.raises(Forbidden):
            client.whoami()

    await asyncio.to_thread(program)


def test_importing_the_client_opens_nothing_and_loads_no_engine_worker_or_store(tmp_path):
    script = """
import gesta.client, os, sys
known = ("gesta.client", "gesta.api_types", "gesta.errors", "gesta.domain")
others = [one for one in sys.modules if one.startswith("gesta.") and not one.startswith(known)]
foreign = {"apsw", "asyncpg", "uvicorn", "starlette", "prometheus_client"} & set(sys.modules)
sys.exit(f"{os.listdir('.')} {others} {foreign}" if os.listdir(".") or others or foreign else 0)
"""
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path).returncode == 0


async def test_a_server_that_is_not_there_is_named_within_the_time_that_is_awaited():
    address = "http://127.0.0.1:1"
    cause = "no server listens at this host and port; start one with: gesta serve"
    async with Client(address, KEY, runtime=(runtime := Hasty())) as client:
        with pytest.raises(Unreachable, match=f"{address} cannot be reached: {cause}"):
            await client.wait("1", timeout=0.5)
        # The next pause would have gone beyond the half second.
        assert [one for one in runtime.pauses if one < 3] == [0.4]
        with pytest.raises(Unreachable, match=f"{address} cannot be reached: {cause}"):
            await client.submit("shop.note", {})


async def test_a_wrong_url_is_not_reported_as_a_request_that_does_not_exist():
    async with scripted((404, {}, b"<html>")) as server, Client(server.address, KEY) as client:
        with pytest.raises(Unreachable) as wrong:
            await client.wait("1", timeout=5)
    assert str(wrong.value) == (
        f"{server.address} answered 404, but not as gesta does; check the address, and any proxy in"
        " between"
    )


def test_an_address_without_http_is_refused_with_an_example():
    with pytest.raises(BadInput, match=r"it must begin with http://.* http://127\.0\.0\.1:8420"):
        Client("localhost:8420", KEY)
