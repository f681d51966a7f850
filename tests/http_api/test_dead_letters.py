"""/v1/dead-letters and /v1/unknown: what failed for good, what is unknown; looked at and decided
about.
"""

from __future__ import annotations

from tests.http_api.served import Served

ABSENT = "0190b6f2-7c1a-7000-8000-000000000000"


async def ended(api: Served, text: str, tenant: str = "default", **more: object) -> str:
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
    ids = [await ended(api, "refuse", key=f"k-{n}") for n in range(3)][::-1]
    await ended(api, "hello")
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
    assert (failure["reason"], failure["attemptCount"]) == ("said_no", 1)
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


async def test_an_empty_list_says_which_reasons_there_are(api):
    """The group of an alert, a typo or a flow without dead letters gave an empty list."""
    key = await api.key("read")
    for _ in range(2):
        await ended(api, "refuse")
    others = [{"flow": "shop.note", "reason": "said_no", "count": 2}]
    for path in (
        "/v1/dead-letters?reason=other",
        "/v1/dead-letters?flow=shop.nope",
        "/v1/requests?reason=other&status=failed",
    ):
        body = (await api.call("GET", path, key=key)).body
        assert body == {"items": [], "next": None, "others": others}, path
    for path in (
        "/v1/dead-letters?reason=said_no",
        "/v1/requests?reason=other&status=completed",
        "/v1/requests?status=unknown",
    ):
        assert "others" not in (await api.call("GET", path, key=key)).body, path
    assert (await api.call("GET", "/v1/dead-letters?reason=x", key=await api.key(tenant="b"))).body[
        "items"
    ] == []


async def test_one_is_redriven_and_one_is_removed(api):
    key = await api.key("read", "operate")
    first, second = await ended(api, "refuse"), await ended(api, "refuse")
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


async def test_a_request_about_an_erased_person_is_not_redriven(api):
    key = await api.key()
    gone = await ended(api, "refuse", payload={"text": "refuse", "to": "ada@example.org"})
    await api.call("POST", "/v1/erase", {"subject": "ada@example.org"}, key=key)
    refused = await api.call("POST", f"/v1/requests/{gone}/redrive", {}, key=key)
    assert (refused.status, refused.body["code"], refused.body["requestId"]) == (
        409,
        "subject_erased",
        gone,
    )
    assert "was erased" in refused.body["detail"]


async def test_bad_cursors_and_names_are_refused_with_a_text(api_here):
    key = await api_here.key()
    for path in ("/v1/dead-letters?cursor=zzz", "/v1/unknown?cursor=zzz"):
        assert (await api_here.call("GET", path, key=key)).body["code"] == "bad_cursor"
    for path in ("/v1/dead-letters?limit=201", "/v1/unknown?limit=0", "/v1/unknown?colour=red"):
        assert (await api_here.call("GET", path, key=key)).status == 422
    for place in (ABSENT, "x", f"{ABSENT}?flow=shop.nothing"):
        assert (await api_here.call("GET", f"/v1/dead-letters/{place}", key=key)).status == 404
        assert (await api_here.call("DELETE", f"/v1/dead-letters/{place}", key=key)).status == 404


async def test_another_tenant_neither_sees_nor_decides(api):
    theirs = await api.key(tenant="acme")
    dead, unknown = await ended(api, "refuse"), await ended(api, "unknown")
    here = f"/v1/dead-letters/{dead}"
    assert (await api.call("GET", "/v1/dead-letters", key=theirs)).body["items"] == []
    assert (await api.call("GET", "/v1/unknown", key=theirs)).body["items"] == []
    for method, path in (("GET", here), ("DELETE", here)):
        assert (
            await api.call(method, path, {} if method == "POST" else None, key=theirs)
        ).status == 404
    assert (await api.engine.get(dead)).state.status == "failed"
    assert (await api.engine.get(unknown)).state.status == "unknown"


async def test_deciding_takes_the_scope_operate(api_here):
    key = await api_here.key("read", "submit", "execute")
    here = f"/v1/dead-letters/{ABSENT}"
    for method, path in (("DELETE", here),):
        assert (
            await api_here.call(method, path, {} if method == "POST" else None, key=key)
        ).status == 403
    for path in ("/v1/dead-letters", here, "/v1/unknown"):
        assert (await api_here.call("GET", path, key=await api_here.key("operate"))).status == 403


async def test_an_unknown_outcome_is_listed_with_age_and_reason_until_a_person_resolves_it(
    api,
):
    key = await api.key("read", "operate")
    ids = [await ended(api, "unknown", key=f"d-{n}") for n in range(2)][::-1]
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
