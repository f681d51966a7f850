"""/v1/dead-letters and /v1/unknown: what failed for good, what nobody knows; looked at and decided
about.
"""

from __future__ import annotations

import pytest

from gesta.engine.request import Request
from gesta.errors import StoreError
from tests.http_api.served import Served

ABSENT = "0190b6f2-7c1a-7000-8000-000000000000"


async def _ended(api: Served, text: str, tenant: str = "default", **more: object) -> str:
    """A request that has come to its end, and is shown by the views."""
    key = await api.key("submit", "read", tenant=tenant)
    body = {"flow": "shop.note", "payload": {"text": text}, **more}
    made = await api.call("POST", "/v1/requests?wait=20s", body, key=key)
    request_id: str = made.body["id"]
    path = f"/v1/requests?limit=1&status={made.body['request']['status']}"
    while [one["id"] for one in (await api.call("GET", path, key=key)).body["items"]] != [
        request_id
    ]:
        pass
    return request_id


async def test_dead_letters_are_listed_in_pages_and_shown(api):
    key = await api.key("read")
    ids = [await _ended(api, "refuse", key=f"k-{n}") for n in range(3)][::-1]
    await _ended(api, "hello")
    first = (await api.call("GET", "/v1/dead-letters?limit=2", key=key)).body
    assert [one["id"] for one in first["items"]] == ids[:2]
    rest = (await api.call("GET", f"/v1/dead-letters?limit=2&cursor={first['next']}", key=key)).body
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (
        ids[2:],
        None,
    )
    shown = await api.call("GET", f"/v1/dead-letters/{ids[0]}", key=key)
    assert shown.body == first["items"][0]
    failure = shown.body["failure"]
    assert (failure["reason"], failure["attempts"]) == ("said_no", 1)
    assert failure["at"] < failure["keptUntil"]
    for query, count in (
        ("reason=said_no", 3),
        ("reason=other", 0),
        ("flow=shop.note", 3),
        ("flow=notification.sms", 0),
    ):
        assert (
            len((await api.call("GET", f"/v1/dead-letters?{query}", key=key)).body["items"])
            == count
        )


async def test_one_is_redriven_and_one_is_removed(api):
    key = await api.key("read", "operate")
    first, second = await _ended(api, "refuse"), await _ended(api, "refuse")
    redriven = await api.call("POST", f"/v1/requests/{first}/redrive", {}, key=key)
    assert (redriven.status, redriven.body) == (
        200,
        {"id": first, "flow": "shop.note", "status": "queued"},
    )
    again = await api.call("GET", f"/v1/requests/{first}?wait=20s", key=key)
    assert again.body["intent"] == 2
    here = f"/v1/dead-letters/{second}"
    assert (await api.call("DELETE", here, key=key)).status == 204
    assert (await api.call("DELETE", here, key=key)).status == 404
    assert (await api.call("GET", here, key=key)).status == 404
    history = (await api.call("GET", f"/v1/requests/{second}/events", key=key)).body["items"]
    assert history[-1]["actor"].startswith("key:")


async def test_what_is_about_somebody_erased_is_refused_and_holds_back_no_other(api):
    key = await api.key()
    gone = await _ended(api, "refuse", payload={"text": "refuse", "to": "ada@example.org"})
    stays = await _ended(api, "refuse", payload={"text": "refuse", "to": "bo@example.org"})
    await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=key)
    refused = await api.call("POST", f"/v1/requests/{gone}/redrive", {}, key=key)
    assert (refused.status, refused.body["code"], refused.body["requestId"]) == (
        409,
        "subject_erased",
        gone,
    )
    assert "was erased" in refused.body["detail"]
    many = await api.call("POST", "/v1/dead-letters/redrive", {}, key=key)
    assert [(one["id"], one["verdict"]) for one in many.body["items"]] == [
        (stays, "redriven"),
        (gone, "refused"),
    ]


async def test_many_are_redriven_by_filter_with_a_verdict_each(api):
    key = await api.key("read", "operate")
    ids = [await _ended(api, "refuse") for _ in range(4)][::-1]
    none = await api.call("POST", "/v1/dead-letters/redrive", {"reason": "other"}, key=key)
    assert none.body == {"redriven": 0, "refused": 0, "items": [], "next": None}
    some = await api.call(
        "POST",
        "/v1/dead-letters/redrive",
        {"flow": "shop.note", "reason": "said_no", "limit": 3},
        key=key,
    )
    assert (some.body["redriven"], some.body["refused"], some.body["next"]) == (3, 0, ids[2])
    assert some.body["items"] == [
        {"id": one, "flow": "shop.note", "verdict": "redriven"} for one in ids[:3]
    ]
    rest = await api.call(
        "POST", "/v1/dead-letters/redrive", {"cursor": some.body["next"]}, key=key
    )
    assert ([one["id"] for one in rest.body["items"]], rest.body["next"]) == (ids[3:], None)


async def test_one_that_is_refused_holds_back_no_other(api_here):
    """Redriven by somebody else while the views still show it as failed."""
    key = await api_here.key("operate")
    ids = [await _ended(api_here, "refuse") for _ in range(2)][::-1]
    page = api_here.engine.admin.dead_letter_page
    letters = await page()
    await api_here.engine.admin.request(letters.items[0]).purge()
    await api_here.engine.admin.request(letters.items[0]).redrive()
    answer = await _redrive_what_was_seen(api_here, letters, key)
    assert [(one["id"], one["verdict"]) for one in answer.body["items"]] == [
        (ids[0], "refused"),
        (ids[1], "redriven"),
    ]
    assert answer.body["items"][0]["problem"]["requestId"] == ids[0]
    assert (answer.body["redriven"], answer.body["refused"]) == (1, 1)


async def _redrive_what_was_seen(api: Served, letters: object, key: str):
    from gesta.admin.admin import Admin

    async def seen(*_: object, **__: object) -> object:
        return letters

    before = Admin.dead_letter_page
    Admin.dead_letter_page = seen  # type: ignore[assignment,method-assign]
    try:
        return await api.call("POST", "/v1/dead-letters/redrive", {}, key=key)
    finally:
        Admin.dead_letter_page = before  # type: ignore[method-assign]


async def test_a_store_that_fails_in_the_middle_tells_what_was_done(api_here, monkeypatch):
    key = await api_here.key("operate")
    ids = [await _ended(api_here, "refuse") for _ in range(3)][::-1]
    redrive = Request.redrive

    async def failing(self: Request, **options: object) -> object:
        if self.id == ids[2]:
            raise StoreError("/secret/path of the disk is gone")
        return await redrive(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Request, "redrive", failing)
    answer = await api_here.call("POST", "/v1/dead-letters/redrive", {}, key=key)
    assert (answer.status, answer.body["code"]) == (503, "store_unavailable")
    assert [one["id"] for one in answer.body["results"]] == ids[:2]
    assert "/secret/path" not in answer.text


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"limit": 1_001}, {"limit"}),
        ({"limit": 0}, {"limit"}),
        ({"ttlSeconds": -1}, {"ttlSeconds"}),
        ({"again": "yes", "colour": 1}, {"again", "colour"}),
    ],
)
async def test_a_bad_bulk_redrive_is_told(api_here, body, faults):
    answer = await api_here.call(
        "POST", "/v1/dead-letters/redrive", body, key=await api_here.key("operate")
    )
    assert (answer.status, set(answer.body["errors"])) == (422, faults)


async def test_bad_cursors_and_names_are_told(api_here):
    key = await api_here.key()
    for path in ("/v1/dead-letters?cursor=zzz", "/v1/unknown?cursor=zzz"):
        assert (await api_here.call("GET", path, key=key)).body["code"] == "bad_cursor"
    assert (
        await api_here.call("POST", "/v1/dead-letters/redrive", {"cursor": "zzz"}, key=key)
    ).body["code"] == "bad_cursor"
    for path in ("/v1/dead-letters?limit=201", "/v1/unknown?limit=0", "/v1/unknown?colour=red"):
        assert (await api_here.call("GET", path, key=key)).status == 422
    for place in (f"shop.note/{ABSENT}", "shop.note/x", f"shop.nothing/{ABSENT}"):
        assert (await api_here.call("GET", f"/v1/dead-letters/{place}", key=key)).status == 404
        assert (await api_here.call("DELETE", f"/v1/dead-letters/{place}", key=key)).status == 404
        assert (
            await api_here.call("POST", f"/v1/dead-letters/{place}/redrive", {}, key=key)
        ).status == 404


async def test_another_tenant_neither_sees_nor_decides(api):
    theirs = await api.key(tenant="acme")
    dead, doubt = await _ended(api, "refuse"), await _ended(api, "doubt")
    here = f"/v1/dead-letters/{dead}"
    assert (await api.call("GET", "/v1/dead-letters", key=theirs)).body["items"] == []
    assert (await api.call("GET", "/v1/unknown", key=theirs)).body["items"] == []
    assert (await api.call("POST", "/v1/dead-letters/redrive", {}, key=theirs)).body["items"] == []
    for method, path in (("GET", here), ("DELETE", here)):
        assert (
            await api.call(method, path, {} if method == "POST" else None, key=theirs)
        ).status == 404
    assert (await api.engine.get(dead)).state.status == "failed"
    assert (await api.engine.get(doubt)).state.status == "unknown"


async def test_deciding_takes_the_scope_operate(api_here):
    key = await api_here.key("read", "submit", "execute")
    here = f"/v1/dead-letters/{ABSENT}"
    for method, path in (
        ("POST", "/v1/dead-letters/redrive"),
        ("DELETE", here),
    ):
        assert (
            await api_here.call(method, path, {} if method == "POST" else None, key=key)
        ).status == 403
    for path in ("/v1/dead-letters", here, "/v1/unknown"):
        assert (await api_here.call("GET", path, key=await api_here.key("operate"))).status == 403


async def test_what_waits_for_a_person_is_listed_with_age_and_reason_until_it_is_resolved(api):
    key = await api.key("read", "operate")
    ids = [await _ended(api, "doubt", key=f"d-{n}") for n in range(2)][::-1]
    first = (await api.call("GET", "/v1/unknown?limit=1", key=key)).body
    (one,) = first["items"]
    assert (one["id"], one["flow"], one["key"], one["reason"], one["attemptCount"]) == (
        ids[0],
        "shop.note",
        "d-1",
        "no_answer",
        1,
    )
    assert one["ageSeconds"] >= 0
    rest = (await api.call("GET", f"/v1/unknown?cursor={first['next']}", key=key)).body
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (ids[1:], None)
    word = {"outcome": "succeeded", "evidence": "seen in the receiver's log"}
    assert (await api.call("POST", f"/v1/requests/{ids[0]}/resolve", word, key=key)).status == 200
    while len((await api.call("GET", "/v1/unknown", key=key)).body["items"]) == 2:
        pass
    assert [
        one["id"] for one in (await api.call("GET", "/v1/unknown", key=key)).body["items"]
    ] == ids[1:]
