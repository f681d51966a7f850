"""The live stream: what happens, in order, and on from where it was left."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec


@asynccontextmanager
async def following(api, key: str, query: str = "", last: str | None = None):
    headers = {"Authorization": f"Bearer {key}"} | ({} if last is None else {"Last-Event-ID": last})
    async with api.session.get(f"{api.address}/v1/stream{query}", headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream"
        await answer.content.readuntil(b"\n\n")
        yield answer.content


async def read_events(content, count: int) -> list[tuple[str, str, dict[str, Any]]]:
    """The next so many events: id, name, data."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    while len(found) < count:
        block = (await asyncio.wait_for(content.readuntil(b"\n\n"), 20)).decode()
        fields = dict(line.split(": ", 1) for line in block.strip().splitlines())
        if "data" in fields:
            found.append((fields["id"], fields["event"], msgspec.json.decode(fields["data"])))
    return found


async def test_events_are_streamed_as_they_happen(api):
    key = await api.key("read", "submit")
    async with following(api, key) as content:
        made = await api.submit(key)
        events = await read_events(content, 2)
    assert [name for _, name, _ in events] == ["created", "completed"]
    assert {data["requestId"] for _, _, data in events} == {made.body["id"]}
    assert [data["version"] for _, _, data in events] == [1, 2]


async def test_a_stream_goes_on_behind_the_last_event_that_was_seen(api):
    key = await api.key("read", "submit")
    async with following(api, key) as content:
        await api.submit(key, "one")
        seen = await read_events(content, 1)
    second = await api.submit(key, "two")
    await api.call("GET", second.headers["Location"] + "?wait=20s", key=key)
    async with following(api, key, last=seen[0][0]) as content:
        later = await read_events(content, 3)
    assert [
        (name, data["version"]) for _, name, data in later if data["requestId"] == second.body["id"]
    ] == [
        ("created", 1),
        ("completed", 2),
    ]
    assert seen[0][0] not in {event_id for event_id, _, _ in later}


async def test_no_other_tenant_sees_the_stream_or_loses_a_place_in_it(api):
    mine, theirs = await api.key("read", "submit"), await api.key("read", "submit", tenant="acme")
    async with following(api, theirs) as content:
        await api.submit(mine)
        own = await api.submit(theirs)
        events = await read_events(content, 2)
        assert {data["requestId"] for _, _, data in events} == {own.body["id"]}
    answer = await api.call("GET", "/v1/stream", key=mine, headers={"Last-Event-ID": events[0][0]})
    assert (answer.status, answer.body["code"]) == (400, "bad_cursor")


async def test_a_stream_can_be_of_one_request(api_here):
    key = await api_here.key("read", "submit")
    made = await api_here.submit(key, "later")
    async with following(api_here, key, f"?request={made.body['id']}") as content:
        await api_here.submit(key, "another")
        request = await api_here.engine.request(made.body["id"])
        await request.cancel()
        events = await read_events(content, 1)
    assert events[-1][2]["requestId"] == made.body["id"]


async def test_a_key_that_was_revoked_hears_nothing_more_on_a_stream_that_is_open(api_here):
    admin, made = (
        await api_here.key(),
        await api_here.call("POST", "/v1/keys", {"name": "x"}, key=await api_here.key()),
    )
    async with following(api_here, made.body["key"]) as content:
        await api_here.call("DELETE", f"/v1/keys/{made.body['id']}", key=admin)
        await api_here.submit(admin)
        assert await asyncio.wait_for(content.read(), 20) == b""


async def test_a_key_that_has_expired_hears_nothing_more_on_a_stream_that_is_open(api_here):
    admin, soon = await api_here.key(), datetime.now(UTC) + timedelta(seconds=1)
    made = await api_here.call(
        "POST", "/v1/keys", {"name": "x", "expiresAt": soon.isoformat()}, key=admin
    )
    async with following(api_here, made.body["key"]) as content:
        await asyncio.sleep(1)
        await api_here.submit(admin)
        assert await asyncio.wait_for(content.read(), 20) == b""


async def test_one_tenant_does_not_take_all_streams(api_here, monkeypatch):
    monkeypatch.setattr("gesta.http_api.stream.STREAMS_OF_TENANT_MAX", 1)
    mine, theirs = await api_here.key("read"), await api_here.key("read", tenant="acme")
    async with following(api_here, mine):
        refused = await api_here.call("GET", "/v1/stream", key=mine)
        assert (refused.status, refused.body["code"], refused.headers["Retry-After"]) == (
            503,
            "too_many_streams",
            "5",
        )
        async with following(api_here, theirs):
            pass


async def test_all_tenants_together_open_no_more_streams_than_a_process_bears(
    api_here, monkeypatch
):
    monkeypatch.setattr("gesta.http_api.stream.STREAMS_MAX", 1)
    mine, theirs = await api_here.key("read"), await api_here.key("read", tenant="acme")
    async with following(api_here, mine):
        refused = await api_here.call("GET", "/v1/stream", key=theirs)
        assert (refused.status, refused.body["code"]) == (503, "too_many_streams")
