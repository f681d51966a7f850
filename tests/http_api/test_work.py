"""/v1/flows/{flow}/work and what follows it: work of flows that others execute, by those others,
over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gesta import Payload, Personal, RetryPolicy, external
from gesta.http_api.reading import CallerGone
from gesta.http_api.route import Call
from gesta.http_api.work import Take, take_work
from gesta.worker.external.long_poll import WAITING_IN_QUEUE_MAX
from tests.http_api.served import Reply, Served, note, served

RETRY = RetryPolicy(attempts=3, base_seconds=0.01, cap_seconds=0.01)
WORK = "/v1/flows/warehouse.pick/work"


class Parcel(Payload, frozen=True):
    to: Personal[str]


def flows():
    return [
        external("warehouse.pick", on_unknown="manual", lease_seconds=60, retry=RETRY),
        external(
            "warehouse.post", payload=Parcel, lease_seconds=1, on_unknown="resend", retry=RETRY
        ),
        note,
    ]


@pytest.fixture
async def house(store_url) -> AsyncIterator[Served]:
    async with served(store_url, flows()) as one:
        yield one


@pytest.fixture
async def house_here(tmp_path) -> AsyncIterator[Served]:
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", flows()) as one:
        yield one


async def submit(
    house: Served, key: str, payload: object = None, name: str = "warehouse.pick"
) -> str:
    made = await house.call(
        "POST", "/v1/requests", {"flow": name, "payload": payload or {"sku": "A-7"}}, key=key
    )
    assert made.status == 202, made.text
    return str(made.body["id"])


async def leased(house: Served, key: str, path: str = WORK, **body: object) -> Reply:
    return await house.call("POST", path, {"waitSeconds": 20, **body}, key=key)


def here(item: dict[str, str], what: str) -> str:
    return f"/v1/requests/{item['id']}/{what}"


async def report(house: Served, key: str, item: dict[str, str], **fields: object) -> Reply:
    return await house.call(
        "POST", here(item, "outcome"), {"token": item["token"], "attempts": 1, **fields}, key=key
    )


async def test_work_goes_out_is_extended_seen_again_reported_and_on_record(house):
    key, reader = (
        await house.key("execute", tenant="acme"),
        await house.key("submit", "read", tenant="acme"),
    )
    request_id = await submit(house, reader, {"sku": "B-1", "lines": [1, 2]})
    (item,) = (await leased(house, key)).body["items"]
    assert (item["id"], item["attempt"], item["payload"]) == (
        request_id,
        1,
        {"sku": "B-1", "lines": [1, 2]},
    )
    assert item["key"] == f"acme:{request_id}:send:1"
    again = await house.call(
        "GET", here(item, "work"), key=key, headers={"Gesta-Lease": item["token"]}
    )
    assert (again.status, again.body["payload"], again.body["token"]) == (
        200,
        item["payload"],
        item["token"],
    )
    longer = await house.call(
        "POST", here(item, "lease"), {"token": item["token"], "leaseSeconds": 120}, key=key
    )
    assert (longer.status, longer.body["cancelRequested"]) == (200, False)
    assert longer.body["leaseUntil"] > item["leaseUntil"]
    sent = {
        "type": "recordSent",
        "id": request_id,
        "tenant": "acme",
        "providerMessageId": "box-9",
        "targetId": "gate-4",
        "correlationId": "run-5",
        "causationId": "shift-2",
        "actor": {"userId": "ada", "roles": ["picker"]},
    }
    done = await report(house, key, item, **sent)
    expected = {
        "flow": "warehouse.pick",
        "id": request_id,
        "status": "completed",
        "attemptCount": 1,
        "reason": None,
        "nextAttemptAt": None,
    }
    assert (done.status, done.body) == (200, expected)
    assert (await report(house, key, item, **sent)).body == expected
    shown = await house.call("GET", f"/v1/requests/{request_id}?wait=20s", key=reader)
    assert (shown.body["status"], shown.body["providerId"]) == ("completed", "box-9")
    events = (await house.call("GET", f"/v1/requests/{request_id}/events", key=reader)).body[
        "items"
    ]
    assert [(one["type"], one["actor"]) for one in events[1:]] == [
        ("warehouse.pick.Completed.v1", "ada")
    ]


async def test_a_retryable_failure_comes_back_and_a_final_one_does_not(house):
    key = await house.key()
    request_id = await submit(house, key)
    (first,) = (await leased(house, key)).body["items"]
    failed = await report(
        house,
        key,
        first,
        type="recordFailed",
        reason="busy",
        retryable=True,
        lastError="no hand free",
    )
    assert (failed.status, failed.body["status"], failed.body["reason"]) == (200, "queued", "busy")
    (second,) = (await leased(house, key)).body["items"]
    assert (second["id"], second["attempt"], second["key"]) == (request_id, 2, first["key"])
    final = await report(house, key, second, type="recordFailed", reason="no_stock", attempts=2)
    assert (final.status, final.body["status"], final.body["attemptCount"]) == (200, "failed", 2)
    events = (await house.call("GET", here(first, "events"), key=key)).body["items"]
    assert events[-1]["actor"].startswith("key:")


@pytest.mark.slow
async def test_without_a_report_the_work_goes_to_another_and_the_late_one_hears_what_counts(house):
    key = await house.key()
    await submit(house, key, {"to": "Ada"}, "warehouse.post")
    path = "/v1/flows/warehouse.post/work"
    (late,) = (await leased(house, key, path)).body["items"]
    assert late["payload"] == {"to": "Ada"}
    (present,) = (await leased(house, key, path, leaseSeconds=60)).body["items"]
    assert (present["id"], present["attempt"], present["key"]) == (late["id"], 2, late["key"])
    lost = await report(house, key, late, type="recordFailed", reason="nobody_home")
    assert (lost.status, lost.body["code"]) == (409, "lease_lost")
    assert lost.body["now"] == {"status": "unknown", "reason": "no_report", "attemptCount": 1}
    assert (
        await house.call("POST", here(late, "lease"), {"token": late["token"]}, key=key)
    ).status == 409
    assert (
        await house.call("GET", here(late, "work"), key=key, headers={"Gesta-Lease": late["token"]})
    ).status == 409
    assert (await report(house, key, late, type="recordSent")).body["status"] == "completed"
    assert (await report(house, key, present, type="recordSent", attempts=2)).body[
        "status"
    ] == "completed"


async def test_another_tenants_work_is_not_there(house):
    mine, theirs = await house.key(), await house.key(tenant="acme")
    await submit(house, mine)
    assert (await leased(house, theirs, waitSeconds=0)).body == {"items": [], "next": None}
    (item,) = (await leased(house, mine)).body["items"]
    for method, what, body in [
        ("GET", "work", None),
        ("POST", "lease", {"token": item["token"]}),
        ("POST", "outcome", {"token": item["token"], "attempts": 1, "type": "recordSent"}),
    ]:
        answer = await house.call(
            method, here(item, what), body, key=theirs, headers={"Gesta-Lease": item["token"]}
        )
        assert (answer.status, answer.body["code"]) == (404, "not_found")
    assert (await report(house, mine, item, type="recordSent")).status == 200


@pytest.mark.parametrize("scope", ["read", "submit", "operate"])
async def test_only_a_key_with_the_scope_execute_gets_work(house_here, scope):
    key = await house_here.key(scope)
    assert (await leased(house_here, key)).status == 403
    assert (await house_here.call("POST", WORK, {})).status == 401


@pytest.mark.parametrize(
    ("path", "body", "status", "fields"),
    [
        (
            WORK,
            {"limit": 0, "waitSeconds": 61, "leaseSeconds": 0, "more": 1},
            422,
            {"limit", "waitSeconds", "leaseSeconds", "more"},
        ),
        ("/v1/flows/warehouse.nothing/work", {}, 404, set()),
        ("/v1/flows/shop.note/work", {}, 409, set()),
    ],
)
async def test_an_invalid_lease_request_gets_every_error(house_here, path, body, status, fields):
    answer = await house_here.call("POST", path, body, key=await house_here.key("execute"))
    assert (answer.status, set(answer.body.get("errors", {}))) == (status, fields)


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({}, {"type"}),
        ({"type": "recordDone"}, {"type"}),
        (
            {"type": "recordSent", "attempts": 0, "actor": {"roles": []}, "x": 1},
            {"attempts", "actor", "x"},
        ),
        ({"type": "recordSent", "reason": "no", "retryable": True}, {"reason", "retryable"}),
        ({"type": "recordFailed", "providerMessageId": "box"}, {"reason", "providerMessageId"}),
        (
            {"type": "recordFailed", "reason": "", "retryAfterSec": -1, "lastError": 7},
            {"reason", "retryAfterSec", "lastError"},
        ),
        ({"type": "recordUnknown", "reason": "x", "retryable": True}, {"retryable"}),
        ({"type": "recordSent", "id": "another", "tenant": "acme"}, {"id", "tenant"}),
        ({"type": "recordSent", "token": "1.2.3"}, {"token"}),
        ({"type": "recordSent", "actor": {"userId": ""}}, {"actor"}),
    ],
)
async def test_an_invalid_report_gets_every_error_and_changes_nothing(house_here, fields, errors):
    key = await house_here.key()
    request_id = await submit(house_here, key)
    (item,) = (await leased(house_here, key)).body["items"]
    answer = await report(house_here, key, item, **fields)
    assert (answer.status, set(answer.body["errors"])) == (422, errors)
    assert (await house_here.engine.get(request_id)).state.version == 1


async def test_the_token_of_a_lease_is_asked_for(house_here):
    key = await house_here.key()
    await submit(house_here, key)
    (item,) = (await leased(house_here, key)).body["items"]
    answer = await house_here.call("GET", here(item, "work"), key=key)
    assert (answer.status, set(answer.body["errors"])) == (422, {"Gesta-Lease"})


async def test_erased_work_is_gone(house_here):
    key = await house_here.key()
    await submit(house_here, key, {"to": "Ada"}, "warehouse.post")
    (item,) = (
        await leased(house_here, key, "/v1/flows/warehouse.post/work", leaseSeconds=60)
    ).body["items"]
    await house_here.engine.erase("Ada")
    gone = await house_here.call(
        "GET", here(item, "work"), key=key, headers={"Gesta-Lease": item["token"]}
    )
    assert (gone.status, gone.body["code"]) == (410, "subject_erased")


async def test_a_cancel_is_reported_with_the_next_extension(house_here):
    key = await house_here.key()
    await submit(house_here, key)
    (item,) = (await leased(house_here, key)).body["items"]
    assert (await house_here.call("POST", here(item, "cancel"), key=key)).status == 200
    longer = await house_here.call("POST", here(item, "lease"), {"token": item["token"]}, key=key)
    assert longer.body["cancelRequested"] is True
    stopped = await report(
        house_here, key, item, type="recordFailed", reason="stopped", retryable=True
    )
    assert stopped.body["status"] == "cancelled"


async def waiter(house: Served, key: str) -> asyncio.StreamWriter:
    """A caller who has asked for work and waits."""
    host, _, port = house.address.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = b'{"waitSeconds": 60}'
    head = (
        f"POST {WORK} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type:"
        f" application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


async def test_a_caller_that_leaves_while_waiting_gets_no_work_and_the_next_one_gets_it(house_here):
    """Without an attempt being spent."""
    key = await house_here.key()
    waiting = house_here.engine.external._waiting
    gone = [await waiter(house_here, key) for _ in range(3)]
    while waiting.count < 3:
        await asyncio.sleep(0.01)
    for writer in gone:
        writer.close()
    while waiting.count:
        await asyncio.sleep(0.01)
    request_id = await submit(house_here, key)
    (item,) = (await leased(house_here, key)).body["items"]
    assert (item["id"], item["attempt"]) == (request_id, 1)


async def test_a_caller_that_leaves_as_work_is_leased_gets_no_work_and_the_next_one_gets_it(
    house_here,
):
    """The line is closed after the take has come to its end and before the first byte of the
    answer.
    """
    key = await house_here.key()
    request_id, done = await submit(house_here, key), []

    async def while_there(work):
        done.append(await work)
        if len(done) > 1:
            raise CallerGone
        return done[0]

    grant = await house_here.engine.pipeline.keys.check(key)
    call = Call(
        house_here.web,
        house_here.engine.pipeline,
        grant,
        {"flow": "warehouse.pick"},
        None,
        Take(wait_seconds=20),
        lambda _: None,
        "",
        b"",
        while_there,
        "",
        "http",
    )
    with pytest.raises(CallerGone):
        await take_work(call)
    assert [item.id for item in done[0]] == [request_id]
    (item,) = (await leased(house_here, key)).body["items"]
    assert (item["id"], item["attempt"]) == (request_id, 1)


async def test_a_key_that_is_revoked_while_it_waits_gets_no_work_and_the_next_one_all(house_here):
    """Without an attempt being spent."""
    admin = await house_here.key()
    made = await house_here.call(
        "POST", "/v1/keys", {"name": "x", "scopes": ["execute"]}, key=admin
    )
    waits = asyncio.create_task(leased(house_here, made.body["key"]))
    while not house_here.engine.external._waiting.count:
        await asyncio.sleep(0.01)
    await house_here.call("DELETE", f"/v1/keys/{made.body['id']}", key=admin)
    request_id = await submit(house_here, admin)
    refused = await waits
    assert (refused.status, refused.body["code"]) == (401, "key_refused")
    (item,) = (await leased(house_here, admin)).body["items"]
    assert (item["id"], item["attempt"]) == (request_id, 1)


async def test_too_many_waiting_callers_get_retry_after(house_here, monkeypatch):
    key = await house_here.key()
    waiting = house_here.engine.external._waiting
    monkeypatch.setattr("gesta.worker.external.long_poll.WAITING_IN_QUEUE_MAX", 1)
    assert WAITING_IN_QUEUE_MAX > 1
    writer = await waiter(house_here, key)
    while not waiting.count:
        await asyncio.sleep(0.01)
    refused = await leased(house_here, key)
    assert (refused.status, refused.body["code"]) == (503, "overloaded")
    assert (await leased(house_here, key, waitSeconds=0)).body == {"items": [], "next": None}
    writer.close()
