"""The link that makes the first admin key: once, soon, at this machine, and never where there is
one.
"""

from __future__ import annotations

import asyncio
import html
import re

import pytest

from gesta.domain.events import Actor
from gesta.errors import StoreError
from gesta.http_api import first_key
from gesta.http_api.first_key import LASTS_SECONDS
from gesta.runtime.clock import OnClock

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def eager(api) -> tuple[str, str]:
    path = await api.web.offer_first_key()
    assert path is not None
    return path, path.partition("token=")[2]


async def refused(api, token: str, **options) -> None:
    """By all three ways, with one answer."""
    answers = [
        await api.call("GET", f"/first-key?token={token}", **options),
        await api.call("POST", "/v1/first-key", {"token": token}, **options),
        await api.call(
            "POST",
            "/first-key",
            raw=f"token={token}".encode(),
            headers=FORM | options.get("headers", {}),
        ),
    ]
    assert [one.status for one in answers] == [404] * 3
    assert len({one.text for one in answers}) == 1
    assert "gesta key create --scope admin" in answers[0].body["detail"]


async def test_the_button_of_the_page_makes_the_first_admin_key(api):
    path, token = await eager(api)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    page = await api.call("GET", path)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    action = re.search(r'<form method="post" action="([^"]+)"', page.text)
    hidden = re.search(r'name="token" value="([^"]+)"', page.text)
    assert action is not None
    assert hidden is not None
    made = await api.call(
        "POST", f"/{action[1]}", raw=f"token={html.unescape(hidden[1])}".encode(), headers=FORM
    )
    assert made.status == 200
    (text,) = re.findall(r"gesta_live_\w+", made.text)
    assert (await api.call("GET", "/v1/keys", key=text)).status == 200
    (change,) = await api.engine.admin.audit()
    assert (change.what, change.by, change.details["scopes"]) == (
        "key_created",
        "first-key link",
        ["admin"],
    )
    await refused(api, token)
    assert await api.web.offer_first_key() is None


async def test_the_pages_load_nothing_run_nothing_and_call_no_other_host(api_here):
    path, token = await eager(api_here)
    pages = [
        await api_here.call("GET", path),
        await api_here.call("POST", "/first-key", raw=f"token={token}".encode(), headers=FORM),
    ]
    for page in pages:
        assert page.status == 200
        assert not re.search(
            r"<script|<link|<img|src=|href=|@import|url\(|https?://|\son\w+=",
            page.text,
            re.IGNORECASE,
        )
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "form-action 'self'; frame-ancestors 'none'; base-uri 'none'" in policy
        assert "unsafe" not in policy
        assert (page.headers["Referrer-Policy"], page.headers["Cache-Control"]) == (
            "no-referrer",
            "no-store",
        )


async def test_it_works_by_curl(api_here):
    _, token = await eager(api_here)
    made = await api_here.call("POST", "/v1/first-key", {"token": token})
    assert (made.status, made.body["scopes"], made.body["tenant"]) == (201, ["admin"], "default")
    assert (await api_here.call("GET", "/v1/audit", key=made.body["key"])).status == 200
    await refused(api_here, token)


async def test_only_one_of_many_callers_with_the_token_gets_the_key(api):
    _, token = await eager(api)
    answers = await asyncio.gather(
        *(api.call("POST", "/v1/first-key", {"token": token}) for _ in range(8))
    )
    assert sorted(one.status for one in answers) == [201] + [404] * 7
    assert len(await api.engine.admin.list_keys()) == 1


@pytest.mark.parametrize("token", ["", "x", "a" * 43, "%C3%A4" * 43, "%00"])
async def test_another_token_makes_nothing(api_here, token):
    await eager(api_here)
    answer = await api_here.call("GET", f"/first-key?token={token}")
    assert answer.status == 404
    assert (await api_here.call("POST", "/v1/first-key", {"token": token})).status == 404
    for raw in (f"token={token}".encode(), b"", b"\xff\xfe", b"token", b"&" * 500, b"x" * 2_000):
        assert (await api_here.call("POST", "/first-key", raw=raw, headers=FORM)).status in (
            404,
            413,
        )
    assert await api_here.engine.admin.list_keys() == []


async def test_a_token_is_refused_where_no_first_key_was_offered(api_here):
    await refused(api_here, "a" * 43)


async def test_the_offer_of_a_first_key_ends_after_an_hour(api_here, monkeypatch):
    path, token = await eager(api_here)
    assert (await api_here.call("GET", path)).status == 200
    pipeline, clock = api_here.engine.pipeline, api_here.engine.pipeline.runtime.monotonic

    class Later(OnClock):
        def __init__(self) -> None:
            super().__init__(pipeline.environment.runtime, pipeline.environment.stores.now_ms)
            self.monotonic = lambda: clock() + LASTS_SECONDS

    free_slots = api_here.web.first_key
    monkeypatch.setattr(free_slots._pipeline, "runtime", Later())
    await refused(api_here, token)


async def test_the_offer_of_a_first_key_ends_with_the_first_admin_key_of_any_tenant(api):
    path, token = await eager(api)
    await api.engine.admin.create_key(name="reader", actor=Actor("ada"))
    assert (await api.call("GET", path)).status == 200
    await api.engine.admin.create_key(
        name="root", scopes=["admin"], tenant="acme", actor=Actor("ada")
    )
    await refused(api, token)


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
async def test_a_caller_behind_a_proxy_does_not_count_as_local(api_here, name):
    path, token = await eager(api_here)
    await refused(api_here, token, headers={name: "for=203.0.113.7"})
    assert (await api_here.call("GET", path)).status == 200


@pytest.mark.parametrize(
    ("peer", "is_here"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("::ffff:127.0.0.1", True),
        ("203.0.113.7", False),
        ("10.0.0.1", False),
        ("::ffff:203.0.113.7", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_only_loopback_peers_are_at_this_machine(peer, is_here):
    assert first_key._is_here(peer) is is_here


async def test_a_store_that_fails_uses_nothing_up(api_here, monkeypatch):
    _, token = await eager(api_here)
    keys = api_here.engine.pipeline.keys

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("out of reach")

    with monkeypatch.context() as broken:
        broken.setattr(keys, "create", fail)
        assert (await api_here.call("POST", "/v1/first-key", {"token": token})).status == 503
    assert (await api_here.call("POST", "/v1/first-key", {"token": token})).status == 201


async def test_the_page_shows_the_curl_line_that_works(api_here):
    path, token = await eager(api_here)
    page = await api_here.call("GET", path)
    line = re.search(r"<code>curl '([^']+)' -H '([^:]+): ([^']+)' -d '([^']+)'</code>", page.text)
    assert line is not None
    place, name, value, body = line.groups()
    assert place == api_here.address.partition("//")[2] + "/v1/first-key"
    assert token in body
    made = await api_here.call("POST", "/v1/first-key", raw=body.encode(), headers={name: value})
    assert made.status == 201


@pytest.mark.parametrize("host", ["a'; echo", "<b>", "$(id)"])
async def test_a_host_that_means_something_to_a_shell_or_a_page_is_not_in_the_line(api_here, host):
    path, _ = await eager(api_here)
    page = await api_here.call("GET", path, headers={"Host": host})
    assert page.status == 400 or (
        "curl 'ADDRESS/v1/first-key'" in page.text and host not in page.text
    )


@pytest.mark.parametrize("path", ["/first-key", "/v1/first-key"])
async def test_a_token_in_the_query_of_a_post_gets_an_error_that_names_the_header(api_here, path):
    _, token = await eager(api_here)
    answer = await api_here.call("POST", f"{path}?token={token}")
    assert answer.status == 422
    assert answer.body["errors"] == {
        "token": 'not in the query; POST it to /v1/first-key in the body: {"token": "…"}'
    }
