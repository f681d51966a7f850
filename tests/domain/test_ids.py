"""Names that leave the process: providers, queues and stores keep them for ever, so each is written
out here.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.domain.ids import (
    FLOW,
    TENANT,
    event_id,
    id_bytes,
    id_text,
    idempotency_key,
    job_id,
    own_job_id,
)
from gesta.domain.outcome import Unknown
from gesta.domain.stream_names import config_stream, request_stream
from tests.domain.story import ID, T0, Story, rules

RAW = bytes.fromhex("01890a5dac96774bbcceb302099a8057")


def test_the_idempotency_key_is_tenant_request_operation_and_intent():
    # R1-34, S1-2: `version` of the seed is the intent, which no attempt and no event moves
    assert (
        idempotency_key("acme", ID, "send", 1) == "acme:01890a5d-ac96-774b-bcce-b302099a8057:send:1"
    )


def test_each_operation_of_one_request_has_its_own_key():
    # S1-3: authorize and capture must not share a key
    keys = [
        idempotency_key("acme", ID, operation, 1)
        for operation in ("authorize", "capture", "void", "refund", "reverse")
    ]
    assert keys[1] == "acme:01890a5d-ac96-774b-bcce-b302099a8057:capture:1"
    assert len(set(keys)) == 5


def test_the_longest_key_is_one_that_every_provider_takes():
    # S1-3: ≤255 chars
    longest = idempotency_key("t" * 63, ID, "authorize", 10**9)
    assert TENANT.fullmatch("t" * 63)
    assert len(longest) <= 255


@given(
    tenant=st.from_regex(TENANT, fullmatch=True),
    other=st.from_regex(TENANT, fullmatch=True),
    intent=st.integers(1, 99),
)
def test_no_two_requests_share_a_key(tenant: str, other: str, intent: int):
    # S1-3: separator-safe, because no part but the last can hold a colon
    key = idempotency_key(tenant, ID, "send", intent)
    assert key.split(":") == [tenant, ID, "send", str(intent)]
    assert (key == idempotency_key(other, ID, "send", intent)) == (tenant == other)


def test_the_key_of_a_request_is_that_of_its_state():
    assert Story(rules()).key == f"acme:{ID}:send:1"


def test_a_job_is_named_after_its_request_and_opening():
    name = job_id(ID, 7)
    assert name == "01890a5d-ac96-774b-bcce-b302099a8057-7"
    assert ":" not in name
    assert not name.isdigit()


def test_a_job_under_a_callers_own_id_is_named_after_tenant_and_flow_too():
    name = own_job_id("acme", "shop.letter", ID, 7)
    assert name == "01890a5d-ac96-774b-bcce-b302099a8057.bc1847b5d7e5b688-7"
    assert ":" not in name
    others = [
        own_job_id("globex", "shop.letter", ID, 7),
        own_job_id("acme", "shop.note", ID, 7),
        job_id(ID, 7),
    ]
    assert name not in others


def test_streams_are_named_by_flow_tenant_and_id():
    # R1-9: notification.<channel>.request-{tenant}-{requestId}
    assert (
        request_stream("notification.webhook", "acme", ID)
        == "notification.webhook.request-acme-01890a5d-ac96-774b-bcce-b302099a8057"
    )
    assert (
        request_stream("notification.slack", "acme-corp", ID)
        == f"notification.slack.request-acme-corp-{ID}"
    )
    assert config_stream("acme-corp") == "config-acme-corp"


@pytest.mark.parametrize("tenant", ["a", "acme", "acme-corp", "Acme.2_x", "0", "x" * 63])
def test_tenants_are_letters_digits_dots_dashes_and_underscores(tenant: str):
    assert TENANT.fullmatch(tenant)


@pytest.mark.parametrize(
    "tenant",
    [
        "",
        "-a",
        ".a",
        "_a",
        "a b",
        "a:b",
        "{a}",
        "a{",
        "a}",
        "a/b",
        "é",
        "a\n",
        "x" * 64,
        "a\x00",
        "٣",
    ],
)
def test_no_tenant_can_break_a_key_a_hash_tag_or_a_stream(tenant: str):
    assert not TENANT.fullmatch(tenant)


@pytest.mark.parametrize(
    "flow", ["notification.webhook", "payment.card", "http.endpoint", "billing.receipt_2", "a.b.c"]
)
def test_flows_are_named_in_two_or_more_parts(flow: str):
    assert FLOW.fullmatch(flow)


@pytest.mark.parametrize(
    "flow",
    ["webhook", "notification.", ".webhook", "a..b", "a.b-c", "A.b", "a.b:c", "a.b\n", "a.b/c"],
)
def test_no_flow_can_break_a_category(flow: str):
    # A store's category ends at the first dash, so a flow has none.
    assert not FLOW.fullmatch(flow)


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_sixteen_bytes_or_thirty_six_characters(raw: bytes):
    text = id_text(raw)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)
    assert id_bytes(text) == raw


def test_an_id_is_written_as_usual():
    assert id_text(RAW) == ID
    assert id_bytes(ID) == RAW


def test_event_ids_are_those_of_their_cause_with_the_ordinal_in_the_last_byte():
    # S1-16: the command's or attempt's own 16-byte id with the event's ordinal in its last byte
    assert event_id(RAW, 0).hex() == "01890a5dac96774bbcceb302099a8000"
    assert event_id(RAW, 1).hex() == "01890a5dac96774bbcceb302099a8001"
    # Retried after a lost answer, it is the same again, whatever the last byte was.
    assert event_id(RAW, 1) == event_id(RAW[:15] + b"\xff", 1)
    assert len({event_id(RAW, ordinal) for ordinal in range(256)}) == 256


def test_the_key_stays_the_same_from_the_first_attempt_to_the_last():
    # S1-2: version moves with every event, the key does not
    story = Story(rules("resend", attempts=5))
    keys, versions = {story.key}, {story.state.version}
    for _ in range(4):
        story.ends(Unknown("no_answer"))
        keys.add(story.key)
        versions.add(story.state.version)
    assert keys == {f"acme:{ID}:send:1"}
    assert versions == {1, 2, 3, 4, 5}
    assert story.now == T0
