"""/v1/requests: submit, see, list, and every way to do it wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gesta import external
from gesta.client import Client
from gesta.engine.environment import wire_really
from gesta.errors import StoreError
from gesta.flows import sms, webhook
from gesta.runtime.clock import turn
from tests.http_api.served import served
from tests.http_api.test_dead_letters import ended
from tests.world import Faulty


async def test_a_request_is_accepted_with_its_place_and_done(api):
    key = await api.key("submit", "read")
    made = await api.submit(key, key="order-7")
    assert made.status == 202
    assert made.body["verdict"] == "created"
    assert made.headers["Location"] == f"/v1/requests/{made.body['id']}"
    shown = await api.call("GET", made.headers["Location"] + "?wait=20s", key=key)
    assert (shown.status, shown.body["status"], shown.body["key"]) == (200, "completed", "order-7")
    assert shown.body["payload"] == {"text": "hello", "to": ""}


async def test_a_call_may_wait_for_the_outcome_at_once(api):
    key = await api.key("submit", "read")
    body = {"flow": "shop.note", "payload": {"text": "refuse"}}
    made = await api.call("POST", "/v1/requests?wait=20s", body, key=key)
    assert made.status == 202
    assert (made.body["request"]["status"], made.body["request"]["reason"]) == ("failed", "said_no")


async def test_the_same_key_answers_duplicate_and_other_content_conflict(api):
    key = await api.key("submit")
    first = await api.submit(key, key="order-7")
    again = await api.submit(key, key="order-7")
    assert (again.status, again.body["verdict"], again.body["id"]) == (
        200,
        "duplicate",
        first.body["id"],
    )
    other = await api.submit(key, "other", key="order-7")
    assert (other.status, other.body["code"], other.body["requestId"]) == (
        409,
        "conflict",
        first.body["id"],
    )  # S1-30
    assert other.headers["Content-Type"] == "application/problem+json"


async def test_the_header_is_the_key(api):
    key = await api.key("submit")
    body = {"flow": "shop.note", "payload": {"text": "hello"}}
    first = await api.call(
        "POST", "/v1/requests", body, key=key, headers={"Idempotency-Key": "k-1"}
    )
    again = await api.call("POST", "/v1/requests", {**body, "key": "k-1"}, key=key)
    assert (again.body["verdict"], again.body["id"]) == ("duplicate", first.body["id"])  # S1-30
    both = await api.call(
        "POST", "/v1/requests", {**body, "key": "k-2"}, key=key, headers={"Idempotency-Key": "k-1"}
    )
    assert (both.status, list(both.body["errors"])) == (422, ["key"])


async def test_the_same_key_of_two_tenants_is_two_requests(api):
    mine, theirs = await api.key("submit"), await api.key("submit", tenant="acme")
    first, second = await api.submit(mine, key="order-7"), await api.submit(theirs, key="order-7")
    assert (first.status, second.status) == (202, 202)
    assert first.body["id"] != second.body["id"]


async def test_all_errors_are_reported_together_and_nothing_is_stored(api):
    key = await api.key("submit", "read")
    body = {
        "flow": "shop.note",
        "payload": {"txt": 1},
        "priority": 11,
        "ttlSeconds": -1,
        "colour": "red",
    }
    bad = await api.call("POST", "/v1/requests", body, key=key)
    assert bad.status == 422
    assert set(bad.body["errors"]) == {
        "priority",
        "ttlSeconds",
        "colour",
        "payload.txt",
        "payload.text",
    }
    payload = await api.call(
        "POST", "/v1/requests", {"flow": "shop.note", "payload": {"txt": 1}, "key": ""}, key=key
    )
    assert set(payload.body["errors"]) == {"payload.txt", "payload.text", "key"}
    unknown = await api.call(
        "POST", "/v1/requests", {"flow": "shop.nothing", "payload": {}}, key=key
    )
    assert (unknown.status, set(unknown.body["errors"])) == (422, {"flow"})
    mixed = {
        "flow": "shop.nothing",
        "payload": {},
        "key": "",
        "correlationId": "x" * 513,
        "priority": 11,
    }
    all_of_it = await api.call("POST", "/v1/requests", mixed, key=key)
    assert set(all_of_it.body["errors"]) == {"flow", "key", "correlationId", "priority"}
    assert (await api.call("GET", "/v1/requests", key=key)).body == {"items": [], "next": None}


@pytest.mark.parametrize(
    "option",
    [{"priority": 11}, {"correlationId": "x" * 513}, {"colour": "red"}, {"ttlSeconds": "soon"}],
    ids=["out-of-range", "too-long", "unknown", "no-number"],
)
async def test_errors_of_the_flow_are_reported_with_errors_beside_the_payload(api_here, option):
    key = await api_here.key("submit")
    body = {"flow": "notification.sms", "payload": {"to": "no number", "body": "hello"}, **option}
    wrong = {"payload.to", *option}
    single = await api_here.call("POST", "/v1/requests", body, key=key)
    assert (single.status, set(single.body["errors"])) == (422, wrong)
    batch = await api_here.call("POST", "/v1/requests/batch", {"requests": [body]}, key=key)
    assert set(batch.body["items"][0]["problem"]["errors"]) == wrong
    assert await api_here.engine.find() == []


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "malformed_json"),
        (b"\xff\xfe", 400, "malformed_json"),
        (b"[]", 422, "invalid"),
        (b"", 400, "malformed_json"),
        (
            # Python 3.12 and newer read 5,000.
            b'{"flow":"shop.note","payload":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            400,
            "too_deep",
        ),
        (b'{"flow":"shop.note","payload":{"text":"' + b"x" * 400_000 + b'"}}', 413, "too_large"),
        (b'{"flow":"shop.note","payload":{"text":"' + b"x" * 270_000 + b'"}}', 422, "invalid"),
    ],
    ids=["half", "no-utf8", "list", "empty", "deep", "body-too-large", "payload-too-large"],
)
async def test_a_bad_body_gets_its_status_and_code(api_here, raw, status, code):
    key = await api_here.key("submit")
    answer = await api_here.call("POST", "/v1/requests", raw=raw, key=key)
    assert (answer.status, answer.body["code"]) == (status, code)
    assert await api_here.engine.find() == []


async def test_an_answer_is_no_multiple_of_a_body_full_of_unknown_names(api_here):
    key, strange = (
        await api_here.key("submit"),
        {f"strange-{number}": 1 for number in range(10_000)},
    )
    for body in ({**strange, "priority": 11}, {"flow": "shop.note", "payload": strange}):
        single = await api_here.call("POST", "/v1/requests", body, key=key)
        assert single.status == 422
        assert {"priority", "payload.text"} & set(single.body["errors"])
        batch = await api_here.call("POST", "/v1/requests/batch", {"requests": [body]}, key=key)
        assert batch.body["items"][0]["verdict"] == "invalid"
        assert max(len(single.text), len(batch.text)) < 20_000


@pytest.mark.parametrize("depth", [101, 300, 500, 900, 950])
@pytest.mark.parametrize("flow", ["notification.webhook", "notification.sms", "warehouse.pick"])
async def test_a_payload_that_is_nested_too_deeply_is_refused_wherever_it_is_found_out(
    tmp_path, flow, depth
):
    deep = b'{"x":' + b"[" * depth + b"]" * depth + b"}"
    body = {
        "notification.webhook": b'{"type":"a","data":%s}',
        "notification.sms": b'{"to":"+4915155501234","template":"x","data":%s}',
        "warehouse.pick": b"%s",
    }[flow] % deep
    async with served(
        f"sqlite:///{tmp_path / 'gesta.db'}",
        [webhook.flow(), sms.flow(), external("warehouse.pick", on_unknown="manual")],
    ) as api:
        key = await api.key("submit")
        one = b'{"flow":"%s","payload":%s}' % (flow.encode(), body)
        answer = await api.call("POST", "/v1/requests", raw=one, key=key)
        assert answer.status in (400, 422), answer.body
        assert "nested too deeply" in answer.body["detail"]
        many = await api.call("POST", "/v1/requests/batch", raw=b'{"requests":[%s]}' % one, key=key)
        assert "nested too deeply" in many.text
        assert many.status == 400 or many.body["items"][0]["verdict"] == "invalid"
        assert await api.engine.find() == []


async def test_a_payload_with_much_beside_each_other_is_not_nested(api_here):
    data = {"rows": [{"text": "[" * 200, "cells": [[]] * 300}] * 20}
    answer = await api_here.call(
        "POST",
        "/v1/requests",
        {"flow": "notification.webhook", "payload": {"type": "a", "data": data}},
        key=await api_here.key(),
    )
    assert answer.status == 202


async def test_a_body_that_is_not_json_is_refused(api_here):
    key = await api_here.key("submit")
    answer = await api_here.call(
        "POST",
        "/v1/requests",
        raw=b"flow=shop.note",
        headers={"Content-Type": "text/plain"},
        key=key,
    )
    assert (answer.status, answer.body["code"]) == (415, "not_json")


async def test_a_batch_gets_a_verdict_each(api):
    key = await api.key("submit", "read")
    await api.submit(key, "first", key="a")
    batch = [
        {"flow": "shop.note", "payload": {"text": "first"}, "key": "a"},
        {"flow": "shop.note", "payload": {"text": "other"}, "key": "a"},
        {"flow": "shop.note", "payload": {"text": 1}},
        {"flow": "shop.note", "payload": {"text": "new"}},
        {"flow": "shop.note"},
        7,
        {"flow": "shop.note", "payload": {"text": "x" * 270_000}},
    ]
    answer = await api.call("POST", "/v1/requests/batch", {"requests": batch}, key=key)
    assert answer.status == 200
    verdicts = [one["verdict"] for one in answer.body["items"]]
    assert verdicts == [
        "duplicate",
        "conflict",
        "invalid",
        "created",
        "invalid",
        "invalid",
        "invalid",
    ]
    assert answer.body["items"][2]["problem"]["errors"] == {
        "payload.text": "expected 'str', got 'int'"
    }
    await api.call("GET", f"/v1/requests/{answer.body['items'][3]['id']}?wait=20s", key=key)
    assert len(await api.engine.find()) == 2


@pytest.mark.parametrize(
    "one",
    [
        b'{"flow":"shop.note","payload":{"text":"\xff\xfe"}}',
        b'{"flow":"shop.note","payload":{"text":1e999}}',
        b'"\xff"',
    ],
    ids=["no-utf8", "no-number", "no-utf8-at-all"],
)
async def test_an_item_that_is_no_json_is_reported_by_index_and_the_others_are_accepted(
    api_here, one
):
    raw = b'{"requests":[%s,{"flow":"shop.note","payload":{"text":"hello"}}]}' % one
    answer = await api_here.call(
        "POST", "/v1/requests/batch", raw=raw, key=await api_here.key("submit")
    )
    assert (answer.status, [result["verdict"] for result in answer.body["items"]]) == (
        200,
        ["invalid", "created"],
    )
    assert answer.body["items"][0]["problem"]["code"] == "malformed_json"


async def test_a_batch_reports_every_error_of_each_item(api_here):
    one = {"flow": "shop.note", "payload": {"txt": 1}, "priority": 11, "key": ""}
    answer = await api_here.call(
        "POST", "/v1/requests/batch", {"requests": [one]}, key=await api_here.key("submit")
    )
    assert set(answer.body["items"][0]["problem"]["errors"]) == {
        "payload.txt",
        "payload.text",
        "priority",
        "key",
    }


async def test_a_batch_has_bounds(api_here):
    key = await api_here.key("submit")
    one = {"flow": "shop.note", "payload": {"text": "x"}}
    many = await api_here.call("POST", "/v1/requests/batch", {"requests": [one] * 1_001}, key=key)
    assert (many.status, set(many.body["errors"])) == (422, {"requests"})
    keyed = await api_here.call(
        "POST", "/v1/requests/batch", {"requests": [one]}, key=key, headers={"Idempotency-Key": "k"}
    )
    assert (keyed.status, keyed.body["code"]) == (400, "key_of_a_batch")
    assert await api_here.engine.find() == []


async def test_a_page_of_requests_begins_after_the_one_before(api):
    key = await api.key("submit", "read")
    ids = [(await api.submit(key, str(number))).body["id"] for number in range(5)]
    for made in ids:
        await api.call("GET", f"/v1/requests/{made}?wait=20s", key=key)
    # A list is read from views, which may be some milliseconds behind what a single request says.
    while len(
        (await api.call("GET", "/v1/requests?status=completed", key=key)).body["items"]
    ) < len(ids):
        await turn()
    seen, cursor = [], ""
    while True:
        page = (
            await api.call("GET", f"/v1/requests?limit=2&status=completed{cursor}", key=key)
        ).body
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == ids[::-1]


async def test_a_list_can_be_narrowed_and_is_read_page_by_page(api):
    key = await api.key("submit", "read", "operate")
    refused = [await ended(api, "refuse") for _ in range(3)]
    await ended(api, "hello")
    await api.call("POST", "/v1/pauses", {}, key=key)
    held = (await api.submit(key)).body["id"]

    async def found(query: str) -> list[str]:
        seen, cursor = [], ""
        while True:
            page = (await api.call("GET", f"/v1/requests?limit=2&{query}{cursor}", key=key)).body
            seen += [one["id"] for one in page["items"]]
            if page["next"] is None:
                return seen
            cursor = f"&cursor={page['next']}"

    while held not in await found("status=queued"):
        await turn()
    assert await found("reason=said_no") == refused[::-1]
    assert await found("reason=said_no&since=2020-01-01T00:00:00Z") == refused[::-1]
    assert await found("since=2100-01-01T00:00:00Z") == await found("test=true") == []
    assert await found("until=2020-01-01T00:00:00Z") == await found("reason=other") == []
    assert len(await found("since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z")) == 5
    assert await found("held=true") == [held]


async def test_a_request_is_found_by_its_key_at_once_and_by_its_own_tenant_alone(api):
    mine, theirs = await api.key("submit", "read"), await api.key("read", tenant="acme")
    await api.submit(mine, key="order-8")
    first = (await api.submit(mine, key="order-7")).body["id"]

    async def found(query: str, key: str = mine) -> list[str]:
        page = (await api.call("GET", f"/v1/requests?{query}", key=key)).body
        assert page["next"] is None
        return [one["id"] for one in page["items"]]

    assert (
        await found("key=order-7") == await found("key=order-7&limit=1&flow=shop.note") == [first]
    )
    assert await found("key=order-7&flow=shop.letter") == await found("key=order-9") == []
    assert await found("key=order-7", theirs) == []
    await api.call("GET", f"/v1/requests/{first}?wait=20s", key=mine)
    assert await found("key=order-7&status=completed") == [first]
    assert await found("key=order-7&status=failed") == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("key=", 422, "invalid"),
        ("cursor=zzz", 400, "bad_cursor"),
        ("limit=0", 422, "invalid"),
        ("limit=many", 422, "invalid"),
        ("status=lost", 422, "invalid"),
        ("since=2h", 422, "invalid"),
        ("until=0.5", 422, "invalid"),
        ("until=2030-01-01T00:00:00", 422, "invalid"),
        ("held=maybe", 422, "invalid"),
        ("colour=red", 422, "invalid"),
        ("limit=1&limit=2", 400, "repeated_parameter"),
        ("limit=%ff", 400, "bad_query"),
    ],
)
async def test_a_bad_query_is_reported(api_here, query, status, code):
    key = await api_here.key("read")
    answer = await api_here.call("GET", f"/v1/requests?{query}", key=key)
    assert (answer.status, answer.body["code"]) == (status, code)


@pytest.mark.parametrize("path", ["/v1/requests", "/v1/dead-letters", "/v1/unknown"])
async def test_a_name_that_no_store_takes_is_not_an_error_of_the_store(api, path):
    key = await api.key("read", "operate")
    answer = await api.call("GET", f"{path}?flow=%00", key=key)
    assert (answer.status, set(answer.body["errors"])) == (422, {"flow"})


async def test_the_timeline_and_the_attempts_tell_what_happened(api):
    key = await api.key("submit", "read")
    made = await api.call(
        "POST",
        "/v1/requests?wait=20s",
        {"flow": "shop.note", "payload": {"text": "refuse"}},
        key=key,
    )
    here = made.headers["Location"]
    events = (await api.call("GET", f"{here}/events", key=key)).body["items"]
    assert [one["type"] for one in events] == ["shop.note.RequestCreated.v1", "shop.note.Failed.v1"]
    assert events[0]["actor"].startswith("key:")
    attempts = (await api.call("GET", f"{here}/attempts", key=key)).body["items"]
    assert [(one["number"], one["outcome"], one["reason"]) for one in attempts] == [
        (1, "rejected", "said_no")
    ]


async def test_an_accepted_request_never_answers_404_however_far_the_views_are_behind(store_url):
    async with served(store_url, work=False) as api:
        key = await api.key("submit", "read")
        made = await api.submit(key)
        assert await api.engine.find() == []
        shown = await api.call("GET", made.headers["Location"], key=key)
        assert (shown.status, shown.body["status"]) == (200, "queued")
        assert (await api.call("GET", made.headers["Location"] + "/events", key=key)).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/requests/0190b6f2-7c1a-7000-8000-000000000000",
        "/v1/requests/..%2f..",
        "/v1/nothing",
        "/v1/requests/0190b6f2-7c1a-7000-8000-000000000000?flow=shop.nothing",
    ],
)
async def test_an_unknown_path_answers_a_problem(api_here, path):
    key = await api_here.key("read")
    answer = await api_here.call("GET", path, key=key)
    assert answer.status == 404  # S4-29
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_wrong_method_gets_405_with_the_allowed_ones(api_here):
    answer = await api_here.call("PUT", "/v1/requests", {}, key=await api_here.key())
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")


async def test_an_unknown_word_is_answered_with_the_known_ones(api_here):
    key = await api_here.key("read")
    answer = await api_here.call("GET", "/v1/requests?status=done", key=key)
    assert (
        "known: authorized, cancelled, captured, compensated, completed, expired, failed, ignored,"
        " initiated, queued, requested, reversed, sent, unknown, validated, waiting"
        in answer.body["errors"]["status"]
    )
    empty = await api_here.call("POST", "/v1/requests", raw=b"", key=await api_here.key("submit"))
    assert empty.body["detail"] == "the body is empty; send a JSON object"


async def test_a_batch_that_is_a_bare_list_gets_an_error_that_shows_the_form(api_here):
    answer = await api_here.call(
        "POST",
        "/v1/requests/batch",
        [{"flow": "shop.note", "payload": {}}],
        key=await api_here.key(),
    )
    assert (answer.status, answer.body["errors"]) == (
        422,
        {"body": 'must be a JSON object; send {"requests": […]}'},
    )


async def test_a_batch_that_is_partly_written_answers_for_every_request(tmp_path, monkeypatch):
    appended = 0

    async def fail_after_the_first_part(append, appends, *more):
        nonlocal appended
        if len(appends) > 1 and appended >= 100:
            raise StoreError("no room left")
        appended += len(appends)
        return await append(appends, *more)

    async def wire(settings):
        environment = await wire_really(settings)
        events = Faulty(environment.stores.events)
        transactions = Faulty(environment.stores.transactions)
        for port in (events, transactions):
            port.replace("append", fail_after_the_first_part)
        return replace(
            environment,
            stores=replace(environment.stores, events=events, transactions=transactions),
        )

    monkeypatch.setattr("tests.http_api.served.wire_really", wire)
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", api_rate=1_000) as api:
        key, other = await api.key("submit"), await api.key("submit", tenant="other")
        one = {"flow": "shop.note", "payload": {"text": "later"}}
        batch = {"requests": [7, *[one] * 250]}
        # Parts are made only while several tenants are at work.
        await api.submit(other)
        answer = await api.call("POST", "/v1/requests/batch", batch, key=key)
        verdicts = [one["verdict"] for one in answer.body["items"]]
        assert Counter(verdicts) == {"invalid": 1, "created": 100, "not_written": 150}
        assert verdicts[0] == "invalid"
        assert verdicts[1:101] == ["created"] * 100


async def test_the_answer_warns_of_missing_config_until_it_is_stored(api):
    key = await api.key()
    payload = {"channel": "C012AB3CD", "text": "hello"}
    body = {"flow": "notification.slack", "payload": payload}
    made = await api.call("POST", "/v1/requests", body, key=key)
    (warning,) = made.body["warnings"]
    assert (made.status, warning["code"]) == (202, "config_missing")
    assert "slack.workspace default" in warning["message"]
    batch = await api.call("POST", "/v1/requests/batch", {"requests": [body]}, key=key)
    # Once a worker has met the first one, the message also says what holds it.
    (second,) = batch.body["items"][0]["warnings"]
    assert second["code"] == "config_missing"
    assert warning["message"] in second["message"]
    async with Client(api.address, key) as client:
        again = await client.submit("notification.slack", payload)
        assert [one.code for one in again.warnings] == ["config_missing"]
    held = await api.call("GET", f"/v1/requests/{made.body['id']}", key=key)
    while held.body["heldBy"] is None:
        held = await api.call("GET", f"/v1/requests/{made.body['id']}", key=key)
    assert held.body["heldBy"]["kind"] == "config"
    assert held.body["heldBy"]["name"] == "slack.workspace/default"
    stored = {"fields": {"token": "xoxb-1-a"}}
    put = await api.call("PUT", "/v1/config/slack.workspace/default", stored, key=key)
    assert put.status < 300, put.text
    after = await api.call("POST", "/v1/requests", body, key=key)
    assert "warnings" not in after.body
