"""Standard Webhooks signatures, held against the reference library."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from gesta.outbound.signatures import BadSignature, secret_bytes, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NOW = 1_614_265_330

keys = st.binary(min_size=24, max_size=64).map(
    lambda key: "whsec_" + base64.b64encode(key).decode()
)
ids = st.from_regex(r"msg_[A-Za-z0-9]{1,40}", fullmatch=True)
bodies = st.binary(max_size=300)


def headers(
    signature: str, message_id: str = "msg_1", timestamp: int | str = NOW
) -> dict[str, str]:
    return {
        "Webhook-Id": message_id,
        "webhook-timestamp": str(timestamp),
        "WEBHOOK-SIGNATURE": signature,
    }


def test_a_known_message_has_its_known_signature():
    body = b'{"test": 2432232314}'
    # D-13: v1 and base64 of HMAC-SHA256 over {id}.{timestamp}.{body}
    assert (
        sign([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", NOW, body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@given(keys, ids, st.integers(min_value=0, max_value=4_000_000_000), st.text(max_size=200))
def test_the_reference_library_signs_the_same(secret, message_id, timestamp, text):
    theirs = Webhook(secret).sign(message_id, datetime.fromtimestamp(timestamp, UTC), text)
    assert sign([secret], message_id, timestamp, text.encode()) == theirs  # D-13


def test_the_reference_library_takes_what_we_sign_with_either_of_two_secrets():
    now = int(datetime.now(UTC).timestamp())
    signed = headers(sign([SECRET, OTHER], "msg_1", now, b'{"a":1}'), timestamp=now)
    assert len(signed["WEBHOOK-SIGNATURE"].split(" ")) == 2  # D-13: two signatures during rotation
    assert [Webhook(secret).verify(b'{"a":1}', signed) for secret in (SECRET, OTHER)] == [
        {"a": 1},
        {"a": 1},
    ]
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + base64.b64encode(bytes(24)).decode()).verify(b'{"a":1}', signed)


@given(
    st.lists(keys, min_size=1, max_size=3, unique=True),
    ids,
    bodies,
    st.integers(-300, 300),
    st.data(),
)
def test_a_signature_can_be_verified_with_each_secret_alone(secrets, message_id, body, age, data):
    signed = headers(sign(secrets, message_id, NOW, body), message_id)
    assert verify([data.draw(st.sampled_from(secrets))], signed, body, NOW + age) == message_id


def test_a_receiver_that_knows_two_secrets_takes_what_either_has_signed():
    for secret in (SECRET, OTHER):
        assert (
            verify([SECRET, OTHER], headers(sign([secret], "msg_1", NOW, b"a")), b"a", NOW)
            == "msg_1"
        )


@given(keys, ids, bodies, bodies)
def test_another_body_id_or_time_is_not_verified(secret, message_id, body, other):
    signature = sign([secret], message_id, NOW, body)
    changed = [
        (headers(signature, message_id + "x"), body),
        (headers(signature, message_id, NOW + 1), body),
    ]
    if other != body:
        changed.append((headers(signature, message_id), other))
    for found, content in changed:
        with pytest.raises(BadSignature, match="no_match"):
            verify([secret], found, content, NOW)


@pytest.mark.parametrize(("age", "reason"), [(301, "too_old"), (-301, "too_new")])
def test_a_message_from_another_time_is_refused(age, reason):
    with pytest.raises(BadSignature, match=reason):
        verify([SECRET], headers(sign([SECRET], "msg_1", NOW, b"")), b"", NOW + age)


@pytest.mark.parametrize("missing", ["Webhook-Id", "webhook-timestamp", "WEBHOOK-SIGNATURE"])
def test_a_message_without_one_of_the_headers_is_refused(missing):
    signed = headers(sign([SECRET], "msg_1", NOW, b""))
    del signed[missing]
    with pytest.raises(BadSignature, match="missing_header"):
        verify([SECRET], signed, b"", NOW)


@pytest.mark.parametrize(
    ("message_id", "timestamp"),
    [("msg.1", NOW), ("", NOW), ("msg_1", "1e9"), ("msg_1", "-1"), ("msg_1", f"{NOW}.0")],
)
def test_an_id_or_a_time_that_could_move_the_border_is_refused(message_id, timestamp):
    with pytest.raises(BadSignature, match="bad_header"):
        verify(
            [SECRET], headers("v1,xyz", message_id, timestamp), b"", NOW
        )  # D-13: id and timestamp without a dot


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "v1",
        "v1,",
        "v1a,AAAA",
        "v1,ééé",
        "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ", ,",
    ],
)
def test_a_signature_of_another_kind_does_not_match(listed):
    with pytest.raises(BadSignature, match="no_match"):
        verify([SECRET], headers(listed), b"", NOW)


def test_nothing_is_signed_under_an_id_with_a_dot():
    with pytest.raises(ValueError, match="must not contain a dot"):
        sign([SECRET], "tenant.eu:1", NOW, b"")


@given(st.binary(max_size=100))
def test_a_secret_has_24_to_64_bytes(key):
    text = "whsec_" + base64.b64encode(key).decode()
    if 24 <= len(key) <= 64:
        assert secret_bytes(text) == secret_bytes(text.rstrip("=")) == key  # D-13
    else:
        with pytest.raises(ValueError, match="24 to 64 bytes"):
            secret_bytes(text)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_not base64 at all, really!!",
        "whsec_MfKQ9r8G\n" * 3,
    ],
)
def test_an_invalid_secret_is_refused_without_being_shown(secret):
    with pytest.raises(ValueError, match="a webhook secret") as caught:
        secret_bytes(secret)
    assert "MfKQ" not in str(caught.value)
