"""The fakes: faults on demand, known keys, one effect for each key."""

from __future__ import annotations

import msgspec
import pytest

from gesta.outbound.http import HttpRequest
from gesta.outbound.signatures import sign
from gesta.sandbox import FakeHttpApi, FakeWebhookReceiver, Fault

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW_MS = 1_800_000_000_000


def message(
    key: str = "msg_1", kind: str = "order.paid", data: object = None, secret: str = SECRET
) -> HttpRequest:
    body = msgspec.json.encode(
        {"type": kind, "timestamp": "2027-01-15T08:00:00.000Z", "data": data or {}}
    )
    headers = {
        "webhook-id": key,
        "webhook-timestamp": "1800000000",
        "webhook-signature": sign([secret], key, 1_800_000_000, body),
    }
    return HttpRequest("POST", "https://shop.example/hook", headers, body)


def call(key: str | None = None, body: bytes = b'{"order": 7}') -> HttpRequest:
    return HttpRequest(
        "POST", "https://api.example/orders", {"Idempotency-Key": key} if key else {}, body
    )


def test_a_call_has_an_effect_that_can_be_looked_at():
    webhook = FakeWebhookReceiver()
    assert webhook.receive(message(data={"order": 7}), NOW_MS).status == 204
    [effect] = webhook.effects
    assert (effect.id, effect.type, effect.data, effect.receipts) == (
        "msg_1",
        "order.paid",
        {"order": 7},
        1,
    )


def test_a_repeat_of_a_known_key_is_answered_as_before_and_has_no_second_effect():
    http = FakeHttpApi()
    first, other, again = (http.receive(call(key), NOW_MS) for key in ("a", "b", "a"))
    assert first.body == again.body != other.body
    assert [(effect.id, effect.receipts) for effect in http.effects] == [("a", 2), ("b", 1)]
    assert http.calls == 3


def test_a_key_with_other_content_is_refused():
    http = FakeHttpApi()
    http.receive(call("a"), NOW_MS)
    assert http.receive(call("a", b"{}"), NOW_MS).status == 409
    assert len(http.effects) == 1


def test_calls_without_a_key_have_an_effect_each():
    http = FakeHttpApi()
    for _ in range(2):
        http.receive(call(), NOW_MS)
    assert len({effect.id for effect in http.effects}) == 2


def test_an_error_on_demand_has_no_effect_and_leaves_no_memory():
    webhook = FakeWebhookReceiver()
    webhook.next(status=429, retry_after=30)
    refused = webhook.receive(message(), NOW_MS)
    assert (refused.status, refused.headers, webhook.effects) == (429, {"retry-after": "30"}, [])
    assert webhook.receive(message(), NOW_MS).status == 204


def test_an_answer_that_is_dropped_on_demand_had_its_effect():
    webhook = FakeWebhookReceiver()
    webhook.next(drop=True)
    assert webhook.receive(message(), NOW_MS).drop
    assert len(webhook.effects) == 1


def test_an_effect_happens_before_a_slow_answer():
    webhook = FakeWebhookReceiver()
    webhook.next(slow_seconds=60)
    reply = webhook.receive(message(), NOW_MS)
    assert (reply.slow_seconds, reply.status, len(webhook.effects)) == (60, 204, 1)


def test_faults_queue_up_and_apply_as_often_as_given():
    webhook = FakeWebhookReceiver()
    webhook.next(status=500, times=2)
    webhook.next(status=429)
    assert [webhook.receive(message(), NOW_MS).status for _ in range(4)] == [500, 500, 429, 204]


def test_a_rule_holds_for_its_type_or_key_alone_and_leaves_the_queue_untouched():
    webhook = FakeWebhookReceiver()
    webhook.on("order.poison", status=500)
    webhook.on("msg_9", status=503, times=1)
    webhook.next(status=429)
    poison = [webhook.receive(message(f"p{n}", "order.poison"), NOW_MS).status for n in range(3)]
    assert poison == [500, 500, 500]
    assert [webhook.receive(message("msg_9"), NOW_MS).status for _ in range(3)] == [503, 429, 204]


def test_a_rule_may_be_any_function_of_the_call():
    http = FakeHttpApi()
    http.on(lambda received: received.data == {"order": 13}, status=402)
    assert http.receive(call("a", b'{"order": 13}'), NOW_MS).status == 402
    assert http.receive(call("b", b'{"order": 14}'), NOW_MS).status == 200


def test_healing_forgets_pending_faults():
    webhook = FakeWebhookReceiver()
    webhook.next(status=500, times=9)
    webhook.arm(Fault(status=500, match="order.paid", times=None))
    webhook.heal()
    assert webhook.receive(message(), NOW_MS).status == 204


@pytest.mark.parametrize(
    ("request_", "now_ms", "status", "why"),
    [
        (message(secret="whsec_" + "A" * 32), NOW_MS, 401, "no_match"),
        (message(), NOW_MS + 301_000, 401, "too_old"),
        (HttpRequest("POST", "https://shop.example/", {}, b"{}"), NOW_MS, 401, "missing_header"),
    ],
)
def test_a_message_that_no_secret_has_signed_is_refused(request_, now_ms, status, why):
    webhook = FakeWebhookReceiver([SECRET])
    assert webhook.receive(request_, now_ms).status == status
    assert (webhook.refusals, webhook.effects) == ([why], [])


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"type": "a"}'])
def test_a_malformed_message_is_refused(body):
    webhook = FakeWebhookReceiver()
    assert (
        webhook.receive(
            HttpRequest("POST", "https://shop.example/", {"webhook-id": "m"}, body), NOW_MS
        ).status
        == 400
    )
    assert webhook.refusals == ["bad_body"]
