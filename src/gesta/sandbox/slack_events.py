"""Events as Slack posts them, signed as Slack signs them: for tests, the demo and
`gesta sandbox slack-event`.
"""

import hashlib
import hmac
from typing import Any, Final

import msgspec

APP: Final = "A0SANDBOX"
TEAM, CHANNEL, USER = "T0SANDBOX", "C0SANDBOX", "U0PERSON"


class Posting(msgspec.Struct, frozen=True):
    """What is posted to `/inbound/slack/events`."""

    body: bytes
    headers: dict[str, str]


def message_event(
    text: str,
    *,
    event_id: str,
    ts: str,
    team: str = TEAM,
    channel: str = CHANNEL,
    **event: Any,
) -> dict[str, Any]:
    """The envelope of a message. `event` replaces and adds fields; None removes one."""
    fields = {
        "type": "message",
        "channel": channel,
        "user": USER,
        "text": text,
        "ts": ts,
        "event_ts": ts,
        "channel_type": "channel",
        "team": team,
    } | event
    return {
        "token": "ignored",
        "team_id": team,
        "api_app_id": APP,
        "event": {name: value for name, value in fields.items() if value is not None},
        "type": "event_callback",
        "event_id": event_id,
        "event_time": int(seconds) if (seconds := ts.partition(".")[0]).isdecimal() else 0,
    }


def signed(envelope: Any, secret: str, at_seconds: int, *, retry: int = 0) -> Posting:
    """The request of Slack. `retry` is the number of a repeat."""
    body = envelope if isinstance(envelope, bytes) else msgspec.json.encode(envelope)
    text = f"v0:{at_seconds}:".encode() + body
    headers = {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": str(at_seconds),
        "X-Slack-Signature": "v0=" + hmac.digest(secret.encode(), text, hashlib.sha256).hex(),
    }
    if retry:
        headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"}
    return Posting(body, headers)
