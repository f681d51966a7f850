"""Who may call what: keys, scopes, tenants, rates."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gesta.http_api.endpoint import KeyRates
from tests.http_api.served import served

BODY = {"flow": "shop.note", "payload": {"text": "hello"}}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer gesta_live_nothing",
        "Bearer gesta_live_000000000000000000_" + "a" * 43,
        "Bearer " + "x" * 10_000,
    ],
)
async def test_without_a_key_that_counts_nothing_is_answered(api_here, header):
    headers = {} if header is None else {"Authorization": header}
    answer = await api_here.call("POST", "/v1/requests", BODY, headers=headers)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert await api_here.engine.find() == []


async def test_a_key_with_another_secret_is_refused_like_one_that_does_not_exist(api):
    key = await api.key("read")
    wrong = key[:-1] + ("a" if key[-1] != "a" else "b")
    first = await api.call("GET", "/v1/requests", key=wrong)
    second = await api.call("GET", "/v1/requests", key="gesta_live_" + "0" * 18 + "_" + "a" * 43)
    assert (first.status, first.body) == (401, second.body)


async def test_a_revoked_key_counts_no_more(api):
    from gesta.domain.events import Actor

    key = await api.key("read")
    assert (await api.call("GET", "/v1/requests", key=key)).status == 200
    await api.engine.admin.revoke_key(key.split("_")[2], actor=Actor("test"))
    assert (await api.call("GET", "/v1/requests", key=key)).status == 401


async def test_a_scope_allows_only_itself_and_admin_all(api):
    reader, submitter, admin = (
        await api.key("read"),
        await api.key("submit"),
        await api.key("admin"),
    )
    refused = await api.call("POST", "/v1/requests", BODY, key=reader)
    assert (refused.status, refused.body["code"]) == (403, "scope_missing")
    assert "create one with --scope" in refused.body["detail"]
    assert (await api.call("GET", "/v1/requests", key=submitter)).status == 403
    assert (await api.call("POST", "/v1/requests", BODY, key=admin)).status == 202
    assert (await api.call("GET", "/v1/requests", key=admin)).status == 200


async def test_another_tenants_request_is_not_there(api):
    mine, theirs = await api.key(), await api.key(tenant="acme")
    made = await api.submit(mine)
    here = made.headers["Location"]
    for method, path, body in [
        ("GET", here, None),
        ("GET", f"{here}/events", None),
        ("GET", f"{here}/attempts", None),
        ("POST", f"{here}/cancel", None),
        ("POST", f"{here}/retry", None),
        ("POST", f"{here}/redrive", {}),
        ("POST", f"{here}/resolve", {"outcome": "succeeded", "evidence": "none"}),
    ]:
        assert (await api.call(method, path, body, key=theirs)).status == 404
    assert (await api.call("GET", "/v1/requests", key=theirs)).body["items"] == []


async def test_a_header_that_stands_there_twice_is_refused(api_here):
    key = await api_here.key()
    raw = (
        f"GET /v1/requests HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nAuthorization:"
        " Bearer nothing\r\nConnection: close\r\n\r\n"
    )
    assert b"400" in (await exchange(api_here.address, raw.encode())).split(b"\r\n")[0]


async def test_a_length_and_a_transfer_encoding_together_are_refused(api_here):
    key = await api_here.key()
    raw = (
        f"POST /v1/requests HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type:"
        " application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET"
        " /v1/requests HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    answer = await exchange(api_here.address, raw.encode())
    assert b"HTTP/1.1 400" in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    head, _, problem = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert msgspec.json.decode(problem)["code"] == "malformed_http"


async def test_the_rate_of_a_key_has_an_end_that_the_headers_tell(tmp_path):
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", api_rate=2) as api:
        key, other = await api.key("read"), await api.key("read")
        answers = [await api.call("GET", "/v1/requests", key=key) for _ in range(6)]
        assert [one.headers["RateLimit-Limit"] for one in answers] == ["4"] * 6
        refused = [one for one in answers if one.status == 429]
        assert refused
        assert (refused[0].body["code"], int(refused[0].headers["Retry-After"])) == (
            "rate_limited",
            1,
        )
        assert (await api.call("GET", "/v1/requests", key=other)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "raw"),
    [
        ("POST", "/v1/requests", b"{"),
        ("POST", "/v1/requests", b'{"flow":7}'),
        ("POST", "/v1/requests/batch", b'{"requests":7}'),
        ("GET", "/v1/requests?colour=red", None),
    ],
)
async def test_a_call_that_is_wrong_counts_like_any_other(tmp_path, method, path, raw):
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", api_rate=1) as api:
        key = await api.key("read", "submit")
        answers = [await api.call(method, path, raw=raw, key=key) for _ in range(6)]
        assert {one.status for one in answers[:2]} <= {400, 422}
        assert answers[0].headers["RateLimit-Remaining"] == "1"
        assert 429 in {one.status for one in answers}


async def test_a_batch_counts_as_many_as_it_carries_and_one_above_any_rate_is_accepted_in_the_end(
    tmp_path,
):
    one = {"flow": "shop.note", "payload": {"text": "x"}}
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", api_rate=3) as api:
        key = await api.key("read", "submit")
        small = await api.call("POST", "/v1/requests/batch", {"requests": [one] * 4}, key=key)
        assert (
            small.status,
            small.headers["RateLimit-Limit"],
            small.headers["RateLimit-Remaining"],
        ) == (200, "6", "2")
        large = await api.call("POST", "/v1/requests/batch", {"requests": [one] * 9}, key=key)
        assert large.status == 429
        await asyncio.sleep(int(large.headers["Retry-After"]))
        assert (
            await api.call("POST", "/v1/requests/batch", {"requests": [one] * 9}, key=key)
        ).status == 200


def test_a_caller_that_retries_after_the_stated_time_is_accepted():
    rates = KeyRates(5)
    assert rates.take("a", 10, 0.0) == (0, 0)
    _, wait = rates.take("a", 7, 0.0)
    assert rates.take("a", 7, float(wait))[1] == 0


async def exchange(address: str, raw: bytes) -> bytes:
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


def test_a_key_that_rests_saves_up_no_more_than_its_burst():
    rates = KeyRates(5)
    assert rates.take("a", 1, 0.0) == (9, 0)
    assert rates.take("a", 10, 3_600.0) == (0, 0)
    assert rates.take("a", 1, 3_600.0)[1] == 1


def test_a_known_key_makes_no_other_key_forget_its_calls(monkeypatch):
    monkeypatch.setattr("gesta.http_api.endpoint.KEYS_MAX", 2)
    rates = KeyRates(1)
    assert [rates.take(key, 2, 0.0) for key in ("a", "b")] == [(0, 0), (0, 0)]
    assert rates.take("a", 1, 1.0) == (0, 0)
    assert rates.take("b", 2, 1.0) == (0, 1)
    # A third one does: the process remembers so many.
    assert rates.take("c", 2, 1.0) == rates.take("b", 2, 1.0) == (0, 0)
