"""Cancel, retry, redrive, resolve over HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gesta import Attempt, Outcome, Payload, Retry, flow
from gesta.client import Client
from gesta.errors import AmbiguousId
from tests.http_api.served import note, served


async def ended(api, key: str, text: str) -> str:
    """The address of a request that has ended; one with the text "later" waits for a retry."""
    if text == "later":
        return await retrying(api, key)
    body = {"flow": "shop.note", "payload": {"text": text}}
    made = await api.call("POST", "/v1/requests?wait=20s", body, key=key)
    return str(made.headers["Location"])


async def retrying(api, key: str) -> str:
    """The address of a request whose first attempt has failed."""
    here = f"/v1/requests/{(await api.submit(key, 'later')).body['id']}"
    async with asyncio.timeout(20):
        while (await api.call("GET", here, key=key)).body["attemptCount"] == 0:
            await asyncio.sleep(0.02)
    return here


async def test_a_waiting_request_is_cancelled_by_the_key_on_record(api):
    key = await api.key()
    here = await ended(api, key, "later")
    answer = await api.call("POST", f"{here}/cancel", key=key)
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    events = (await api.call("GET", f"{here}/events", key=key)).body["items"]
    assert events[-1]["actor"] == f"key:{key.split('_')[2]}"


async def test_a_person_that_the_key_acts_for_is_on_record_with_it(api_here):
    key = await api_here.key()
    here = await ended(api_here, key, "later")
    await api_here.call("POST", f"{here}/cancel", key=key, headers={"Gesta-Actor": "alice"})
    history = await api_here.engine.history(here.rsplit("/", 1)[1])
    actor = history[-1][2].actor
    assert actor is not None
    assert (actor.user_id, actor.roles) == ("alice", (f"key:{key.split('_')[2]}",))  # R1-7
    events = (await api_here.call("GET", f"{here}/events", key=key)).body["items"]
    assert events[-1]["actor"] == f"alice (key:{key.split('_')[2]})"


async def test_a_sent_request_cannot_be_cancelled(api):
    key = await api.key()
    here = await ended(api, key, "hello")
    answer = await api.call("POST", f"{here}/cancel", key=key)
    assert answer.status == 409
    assert answer.body["requestId"] == here.rsplit("/", 1)[1]


async def test_a_failed_request_is_driven_again(api):
    key = await api.key()
    here = await ended(api, key, "refuse")
    answer = await api.call("POST", f"{here}/redrive", {}, key=key)
    assert (answer.status, answer.body["status"]) == (200, "queued")
    after = await api.call("GET", f"{here}?wait=20s", key=key)
    assert (after.body["status"], after.body["attemptCount"]) == ("failed", 2)


async def test_an_unknown_outcome_is_resolved_by_a_person(api):
    key = await api.key()
    here = await ended(api, key, "unknown")
    bad = await api.call("POST", f"{here}/resolve", {"outcome": "perhaps"}, key=key)
    assert (bad.status, set(bad.body["errors"])) == (422, {"outcome", "evidence"})
    answer = await api.call(
        "POST",
        f"{here}/resolve",
        {"outcome": "succeeded", "evidence": "seen in their log"},
        key=key,
    )
    assert (answer.status, answer.body["status"]) == (200, "completed")


async def test_a_waiting_attempt_is_made_now(api):
    key = await api.key()
    here = await ended(api, key, "later")
    answer = await api.call("POST", f"{here}/retry", key=key)
    assert (answer.status, answer.body["status"]) == (200, "queued")


async def test_no_body_is_an_empty_one_where_nothing_is_required(api_here):
    key = await api_here.key()
    here = await ended(api_here, key, "refuse")
    # The client of the test names a kind of nothing, as some do; curl names none.
    answer = await api_here.call("POST", f"{here}/redrive", key=key)
    assert (answer.status, answer.body["status"]) == (200, "queued")
    await api_here.call("GET", f"{here}?wait=20s", key=key)
    answer = await api_here.call(
        "POST", f"{here}/redrive", raw=b"", headers={"Content-Type": "application/json"}, key=key
    )
    assert (answer.status, answer.body["status"]) == (200, "queued")
    needed = await api_here.call("POST", f"{here}/resolve", key=key)
    assert needed.status == 415


@pytest.mark.parametrize("path", ["/v1/pauses", "/v1/bulk"])
async def test_an_empty_filter_does_not_mean_everything(api_here, path):
    assert (await api_here.call("POST", path, key=await api_here.key())).status == 415


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/cancel"), ("POST", "/retry"), ("DELETE", None), ("DELETE", "/v1/pauses")],
)
async def test_a_body_where_none_is_taken_is_refused_and_nothing_is_done(api_here, method, path):
    key = await api_here.key()
    here = await ended(api_here, key, "later")
    where = (
        here.replace("/requests/", "/dead-letters/")
        if path is None
        else path
        if path.startswith("/v1")
        else here + path
    )
    answer = await api_here.call(method, where, {"reason": "a typo"}, key=key)
    assert (answer.status, answer.body["code"]) == (422, "invalid")
    assert "takes no body" in answer.body["errors"]["body"]
    assert (await api_here.call("GET", here, key=key)).body["status"] == "queued"


async def test_an_empty_object_is_no_body(api_here):
    key = await api_here.key()
    here = await ended(api_here, key, "later")
    assert (await api_here.call("POST", f"{here}/cancel", {}, key=key)).status == 200


async def test_a_resolve_without_an_outcome_lists_the_outcomes(api_here):
    key = await api_here.key()
    here = await ended(api_here, key, "unknown")
    answer = await api_here.call("POST", f"{here}/resolve", {}, key=key)
    assert answer.body["errors"]["outcome"] == "missing; known: failed, not_executed, succeeded"


class Ticket(Payload, frozen=True):
    id: str


@flow("shop.ticket", on_unknown="manual")
async def ticket(payload: Ticket, attempt: Attempt) -> Outcome:
    return Retry("not_now", after_seconds=3600)


async def test_an_id_that_two_flows_use_needs_the_flow_and_the_conflict_names_both(store_url):
    """A flow that accepts the caller's own ids accepts one that another flow's request has."""
    flows = [note, replace(ticket, request_id=lambda payload: payload.id)]
    async with served(store_url, flows=flows) as api:
        key = await api.key()
        own = (await retrying(api, key)).rsplit("/", 1)[1]
        body = {"flow": "shop.ticket", "payload": {"id": own}}
        assert (await api.call("POST", "/v1/requests", body, key=key)).status == 202
        for method, path in (
            ("GET", ""),
            ("GET", "/events"),
            ("GET", "/attempts"),
            ("POST", "/cancel"),
            ("POST", "/retry"),
            ("POST", "/redrive"),
        ):
            answer = await api.call(method, f"/v1/requests/{own}{path}", key=key)
            assert (answer.status, answer.body["code"]) == (409, "ambiguous_id"), path
            assert answer.body["title"] == "Conflict"
            assert answer.body["flows"] == ["shop.note", "shop.ticket"]
            assert "?flow=shop.note" in answer.body["detail"]
        cancelled = await api.call("POST", f"/v1/requests/{own}/cancel?flow=shop.ticket", key=key)
        assert (cancelled.status, cancelled.body["flow"]) == (200, "shop.ticket")
        shown = [
            (await api.call("GET", f"/v1/requests/{own}?flow={name}", key=key)).body["status"]
            for name in ("shop.ticket", "shop.note")
        ]
        assert shown == ["cancelled", "queued"]
        async with Client(api.address, key) as client:
            with pytest.raises(AmbiguousId) as raised:
                await client.retry(own)
            assert raised.value.flows == ["shop.note", "shop.ticket"]
            assert (await client.retry(own, flow="shop.note")).status == "queued"
