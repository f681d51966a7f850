"""Transactions that external workers execute, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import external
from tests.http_api.served import served

WIRE = external("payment.wire", on_unknown="manual", lease_seconds=60.0)
AMOUNT = {"amount": "49.90", "currency": "EUR"}


@pytest.fixture
async def api(tmp_path):
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", flows=[WIRE]) as running:
        yield running


async def created(api: Any, key: str, operation: str = "sale") -> str:
    body = {"flow": "payment.wire", "payload": {"amount": AMOUNT, "operation": operation}}
    answer = await api.call("POST", "/v1/requests", body, key=key)  # R1-30
    assert answer.status == 202
    request_id: str = answer.body["id"]
    return request_id


async def leased(api: Any, key: str) -> Any:
    body = {"waitSeconds": 10}
    answer = await api.call("POST", "/v1/flows/payment.wire/work", body, key=key)
    (item,) = answer.body["items"]
    return item


async def report(api: Any, key: str, item: Any, **fields: Any) -> Any:
    body = {"token": item["token"], "attempts": 1, **fields}
    return await api.call("POST", f"/v1/requests/{item['id']}/outcome", body, key=key)


async def test_record_completed_and_record_failed_end_a_transaction(api):
    key = await api.key()
    tx = await created(api, key)
    item = await leased(api, key)
    assert (item["operation"], item["amount"]) == ("sale", AMOUNT)
    done = {
        "type": "recordCompleted",
        "id": tx,
        "tenant": "default",
        "providerTxnId": "wire-1",
        "amount": AMOUNT,
        "correlationId": "c-1",
        "causationId": "c-2",
        "actor": {"userId": "u", "roles": ["r"]},
    }
    answer = await report(api, key, item, **done)  # R1-5
    assert (answer.status, answer.body["status"]) == (200, "completed")
    shown = (await api.call("GET", f"/v1/transactions/{tx}", key=key)).body
    assert (shown["captured"], shown["providerId"]) == (AMOUNT, "wire-1")  # R1-36
    events = (await api.call("GET", f"/v1/requests/{tx}/events", key=key)).body["items"]
    assert [one["type"] for one in events] == [
        "payment.wire.TransactionCreated.v1",
        "payment.wire.Completed.v1",
    ]  # R1-25
    again = await report(api, key, item, **done)
    assert again.body["status"] == "completed"
    events = (await api.call("GET", f"/v1/requests/{tx}/events", key=key)).body["items"]
    assert len(events) == 2  # R1-31
    failing = await created(api, key)
    item = await leased(api, key)
    answer = await report(
        api, key, item, type="recordFailed", reason="declined", retryable=False, lastError="05"
    )
    assert answer.body["status"] == "failed"
    late = await report(api, key, item, type="recordFailed", reason="other", id=failing)
    assert late.status == 409


async def test_a_report_of_another_amount_or_kind_is_refused(api):
    key = await api.key()
    await created(api, key)
    item = await leased(api, key)
    wrong: list[dict[str, Any]] = [
        {"type": "recordCompleted", "amount": {"amount": "49.91", "currency": "EUR"}},
        {"type": "recordCompleted", "amount": {"amount": "49.90", "currency": "USD"}},
        {"type": "recordCompleted", "amount": 49.9},
        {"type": "recordSent", "providerMessageId": "x"},
    ]
    for fields in wrong:
        answer = await report(api, key, item, **fields)
        assert answer.status == 422, fields
    answer = await report(api, key, item, type="recordCompleted")
    assert answer.body["status"] == "completed"


async def test_a_late_report_is_not_taken_for_the_next_operation(api):
    """The authorization was resolved by hand, and its worker reports while the capture is open."""
    key = await api.key()
    tx = await created(api, key, "authorize")
    first = await leased(api, key)
    assert first["operation"] == "authorization"
    await report(api, key, first, type="recordUnknown", reason="timeout")
    body = {"outcome": "succeeded", "evidence": "the bank's list", "id": "w-1"}
    resolved = await api.call("POST", f"/v1/requests/{tx}/resolve", body, key=key)
    assert resolved.body["status"] == "authorized"
    await api.call("POST", f"/v1/requests/{tx}/capture", {"key": "c-1"}, key=key)
    second = await leased(api, key)
    assert (second["operation"], second["key"]) == ("capture", f"default:{tx}:capture:1")
    await report(api, key, first, type="recordCompleted", providerTxnId="w-1")
    shown = (await api.call("GET", f"/v1/transactions/{tx}", key=key)).body
    assert (shown["status"], shown["captured"]["amount"]) == ("queued", "0.00")
    await report(api, key, second, type="recordCompleted", providerTxnId="w-2")
    shown = (await api.call("GET", f"/v1/transactions/{tx}", key=key)).body
    assert (shown["status"], shown["captured"]["amount"]) == ("captured", "49.90")
