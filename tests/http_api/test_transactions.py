"""Transactions over HTTP: authorize, capture, refund, void, reverse, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import Money
from gesta.flows import card
from tests.http_api.served import served
from tests.stores.postgresql.places import fresh_url

EUR = {"currency": "EUR"}
PAYLOAD = {"amount": {"amount": "49.90", **EUR}, "source": "pm_1"}


@pytest.fixture(params=["sqlite", "postgresql"])
async def api(request, tmp_path):
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'gesta.db'}" if is_file else await fresh_url()
    async with served(url, flows=[card.flow()]) as running:
        yield running


async def authorized(api: Any, key: str, caller_key: str = "order-7") -> str:
    answer = await api.call(
        "POST",
        "/v1/transactions/authorize?wait=20s",
        {"payload": PAYLOAD, "key": caller_key},
        key=key,
    )
    assert answer.status == 202, answer
    assert answer.body["request"]["status"] == "authorized"
    request_id: str = answer.body["id"]
    return request_id


async def ended(api: Any, key: str, request_id: str) -> Any:
    await api.call("GET", f"/v1/requests/{request_id}?wait=20s", key=key)
    return (await api.call("GET", f"/v1/transactions/{request_id}", key=key)).body


async def test_authorize_capture_and_refund_over_http(api):
    key = await api.key("read", "submit", test=True)
    tx = await authorized(api, key)
    body = {"amount": {"amount": "20.00", **EUR}, "key": "ship-1"}
    opened = await api.call("POST", f"/v1/requests/{tx}/capture", body, key=key)
    assert (opened.status, opened.body["status"]) == (202, "queued")
    shown = await ended(api, key, tx)
    assert (shown["status"], shown["captured"]) == ("captured", {"amount": "20.00", **EUR})
    assert shown["balances"] == {
        "payer": {"amount": "-20.00", **EUR},
        "gateway": {"amount": "20.00", **EUR},
    }
    again = await api.call("POST", f"/v1/requests/{tx}/capture", body, key=key)
    assert (again.status, again.body["status"]) == (200, "captured")
    await api.call("POST", f"/v1/requests/{tx}/refund", {"key": "r-1"}, key=key)
    shown = await ended(api, key, tx)
    assert (shown["status"], shown["balances"]) == ("reversed", {})


async def test_void_and_reverse_over_http(api):
    key = await api.key("read", "submit", test=True)
    for verb in ("void", "reverse"):
        tx = await authorized(api, key, verb)
        await api.call("POST", f"/v1/requests/{tx}/{verb}", {}, key=key)
        assert (await ended(api, key, tx))["status"] == "cancelled"


async def test_a_refused_operation_moves_no_money(api):
    key = await api.key("read", "submit", test=True)
    tx = await authorized(api, key)
    await api.call(
        "POST",
        f"/v1/requests/{tx}/capture",
        {"amount": {"amount": "20.00", **EUR}, "key": "ship", "final": False},
        key=key,
    )
    before = await ended(api, key, tx)
    for body, status, code in [
        ({"amount": {"amount": 20.0, **EUR}, "key": "a"}, 422, "invalid"),
        ({"amount": {"amount": "20.001", **EUR}, "key": "b"}, 422, "invalid"),
        ({"amount": {"amount": "1.00", "currency": "USD"}, "key": "c"}, 409, "wrong_currency"),
        ({"amount": {"amount": "-1.00", **EUR}, "key": "d"}, 409, "invalid_amount"),
        ({"amount": {"amount": "29.91", **EUR}, "key": "e"}, 409, "beyond_authorization"),
        ({"amount": {"amount": "21.00", **EUR}, "key": "ship"}, 409, "conflict"),
        ({"amount": {"amount": "1.00", **EUR}}, 422, "invalid"),
    ]:
        answer = await api.call("POST", f"/v1/requests/{tx}/capture", body, key=key)
        assert (answer.status, answer.body["code"]) == (status, code), body
    over = {"amount": {"amount": "20.01", **EUR}, "key": "r"}
    answer = await api.call("POST", f"/v1/requests/{tx}/refund", over, key=key)
    assert (answer.status, answer.body["code"]) == (409, "beyond_capture")
    assert await ended(api, key, tx) == before


async def test_another_tenants_transaction_is_not_found(api):
    tx = await authorized(api, await api.key("read", "submit", test=True))
    stranger = await api.key("read", "submit", tenant="other", test=True)
    for verb in ("capture", "refund", "void", "reverse", "resolve"):
        body = {"key": "k"} if verb in ("capture", "refund") else {}
        if verb == "resolve":
            body = {"outcome": "succeeded", "evidence": "e"}
        answer = await api.call("POST", f"/v1/requests/{tx}/{verb}", body, key=stranger)
        assert answer.status in (403, 404), verb
    assert (await api.call("GET", f"/v1/transactions/{tx}", key=stranger)).status == 404


async def test_a_test_key_moves_no_real_money(api):
    live, trial = await api.key(), await api.key("read", "submit", test=True)
    await api.engine.admin.put_config(
        "payment.gateway", "default", {"type": "stripe", "account": "acct_1", "api_key": "sk_1"}
    )
    tx = await authorized(api, live)
    answer = await api.call("POST", f"/v1/requests/{tx}/capture", {"key": "k"}, key=trial)
    assert (answer.status, answer.body["code"]) == (403, "test_key")
    assert (await ended(api, live, tx))["status"] == "authorized"


async def test_metrics_count_what_moved(api):
    key = await api.key("read", "submit", test=True)
    tx = await authorized(api, key)
    await api.call("POST", f"/v1/requests/{tx}/capture", {"key": "c"}, key=key)
    await ended(api, key, tx)
    await api.call("POST", f"/v1/requests/{tx}/reverse", {}, key=key)
    await ended(api, key, tx)
    metrics = api.engine.pipeline.telemetry.metrics
    found = {
        sample.name: sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.labels.get("namespace") == "payment.card"
    }
    assert found["authorized_total"] == 1  # R1-47
    assert found["captured_total"] == 1  # R1-47
    assert found["reversed_total"] == 1  # R1-47


async def test_reconciliation_over_http(api):
    account = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}
    await api.engine.admin.put_config("payment.gateway", "default", account)
    operator = await api.key("operate")
    refused = await api.call(
        "POST", "/v1/reconciliations", {"gateway": "default"}, key=await api.key("submit")
    )
    assert refused.status == 403
    wrong = {"gateway": "default", "from": "2027-02-01T00:00:00Z", "to": "2027-01-01T00:00:00Z"}
    answer = await api.call("POST", "/v1/reconciliations", wrong, key=operator)
    assert (answer.status, list(answer.body["errors"])) == (422, ["to"])
    answer = await api.call("POST", "/v1/reconciliations", {"gateway": "no"}, key=operator)
    assert answer.status == 404
    request = await api.engine.submit(card.Sale(Money("49.90", "EUR"), source="pm_1"))
    await request.outcome(timeout=20)
    answer = await api.call("POST", "/v1/reconciliations", {"gateway": "default"}, key=operator)
    assert answer.status == 200, answer
    assert (answer.body["counts"]["matched"], answer.body["corrections"]) == (1, 0)  # R1-40
    assert answer.body["from"] < answer.body["to"]
