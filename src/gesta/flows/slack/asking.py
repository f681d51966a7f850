"""Asks Slack about a message: every message has a mark in its metadata, and the conversation is
searched for it.

"Not found" counts only when the whole period in which it can have been posted was read. Otherwise
the outcome stays unknown.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from gesta.domain.outcome import Done, Outcome, Retry, Unknown
from gesta.flows.attempt import Attempt
from gesta.flows.slack.client import SlackApi
from gesta.flows.slack.destination import Destination
from gesta.flows.slack.message import Message

EVENT_TYPE: Final = "gesta_request"
#: How much Slack's clock and ours may differ.
SKEW_MS: Final = 300_000
PAGE: Final = 200
PAGES_MAX: Final = 10

#: Digit → the digit with the variant bits of a UUID.
_VARIANTS: Final = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}
#: The version digit of a UUID of version 5.
_NAMESPACE: Final = hashlib.sha1(
    UUID("6d0f7a4e-4d0b-5f57-9f6e-5b1f7f0c2a11").bytes, usedforsecurity=False
)


def mark_of(attempt: Attempt) -> str:
    """A mark of the intent that reveals nothing: a UUID of version 5, which Slack also accepts as
    client_msg_id.
    """
    digest = _NAMESPACE.copy()
    digest.update(attempt.key.encode())
    digits = digest.hexdigest()
    # By hand, because creating a UUID object doubles the time.
    return (
        f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}"
        f"-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:32]}"
    )


def marked(content: dict[str, Any], attempt: Attempt) -> None:
    """Add the arguments by which the message can be found."""
    # client_msg_id is undocumented, so nothing relies on it; where Slack honours it, it prevents a
    # duplicate.
    mark = content["client_msg_id"] = mark_of(attempt)
    content["metadata"] = {
        "event_type": EVENT_TYPE,
        "event_payload": {"messageRequestId": attempt.request_id, "mark": mark},
    }


async def ask(
    message: Message, attempt: Attempt, destination: Destination, api: SlackApi
) -> Outcome:
    """Done: found. Retry: certainly not posted. Unknown: undecidable. Raises ProviderRefusal."""
    channel = await _conversation(destination.channel_id, api)
    method, arguments = "conversations.history", {"channel": channel}
    if message.thread_ts is not None:
        method, arguments = "conversations.replies", {"channel": channel, "ts": message.thread_ts}
    oldest = f"{max(0, attempt.first_ms - SKEW_MS) / 1000:.6f}"
    cursor, mark = "", mark_of(attempt)
    # Once for all pages: postponed between pages, the search would restart every time.
    await attempt.limits.take(destination.history_limit)
    for _ in range(PAGES_MAX):
        more = {"cursor": cursor} if cursor else {}
        answer = await api.get(
            method,
            arguments | {"oldest": oldest, "limit": PAGE, "include_all_metadata": True} | more,
        )
        if (ts := _marked(answer.get("messages"), mark)) is not None:
            return Done(ts, channel, f"found in {channel}")
        cursor = str((answer.get("response_metadata") or {}).get("next_cursor") or "")
        if not cursor:
            return _not_found(answer)
    return Unknown(
        "history_too_long", f"not among the latest {PAGES_MAX * PAGE} messages of the conversation"
    )


def _not_found(last: Mapping[str, Any]) -> Outcome:
    if not isinstance(last.get("messages"), list) or last.get("has_more") or last.get("is_limited"):
        return Unknown("history_incomplete", "Slack did not return the whole conversation")
    return Retry("not_posted", "the message is not in the conversation")


async def _conversation(channel_id: str, api: SlackApi) -> str:
    """For a user: the conversation with that user. Opening it again changes nothing."""
    if channel_id[0] not in "UW":
        return channel_id
    answer = await api.post("conversations.open", {"users": channel_id})
    return str(answer["channel"]["id"])


def _marked(messages: object, mark: str) -> str | None:
    for message in messages if isinstance(messages, list) else ():
        payload = (message.get("metadata") or {}).get("event_payload") or {}
        if payload.get("mark") == mark:
            return str(message.get("ts", ""))
    return None
