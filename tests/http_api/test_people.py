"""/v1/erase: a person is erased once, however often it is asked for."""

from __future__ import annotations

import pytest


async def test_a_person_is_erased_and_that_is_safe_to_repeat(api):
    key, admin = await api.key("submit", "read"), await api.key()
    made = await api.call(
        "POST",
        "/v1/requests?wait=20s",
        {"flow": "shop.note", "payload": {"text": "hi", "to": "ada@example.org"}},
        key=key,
    )
    first = await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=admin)
    assert (first.status, first.body) == (200, {"destroyed": 1})
    again = await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=admin)
    assert (again.status, again.body) == (200, {"destroyed": 0})
    request = await api.engine.request(made.body["id"])
    with pytest.raises(Exception, match="was erased"):
        await request.payload()
    assert (await api.call("GET", made.headers["Location"], key=key)).body["status"] == "completed"


async def test_another_tenants_person_stays(api):
    key, theirs = await api.key("submit", "read"), await api.key(tenant="acme")
    made = await api.call(
        "POST",
        "/v1/requests",
        {"flow": "shop.note", "payload": {"text": "hi", "to": "ada@example.org"}},
        key=key,
    )
    answer = await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=theirs)
    assert (answer.status, answer.body) == (200, {"destroyed": 0})
    assert (await (await api.engine.request(made.body["id"])).payload()).to == "ada@example.org"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"subject":""}', 422),
        (b'{"subject":7}', 422),
        (b"{}", 422),
        (b'{"subject":"' + b"x" * 10_001 + b'"}', 422),
        (b'{"subject":"\\ud800"}', 400),
        (b'{"subject":"x","tenant":"acme"}', 422),
    ],
    ids=["empty", "number", "missing", "long", "half-a-character", "tenant"],
)
async def test_a_bad_subject_is_reported_and_not_repeated(api_here, raw, status):
    answer = await api_here.call("POST", "/v1/erase", raw=raw, key=await api_here.key())
    assert answer.status == status
    assert "xxxx" not in answer.text


async def test_erasing_takes_the_scope_admin(api_here):
    key = await api_here.key("read", "submit", "execute", "operate")
    assert (await api_here.call("POST", "/v1/erase", {"subject": "ada"}, key=key)).status == 403
