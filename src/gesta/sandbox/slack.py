"""A fake of Slack's Web API: posts messages, keeps them with their metadata, and lists them; and
events as Slack posts and signs them, for tests, the demo and `gesta sandbox slack-event`.

A repeat is a second message, as at Slack: no documented argument of chat.postMessage prevents it.
"""

import hashlib
import hmac
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply, retry_after_header

_POST: Final = "chat.postMessage"
_METHODS: Final = frozenset(
    {_POST, "auth.test", "conversations.open", "conversations.history", "conversations.replies"}
)
_PLACE: Final = re.compile(r"[CDGUW][A-Z0-9]{2,}")
_JSON: Final = {"content-type": "application/json; charset=utf-8"}
#: Slack's default page size.
_PAGE: Final = 100
_TEXT_LENGTH_MAX: Final = 40_000
APP: Final = "A0SANDBOX"
TEAM, CHANNEL, USER = "T0SANDBOX", "C0SANDBOX", "U0PERSON"


class FakeSlack(Receiver):
    """The fake behind slack.com, and behind any URL whose path ends in a method of Slack.

    `on("xoxb-old", error="token_revoked")` revokes a token, `on("C012AB3CD", status=429,
    retry_after=30)` matches one channel.
    """

    name = "slack"

    def serves(self, request: HttpRequest) -> bool:
        parts = urlsplit(request.url)
        return parts.hostname == "slack.com" or _method(request) in _METHODS

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        method, token = _method(request), headers.get("authorization", "").removeprefix("Bearer ")
        try:
            arguments = _arguments(request, headers.get("content-type", ""))
        except msgspec.DecodeError:
            return _error("invalid_json")
        if method not in _METHODS:
            return _error("unknown_method")
        if not token:
            return _error("not_authed")
        place, text = str(arguments.get("channel", "")), str(arguments.get("text") or "")
        if fault := _fault_of(method, arguments, place):
            return _error(fault)
        return Call(None, method, arguments, headers, request.body or b"", text, (token, place))

    def refusal(self, fault: Fault) -> Reply:
        error = fault.error or ("ratelimited" if fault.status == 429 else "")
        body = _body({"ok": False, "error": error}) if error else b""
        return Reply(
            200 if fault.status is None else fault.status, body, _JSON | retry_after_header(fault)
        )

    def answer(self, call: Call) -> Reply | None:
        match call.type:
            case "auth.test":
                return _ok(
                    url="https://sandbox.slack.com/",
                    team="sandbox",
                    user="gesta",
                    team_id=TEAM,
                    user_id="U0SANDBOX",
                )
            case "conversations.open":
                return _ok(channel={"id": _conversation(str(call.data["users"]))})
            case "conversations.history":
                # Newest first, without replies in threads.
                found = [
                    message
                    for message in self._messages(call)
                    if message.get("thread_ts", message["ts"]) == message["ts"]
                ]
                return _page(list(reversed(found)), call.data)
            case "conversations.replies":
                started = call.data.get("ts")
                return _page(
                    [
                        message
                        for message in self._messages(call)
                        if started in (message["ts"], message.get("thread_ts"))
                    ],
                    call.data,
                )
            case _:
                return None

    def success(self, effect: Effect) -> Reply:
        effect.id = f"{self.now_ms // 1000}.{self.performed:06d}"
        said = {"type": "message", "ts": effect.id, "text": effect.text}
        warned = {"warning": "message_truncated"} if len(effect.text) > _TEXT_LENGTH_MAX else {}
        return _ok(
            channel=_conversation(effect.data["channel"]), ts=effect.id, message=said, **warned
        )

    def _messages(self, call: Call) -> list[dict[str, Any]]:
        """The messages of a conversation, oldest first."""
        place, oldest, latest = (
            call.data["channel"],
            float(call.data.get("oldest", 0)),
            float(call.data.get("latest", "inf")),
        )
        kept = (
            "text",
            "blocks",
            "thread_ts",
            *(
                ("metadata",)
                if call.data.get("include_all_metadata") in ("1", "true", True)
                else ()
            ),
        )
        return [
            {"type": "message", "ts": effect.id}
            | {name: effect.data[name] for name in kept if name in effect.data}
            for effect in self.effects
            if _conversation(effect.data["channel"]) == place and oldest < float(effect.id) < latest
        ]


def _method(request: HttpRequest) -> str:
    return urlsplit(request.url).path.rpartition("/")[2]


def _arguments(request: HttpRequest, content_type: str) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(parse_qsl(urlsplit(request.url).query))
    if request.body and content_type.startswith("application/json"):
        return arguments | msgspec.json.decode(request.body, type=dict[str, Any])
    return arguments | dict(parse_qsl((request.body or b"").decode(errors="replace")))


def _fault_of(method: str, arguments: dict[str, Any], place: str) -> str:
    """Slack's error code for wrong arguments; empty if there is none."""
    if method == "auth.test":
        return ""
    if method == "conversations.open":
        return "" if _PLACE.fullmatch(str(arguments.get("users", ""))) else "user_not_found"
    if not _PLACE.fullmatch(place) or (method != _POST and place[0] in "UW"):
        return "channel_not_found"
    return (
        "no_text"
        if method == _POST and not (arguments.get("text") or arguments.get("blocks"))
        else ""
    )


def _conversation(place: str) -> str:
    """The conversation that holds messages to this id: for a user, the one with that user."""
    return f"D{place[1:]}" if place[0] in "UW" else place


def _page(messages: list[dict[str, Any]], arguments: dict[str, Any]) -> Reply:
    start, limit = int(arguments.get("cursor") or 0), int(arguments.get("limit") or _PAGE)
    rest = len(messages) > start + limit
    cursor = {"response_metadata": {"next_cursor": str(start + limit)}} if rest else {}
    return _ok(messages=messages[start : start + limit], has_more=rest, **cursor)


def _ok(**fields: Any) -> Reply:
    return Reply(200, _body({"ok": True, **fields}), _JSON)


def _error(code: str) -> Reply:
    return Reply(200, _body({"ok": False, "error": code}), _JSON)


def _body(fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode(fields)


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
