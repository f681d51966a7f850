"""The contract of the boundary queue, against the literals of its document."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gesta.domain import event_message as m
from tests.domain.event_document import ATTRIBUTES, DOCUMENT

AT_MS = 1_750_933_800_000  # 2025-06-26T10:30:00Z


def message(**changes: Any) -> m.EventMessage:
    return m.decode_message(json.dumps(DOCUMENT | changes).encode())


def test_a_message_has_the_fields_of_the_document_and_no_other() -> None:
    written = json.loads(m.encode_message(message()))
    # R3-1, R3-3, R3-4
    assert written == DOCUMENT
    # R3-2
    assert (m.SLACK_SOURCE, m.SLACK_MESSAGE) == ("slack-event-ingest", "slack.message")
    # S3-23: a float would lose the last digits
    assert written["data"]["slackEvent"]["ts"] == "1234567890.123456"


def test_a_message_has_its_four_attributes() -> None:
    assert m.encode_attributes(m.attributes_of(message())) == ATTRIBUTES  # R3-5


@pytest.mark.parametrize("priority", [0, 6, -1])
def test_a_priority_outside_1_to_5_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="1 to 5"):  # R3-5
        m.attributes_of(message(), priority)


def test_attributes_survive_the_queue_and_unreadable_ones_have_their_default() -> None:
    for priority in (1, 2, 3, 4, 5):
        found = m.attributes_of(message(), priority)
        assert m.decode_attributes(m.encode_attributes(found)) == found
    odd = {"priority": {"DataType": "Number", "StringValue": "urgent"}}
    assert m.decode_attributes(odd) == m.Attributes("", "", 3, "1.0")  # R3-5


@pytest.mark.parametrize("version", ["2.0", "0.9", "x", ""])
def test_another_major_version_is_not_read(version: str) -> None:
    with pytest.raises(m.BadMessage) as refused:
        m.decode_message(json.dumps(DOCUMENT).encode(), version)
    assert refused.value.error_type == "UnsupportedVersion"  # S3-24


def test_a_newer_minor_version_is_read() -> None:
    body = json.dumps(DOCUMENT | {"added": {"later": True}}).encode()
    assert m.decode_message(body, "1.7") == message()  # S3-24


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"messageId": 7}',
        json.dumps(DOCUMENT | {"data": {"metadata": DOCUMENT["data"]["metadata"]}}).encode(),
        json.dumps(DOCUMENT | {"timestamp": "yesterday"}).encode(),
        json.dumps(DOCUMENT | {"retryCount": -1}).encode(),
        json.dumps(DOCUMENT | {"messageId": ""}).encode(),
        b"[" * 100_000,
    ],
)
def test_an_invalid_message_is_refused_with_the_error_type(body: bytes) -> None:
    with pytest.raises(m.BadMessage) as refused:
        m.decode_message(body)
    assert refused.value.error_type == "MalformedMessage"


@given(st.binary(max_size=200))
@example('"\ufffe"'.encode())
@example('{"originalMessage":"\uffff"}'.encode())
def test_any_bytes_are_a_message_a_bad_message_and_always_a_dead_letter(body: bytes) -> None:
    with contextlib.suppress(m.BadMessage):
        m.decode_message(body)
    letter = m.decode_dead_letter(body)
    assert m.decode_dead_letter(m.encode_dead_letter(letter)) == letter


def test_the_size_is_measured_in_utf_8() -> None:
    event = DOCUMENT["data"]["slackEvent"]

    def of(text: str) -> m.EventMessage:
        return message(data=DOCUMENT["data"] | {"slackEvent": event | {"text": text}})

    assert not m.is_too_large(of("a" * 40_000))
    large = of("課" * 40_000)  # 40,000 characters are 120,000 bytes.
    assert m.is_too_large(large)  # R3-13, S3-16
    small = m.by_reference(large, "vault:inbound/slack-T123ABC-Ev1")
    assert len(m.encode_message(small)) < 65_536  # R3-13
    assert small.data.metadata.reference == "vault:inbound/slack-T123ABC-Ev1"
    assert m.decode_message(m.encode_message(small)) == small


def test_a_batch_has_at_most_10_messages_and_a_bounded_size() -> None:
    assert [len(one) for one in m.batches([b"x"] * 23)] == [10, 10, 3]  # R3-14
    heavy = [b"x" * 60_000] * 9
    assert [len(one) for one in m.batches(heavy)] == [4, 4, 1]  # S3-17
    assert list(m.batches([])) == []


def test_a_dead_letter_has_the_body_of_the_document() -> None:
    error = m.error_info(
        "ProcessingError",
        "Failed to create Backlog issue",
        "...",
        attempts=3,
        last_attempt_ms=AT_MS + 300_000,
    )
    body = m.encode_message(message())
    letter = m.wrapped(body, error, at_ms=AT_MS + 360_000, queue_arn="arn:aws:sqs:q", receives=3)
    written = json.loads(m.encode_dead_letter(letter))
    assert written == {  # R3-10
        "originalMessage": DOCUMENT,
        "errorInfo": {  # R3-11
            "errorType": "ProcessingError",
            "errorMessage": "Failed to create Backlog issue",
            "stackTrace": "...",
            "attemptCount": 3,
            "lastAttemptTime": "2025-06-26T10:35:00.000Z",
        },
        "dlqMetadata": {  # R3-12
            "sentToDlqAt": "2025-06-26T10:36:00.000Z",
            "originalQueueArn": "arn:aws:sqs:q",
            "receiveCount": 3,
        },
    }


def test_error_texts_of_a_dead_letter_are_bounded() -> None:
    error = m.error_info("E", "名" * 9_000, "é" * 90_000, attempts=1, last_attempt_ms=AT_MS)
    size = len(error.error_message.encode()) + len(error.stack_trace.encode())
    assert size <= 8_192  # S3-13
    assert error.error_message.startswith("名名")
    assert error.stack_trace.startswith("éé")  # R3-15: a long message leaves room for the trace


def test_a_dead_letter_is_read_in_both_shapes_and_redriven() -> None:
    body = m.encode_message(message())
    error = m.error_info("E", "", "", attempts=3, last_attempt_ms=AT_MS)
    wrapper = m.encode_dead_letter(
        m.wrapped(body, error, at_ms=AT_MS, queue_arn="arn:aws:sqs:q", receives=5)
    )
    for stored in (wrapper, body):
        letter = m.decode_dead_letter(stored)  # S3-11
        again = m.redriven(letter, at_ms=AT_MS + 1_000)
        # S3-12, S3-7: unwrapped, one more retry, the same ids
        assert again.retry_count == 1
        assert (again.message_id, again.data) == (message().message_id, message().data)
        assert again.timestamp == "2025-06-26T10:30:01.000Z"
    # S3-14: three counters
    letter = m.decode_dead_letter(wrapper)
    assert letter.error_info is not None
    assert letter.dlq_metadata is not None
    assert (letter.error_info.attempt_count, letter.dlq_metadata.receive_count) == (3, 5)


def test_a_body_that_is_no_json_survives_in_its_dead_letter() -> None:
    error = m.error_info("MalformedMessage", "not JSON", "", attempts=1, last_attempt_ms=AT_MS)
    letter = m.wrapped(b"\xffhello", error, at_ms=AT_MS, queue_arn="q", receives=1)
    read = m.decode_dead_letter(m.encode_dead_letter(letter))
    assert bytes(read.original_message) == '"\ufffdhello"'.encode()
    with pytest.raises(m.BadMessage):
        m.redriven(read, at_ms=AT_MS)


def test_only_the_start_of_a_signature_is_kept() -> None:
    whole = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert m.masked_signature(whole) == "v0=a2114d57…"  # S3-6
    assert m.masked_signature("nonsense") == ""


def test_the_numbers_of_the_queue_are_those_of_the_document() -> None:
    assert m.VISIBILITY_SECONDS == 60  # R3-8
    assert m.TRIES_MAX == 3  # R3-9
    assert m.DEAD_LETTER_RETENTION_SECONDS == 14 * 24 * 60 * 60  # R3-17
    assert m.RETENTION_SECONDS < m.DEAD_LETTER_RETENTION_SECONDS  # S3-15
    assert (m.DEPTH_ALARM, m.AGE_ALARM_SECONDS, m.DEAD_LETTERS_ALARM) == (100, 600, 1)  # S3-27


def test_the_id_of_a_message_is_the_same_for_every_delivery() -> None:
    assert m.slack_message_id("T123ABC", "Ev1") == "slack-T123ABC-Ev1"  # S3-25


@pytest.mark.parametrize(
    "fields",
    [
        {"channel": "C1 U1", "user": "1.1", "ts": ""},
        {"channel": "C1", "user": "U1 1.1", "ts": "2.2"},
        {"channel": "C1", "user": "U1", "ts": "1.1 2.2"},
        {"channel": "C1", "user": "U1", "ts": "1.1", "thread": "2.2\n"},
        {"channel": "", "user": "U1", "ts": "1.1"},
    ],
)
def test_a_message_whose_fields_together_look_like_those_of_another_has_no_place(
    fields: dict[str, str],
) -> None:
    def data(channel: str, user: str, ts: str, thread: str = "") -> m.EventData:
        metadata = m.Metadata("", "", "", "", "Ev1", thread_ts=thread)
        return m.EventData(metadata, m.SlackEvent("message", channel, user, "", ts, "T1"))

    assert m.has_place(data("C1", "U1", "1.1"))
    assert m.has_place(data("C1", "U1", "1.1", "2.2"))
    assert not m.has_place(data(**fields))
