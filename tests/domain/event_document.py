"""The event message of the document, for every test that compares with it."""

from typing import Any

#: The example of the document, with the event id that deduplication needs and a masked signature.
DOCUMENT: dict[str, Any] = {
    "messageId": "unique-message-id",
    "timestamp": "2025-06-26T10:30:00Z",
    "source": "slack-event-ingest",
    "eventType": "slack.message",
    "data": {
        "slackEvent": {
            "type": "message",
            "channel": "C123ABC",
            "user": "U123ABC",
            "text": "Backlog登録希望 タスクの説明",
            "ts": "1234567890.123456",
            "team": "T123ABC",
        },
        "metadata": {
            "receivedAt": "2025-06-26T10:30:00Z",
            "apiGatewayRequestId": "request-id",
            "signature": "v0=a2114d57…",
            "signatureTimestamp": "1234567890",
            "eventId": "Ev123ABC",
        },
    },
    "retryCount": 0,
}
ATTRIBUTES = {
    "eventType": {"DataType": "String", "StringValue": "slack.message"},
    "priority": {"DataType": "Number", "StringValue": "3"},
    "source": {"DataType": "String", "StringValue": "slack-event-ingest"},
    "version": {"DataType": "String", "StringValue": "1.0"},
}
