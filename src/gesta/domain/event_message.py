"""The message of an inbound event, its attributes, and the dead letter that wraps it.

This is the contract of the boundary queue: other programs read and write these bodies. The same
types are stored where no boundary queue is used, so that both paths handle an event alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gesta.domain.durations import iso

SLACK_SOURCE: Final = "slack-event-ingest"
SLACK_MESSAGE: Final = "slack.message"
#: Written into every message. Another major version is not read: it is a dead letter.
VERSION: Final = "1.0"
#: 1 is the most urgent.
PRIORITY_MIN, PRIORITY_DEFAULT, PRIORITY_MAX = 1, 3, 5

#: A larger body travels by reference.
BODY_BYTES_MAX: Final = 64 * 1024
BATCH_MAX: Final = 10
#: The limit of all bodies of one batch, which every SQS queue accepts.
BATCH_BYTES_MAX: Final = 256 * 1024
#: A received message is invisible this long. The consumer extends it while it works.
VISIBILITY_SECONDS: Final = 60
#: How often a message is processed before it becomes a dead letter.
TRIES_MAX: Final = 3
#: Shorter than that of dead letters: SQS counts the age of a moved message from its first send.
RETENTION_SECONDS: Final = 4 * 86_400
DEAD_LETTER_RETENTION_SECONDS: Final = 14 * 86_400
#: Alarms: more waiting messages, an older one, or so many dead letters.
DEPTH_ALARM: Final = 100
AGE_ALARM_SECONDS: Final = 600
DEAD_LETTERS_ALARM: Final = 1

#: The maximum of `errorMessage` and `stackTrace` together, in UTF-8 bytes.
ERROR_BYTES_MAX: Final = 8 * 1024
_MESSAGE_BYTES_MAX: Final = 2 * 1024
_SIGNATURE: Final = re.compile(r"(v\d+=[0-9a-f]{8})[0-9a-f]*")
_CHANNEL_ID: Final = re.compile(r"[CDG][A-Z0-9]{1,30}")
_USER_ID: Final = re.compile(r"[A-Z0-9]{1,32}")
#: Seconds and a number within one channel. Ten digits last until the year 2286.
_TS: Final = re.compile(r"[0-9]{1,10}\.[0-9]{1,8}")
#: Channel, user, `ts` and the thread's `ts` in one text. None of them contains a blank.
_PLACE: Final = re.compile(
    rf"{_CHANNEL_ID.pattern} {_USER_ID.pattern} {_TS.pattern} (?:{_TS.pattern})?"
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class BadMessage(Exception):
    """A body that is not an event message. `error_type` goes into the dead letter."""

    def __init__(self, error_type: str, text: str) -> None:
        super().__init__(text)
        self.error_type = error_type


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Unknown fields are ignored: a newer minor version may add some."""


class SlackEvent(_Part, frozen=True):
    """The part of Slack's event that is used. `ts` stays a string: a float would lose digits."""

    type: str
    channel: str
    user: str
    text: str
    ts: str
    team: str


class Metadata(_Part, frozen=True, omit_defaults=True):
    #: When the HTTP request arrived.
    received_at: str
    #: The id that our own server gave to the HTTP request.
    api_gateway_request_id: str
    #: Only the start of the signature: the whole one could be replayed for five minutes.
    signature: str
    signature_timestamp: str
    event_id: str
    team_id: str = ""
    #: When it happened, according to the sender, in epoch seconds.
    event_time: int = 0
    signature_verified: bool = False
    #: The thread that the message belongs to, where it is not the first of one.
    thread_ts: str = ""
    #: Where the whole data is stored, of a body above BODY_BYTES_MAX.
    reference: str = ""


class EventData(_Part, frozen=True, omit_defaults=True):
    """`slack_event` of Slack's events, `event` of those of other sources."""

    metadata: Metadata
    slack_event: SlackEvent | None = None
    event: dict[str, Any] | None = None


class EventMessage(_Part, frozen=True):
    """One event. A consumer receives it any number of times, in any order."""

    #: The same for every delivery of an event.
    message_id: str
    #: When it was published.
    timestamp: str
    source: str
    event_type: str
    data: EventData
    #: How often it was redriven.
    retry_count: int = 0


class Attributes(_Part, frozen=True):
    """The attributes of a message, beside its body."""

    event_type: str
    source: str
    priority: int = PRIORITY_DEFAULT
    version: str = VERSION


class ErrorInfo(_Part, frozen=True):
    """Why processing failed; see `error_info`."""

    error_type: str
    error_message: str
    stack_trace: str
    #: How often it was processed, which is not how often the broker delivered it.
    attempt_count: int
    last_attempt_time: str


class DlqMetadata(_Part, frozen=True):
    sent_to_dlq_at: str = msgspec.field(name="sentToDlqAt")
    original_queue_arn: str
    #: How often the broker delivered it.
    receive_count: int


class DeadLetterMessage(_Part, frozen=True):
    """A dead letter. `error_info` is None where the broker moved the message by itself.

    `original_message` is kept unchanged, readable or not.
    """

    original_message: msgspec.Raw
    error_info: ErrorInfo | None = None
    dlq_metadata: DlqMetadata | None = None


def is_channel(channel: object) -> bool:
    """Whether it is the id of a Slack channel."""
    return isinstance(channel, str) and _CHANNEL_ID.fullmatch(channel) is not None


def is_ts(ts: object) -> bool:
    """Whether it identifies a message within a Slack channel."""
    return isinstance(ts, str) and _TS.fullmatch(ts) is not None


def has_place(data: EventData) -> bool:
    """Whether the channel, the user and the times of a Slack message have the form that Slack
    sends. They become part of keys, links and descriptions.
    """
    event = data.slack_event
    return event is None or (
        _PLACE.fullmatch(f"{event.channel} {event.user} {event.ts} {data.metadata.thread_ts}")
        is not None
    )


def slack_message_id(team: str, event_id: str) -> str:
    return f"slack-{team}-{event_id}"


def masked_signature(signature: str) -> str:
    """The start of a signature; empty where it has another form."""
    found = _SIGNATURE.fullmatch(signature)
    return "" if found is None else f"{found[1]}…"


def encode_message(message: EventMessage) -> bytes:
    return _legal(msgspec.json.encode(message))


def is_too_large(message: EventMessage) -> bool:
    """Whether the body has to travel by reference. Measured in UTF-8, as the queue does."""
    return len(encode_message(message)) > BODY_BYTES_MAX


def by_reference(message: EventMessage, reference: str) -> EventMessage:
    """The message without its content, which is stored under `reference`."""
    replace, data = msgspec.structs.replace, message.data
    slack = None if data.slack_event is None else replace(data.slack_event, text="")
    metadata = replace(data.metadata, reference=reference)
    return replace(message, data=EventData(metadata, slack, None if data.event is None else {}))


def decode_message(body: bytes, version: str = VERSION) -> EventMessage:
    """Read a body. Raises BadMessage `UnsupportedVersion` or `MalformedMessage`.

    `version` is that of the attributes.
    """
    if version.partition(".")[0] != VERSION.partition(".")[0]:
        raise BadMessage(
            "UnsupportedVersion", f"the version {version[:20]!r} is not supported; known: {VERSION}"
        )
    try:
        message = msgspec.json.decode(body, type=EventMessage)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage("MalformedMessage", f"not an event message: {error}") from None
    for name, text in (
        ("timestamp", message.timestamp),
        ("receivedAt", message.data.metadata.received_at),
    ):
        if not _TIME.fullmatch(text):
            raise BadMessage("MalformedMessage", f"{name} is not an ISO-8601 time")
    if not message.message_id or not message.data.metadata.event_id or message.retry_count < 0:
        raise BadMessage("MalformedMessage", "messageId or eventId is empty, or retryCount below 0")
    if (message.data.slack_event is None) == (message.data.event is None):
        raise BadMessage("MalformedMessage", "data needs either slackEvent or event")
    if not has_place(message.data):
        raise BadMessage("MalformedMessage", "slackEvent has no valid channel, user or ts")
    return message


def attributes_of(message: EventMessage, priority: int = PRIORITY_DEFAULT) -> Attributes:
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise ValueError(f"a priority is {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority}")
    return Attributes(message.event_type, message.source, priority)


def encode_attributes(attributes: Attributes) -> dict[str, dict[str, str]]:
    """The attributes in the form of SQS."""
    return {
        "eventType": {"DataType": "String", "StringValue": attributes.event_type},
        "priority": {"DataType": "Number", "StringValue": str(attributes.priority)},
        "source": {"DataType": "String", "StringValue": attributes.source},
        "version": {"DataType": "String", "StringValue": attributes.version},
    }


def decode_attributes(found: Mapping[str, Mapping[str, Any]]) -> Attributes:
    """Read the attributes of SQS. Missing and unreadable attributes have their default values."""
    texts = {name: str(one.get("StringValue", "")) for name, one in found.items()}
    priority = texts.get("priority", "")
    is_priority = re.fullmatch(f"[{PRIORITY_MIN}-{PRIORITY_MAX}]", priority) is not None
    return Attributes(
        texts.get("eventType", ""),
        texts.get("source", ""),
        int(priority) if is_priority else PRIORITY_DEFAULT,
        texts.get("version") or VERSION,
    )


def error_info(
    error_type: str, error_message: str, stack_trace: str, *, attempts: int, last_attempt_ms: int
) -> ErrorInfo:
    """The error context, cut to ERROR_BYTES_MAX. The caller has redacted the texts."""
    said = _cut(error_message, _MESSAGE_BYTES_MAX)
    room = ERROR_BYTES_MAX - len(said.encode())
    return ErrorInfo(error_type, said, _cut(stack_trace, room), attempts, iso(last_attempt_ms))


def wrapped(
    body: bytes, error: ErrorInfo, *, at_ms: int, queue_arn: str, receives: int
) -> DeadLetterMessage:
    """The dead letter of a message body, which need not be readable."""
    metadata = DlqMetadata(iso(at_ms), queue_arn, receives)
    return DeadLetterMessage(msgspec.Raw(_json(body)), error, metadata)


def encode_dead_letter(letter: DeadLetterMessage) -> bytes:
    return _legal(msgspec.json.encode(letter))


def decode_dead_letter(body: bytes) -> DeadLetterMessage:
    """A dead letter of either shape: a wrapper, or a message that the broker moved unchanged."""
    try:
        return msgspec.json.decode(_legal(body), type=DeadLetterMessage)
    except (msgspec.DecodeError, RecursionError):
        return DeadLetterMessage(msgspec.Raw(_json(body)))


def original_of(letter: DeadLetterMessage, version: str = VERSION) -> EventMessage:
    """The message inside a dead letter, also inside one that failed again. Raises BadMessage."""
    body = bytes(letter.original_message)
    while (inner := _wrapper(body)) is not None:
        body = bytes(inner.original_message)
    return decode_message(body, version)


def unwrapped(body: bytes, version: str, at_ms: int) -> bytes:
    """The body to process. An operator may have moved a dead letter back as it was, which the
    broker offers: its message is redriven. Other bodies stay as they are.
    """
    letter = _wrapper(body)
    if letter is None:
        return body
    try:
        return encode_message(redriven(letter, at_ms=at_ms, version=version))
    except BadMessage:
        return body


def _wrapper(body: bytes) -> DeadLetterMessage | None:
    """None: the body is no dead letter that has its error."""
    if b'"originalMessage"' not in body:
        return None
    letter = decode_dead_letter(body)
    return None if letter.error_info is None else letter


def redriven(letter: DeadLetterMessage, *, at_ms: int, version: str = VERSION) -> EventMessage:
    """The message to publish again: its content and ids as they were, and one more retry.

    Raises BadMessage where the original cannot be read.
    """
    original = original_of(letter, version)
    return msgspec.structs.replace(
        original, retry_count=original.retry_count + 1, timestamp=iso(at_ms)
    )


def batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Batches that the queue accepts, in order. A body alone may be above BATCH_BYTES_MAX."""
    batch: list[bytes] = []
    size = 0
    for body in bodies:
        if batch and (len(batch) == BATCH_MAX or size + len(body) > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += len(body)
    if batch:
        yield batch


def _legal(body: bytes) -> bytes:
    """The same JSON without the two characters that XML, and so SQS, does not have."""
    return body.replace(b"\xef\xbf\xbe", b"\\ufffe").replace(b"\xef\xbf\xbf", b"\\uffff")


def _json(body: bytes) -> bytes:
    """The body where it is JSON, else as a JSON string, so that it survives inside a wrapper."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        body = msgspec.json.encode(body.decode(errors="replace"))
    return _legal(body)


def _cut(text: str, bytes_max: int) -> str:
    raw = text.encode(errors="replace")
    return text if len(raw) <= bytes_max else raw[:bytes_max].decode(errors="ignore")
