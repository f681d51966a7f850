"""inbound.slack: Slack's Events API.

Slack signs `v0:{timestamp}:{raw body}` with the signing secret of the app. Every team of a tenant
has its own secret, and the event has to name a team whose secret has signed it. Bots, edits and our
own messages are ignored, or a reply would cause the next event.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.durations import iso
from gesta.domain.event_message import (
    PRIORITY_DEFAULT,
    SLACK_MESSAGE,
    SLACK_SOURCE,
    BadMessage,
    EventData,
    EventMessage,
    Metadata,
    SlackEvent,
    has_place,
    is_channel,
    is_ts,
    masked_signature,
    slack_message_id,
)
from gesta.domain.outcome import Outcome, Rejected
from gesta.flows.flow import ConfigBody, Flow, Payload, Secret
from gesta.intake.inbound.inbox import EventRecord
from gesta.intake.inbound.slack_text import Match, after_keyword
from gesta.intake.inbound.source import (
    Action,
    Challenge,
    Malformed,
    Posted,
    Received,
    Source,
    Untrusted,
    Verdict,
)
from gesta.security.hmac_key import HmacKey

if TYPE_CHECKING:
    from gesta.tenants.config import TenantConfig
    from gesta.tenants.templates.renderer import Renderer

NAME: Final = "inbound.slack"
TEAM: Final = "slack.team"
KEYWORD: Final = "Backlog登録希望"
TOLERANCE_SECONDS: Final = 300
#: Slack limits a text to 40,000 characters and sends it twice, as text and as blocks.
BODY_BYTES_MAX: Final = 1024 * 1024

_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_TEAM_ID: Final = re.compile(r"[TE][A-Z0-9]{1,30}")
_EVENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Subtypes of messages that people write.
_WRITTEN: Final = frozenset({None, "file_share", "thread_broadcast"})
_NO_PLACE: Final = "the message has no valid channel, user or ts"
_REASONS: Final = {"message_changed": "edited", "message_deleted": "deleted"}


class Team(ConfigBody, frozen=True):
    """A Slack team, by its id: how its events are verified, and what they lead to."""

    #: Of the Slack app: Basic Information, App Credentials.
    signing_secret: Secret[str]
    keyword: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = KEYWORD
    match: Match = "prefix"
    #: The flow of the requests that events lead to. Its payload has the field `event`.
    flow: str = "ticket.backlog"
    #: Code of the backlog.space that issues are created in.
    space: str = "default"
    #: Empty: all channels that the app is in.
    channels: tuple[str, ...] = ()
    #: Code of the slack.workspace that replies are sent from.
    workspace: str = "default"
    #: Post one reply in the thread: the issue, or that it could not be created.
    reply: bool = True
    #: `{key}` and `{url}` are those of the issue. Neither text may contain the keyword.
    reply_created: Annotated[str, msgspec.Meta(max_length=500)] = "課題を登録しました: {key} {url}"
    reply_failed: Annotated[str, msgspec.Meta(max_length=500)] = (
        "課題を登録できませんでした。管理者に連絡してください。"
    )
    #: 1 (most urgent) to 5.
    priority: Annotated[int, msgspec.Meta(ge=1, le=5)] = PRIORITY_DEFAULT
    #: Keep a record of ignored messages, without their text.
    record_ignored: bool = True
    #: `example` of example.slack.com, for links to messages.
    domain: Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]*$")] = ""

    async def errors(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        errors = {}
        if not _TEAM_ID.fullmatch(code):
            errors["code"] = "the id of a Slack team, for instance T012AB3CD"
        if bad := [one for one in self.channels if not is_channel(one)]:
            errors["channels"] = f"{bad[0]!r} is not the id of a channel, for instance C012AB3CD"
        if not self.keyword.strip():
            errors["keyword"] = "at least one character that is not blank"
        for name in ("reply_created", "reply_failed"):
            text = getattr(self, name)
            if not text.strip():
                errors[name] = "at least one character that is not blank"
            elif after_keyword(text, self.keyword, "contains") is not None:
                errors[name] = "contains the keyword; a reply must not create another issue"
        return errors


class SlackRecord(EventRecord, frozen=True):
    """An ignored event of Slack."""


class _Part(msgspec.Struct, frozen=True):
    """Slack adds fields at any time: unknown ones are ignored."""


class _Event(_Part, frozen=True):
    type: str
    subtype: str | None = None
    channel: Any = None
    user: Any = None
    text: str | None = None
    ts: str | None = None
    thread_ts: str | None = None
    bot_id: Any = None
    bot_profile: Any = None
    app_id: Any = None


class _Envelope(_Part, frozen=True):
    type: str
    challenge: str = ""
    team_id: str = ""
    api_app_id: str = ""
    event: _Event | None = None
    event_id: str = ""
    event_time: int = 0
    minute_rate_limited: int = 0


_decoder: Final = msgspec.json.Decoder(_Envelope)


def flow() -> Flow:
    """The source: `POST /inbound/slack/events`. Teams are config of the kind `slack.team`."""
    source = Source("slack", _verify, _read, _follow, records_invalid=True)
    return Flow(
        NAME, SlackRecord, _execute, Rules(), config={TEAM: Team}, inbound=source, effects="attempt"
    )


async def _execute(_: SlackRecord, __: object) -> Outcome:
    return Rejected("not_executable", "inbound.slack only records events; post them to /inbound")


class _Signed(msgspec.Struct, frozen=True):
    """The teams whose secret has signed the request, and what they signed with."""

    teams: Sequence[str]
    timestamp: str
    signature: str


async def _verify(posted: Posted, config: TenantConfig) -> _Signed:
    timestamp = posted.header("x-slack-request-timestamp")
    given = posted.header("x-slack-signature")
    if timestamp is None or given is None:
        raise Untrusted("missing_header")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise Untrusted("bad_header")
    if abs(posted.received_ms / 1000 - int(timestamp)) > TOLERANCE_SECONDS:
        raise Untrusted("too_old")
    signed, sent = f"v0:{timestamp}:".encode() + posted.body, given.encode()
    teams = []
    for team in config.derived(NAME, _team_codes):
        secrets = config.secrets_at_hand(TEAM, team, "signing_secret")
        if secrets is None:
            secrets = await config.secrets(TEAM, team, "signing_secret")
        # Every secret is compared, each in constant time, before anything is concluded.
        matches = [hmac.compare_digest(_signature(secret, signed), sent) for secret in secrets]
        if any(matches):
            teams.append(team)
    if not teams:
        raise Untrusted("bad_signature")
    return _Signed(teams, timestamp, given)


def _team_codes(config: TenantConfig) -> tuple[str, ...]:
    return tuple(one.code for one in config.entities() if one.kind == TEAM)


def _signature(secret: str, signed: bytes) -> bytes:
    return b"v0=" + _key(secret).digest(signed).hex().encode()


@lru_cache(maxsize=256)
def _key(secret: str) -> HmacKey:
    return HmacKey(secret.encode())


def _read(posted: Posted, signed: _Signed, config: TenantConfig) -> Challenge | Sequence[Received]:
    try:
        envelope = _decoder.decode(posted.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Malformed("the body is not a Slack event") from None
    if envelope.type == "url_verification":
        return Challenge({"challenge": envelope.challenge})
    team_id = envelope.team_id
    if team_id not in signed.teams:
        # Genuine, but of a team that this tenant does not have, or has under another secret.
        raise Untrusted("unknown_team")
    if envelope.type == "app_rate_limited":
        event_id = f"app_rate_limited-{envelope.minute_rate_limited}"
        verdict = Verdict("app_rate_limited", "Slack drops events of this app")
        return [_ignored(team_id, event_id, verdict, {})]
    if (
        envelope.type != "event_callback"
        or envelope.event is None
        or not _EVENT_ID.fullmatch(envelope.event_id)
    ):
        raise Malformed("the body is not a Slack event")
    team = config.get(TEAM, team_id)
    assert team is not None
    assert isinstance(team.body, Team)
    return [_received(posted, signed, envelope, envelope.event, team.body)]


def _received(
    posted: Posted, signed: _Signed, envelope: _Envelope, event: _Event, team: Team
) -> Received:
    team_id, event_id, channel, ts = envelope.team_id, envelope.event_id, event.channel, event.ts
    reason = _ignored_because(event, envelope.api_app_id)
    if reason:
        verdict = Verdict(reason, is_recorded=team.record_ignored)
        facts = {
            "type": event.type[:40],
            "channel": channel if is_channel(channel) else "",
            "ts": ts if ts is not None and is_ts(ts) else "",
        }
        return _ignored(team_id, event_id, verdict, facts)
    if not isinstance(channel, str) or not isinstance(event.user, str):
        raise Malformed(_NO_PLACE)
    received_at = iso(posted.received_ms)
    message = EventMessage(
        slack_message_id(team_id, event_id),
        received_at,
        SLACK_SOURCE,
        SLACK_MESSAGE,
        EventData(
            Metadata(
                received_at,
                posted.request_id,
                masked_signature(signed.signature),
                signed.timestamp,
                event_id,
                team_id,
                envelope.event_time,
                signature_verified=True,
                thread_ts=event.thread_ts or "",
            ),
            SlackEvent("message", channel, event.user, event.text or "", ts or "", team_id),
        ),
    )
    if not has_place(message.data):
        raise Malformed(_NO_PLACE)
    return _of(message, team, {"type": event.type[:40], "channel": channel, "ts": ts or ""})


def _follow(message: EventMessage, config: TenantConfig) -> Received:
    """The same decision about a message of the boundary queue. Raises BadMessage."""
    event, metadata = message.data.slack_event, message.data.metadata
    if event is None:
        return Received(message.message_id, Verdict("not_a_message"))
    team = config.get(TEAM, metadata.team_id or event.team)
    if team is None:
        # Another program accepted it. It can be redriven once the team is stored.
        raise BadMessage("UnknownTeam", "its team is not stored as a slack.team of this tenant")
    assert isinstance(team.body, Team)
    return _of(message, team.body, {"channel": event.channel, "ts": event.ts})


def _of(message: EventMessage, team: Team, facts: Mapping[str, str]) -> Received:
    event, metadata = message.data.slack_event, message.data.metadata
    assert event is not None
    team_id = metadata.team_id or event.team
    if team.channels and event.channel not in team.channels:
        verdict = Verdict("channel_not_configured", is_recorded=team.record_ignored)
        return _ignored(team_id, metadata.event_id, verdict, facts)
    if after_keyword(event.text, team.keyword, team.match) is None:
        verdict = Verdict("no_keyword", is_recorded=team.record_ignored)
        return _ignored(team_id, metadata.event_id, verdict, facts)

    def payload(kind: type[Payload]) -> Payload:
        more = {} if team.space == "default" else {"space": team.space}
        return kind(event=message, **more)

    action = Action(
        team.flow,
        payload,
        message_key(team_id, event.channel, event.ts),
        claims_event=bool(metadata.event_id),
        priority=team.priority * 2,
    )
    return Received(message.message_id, action, facts, message)


def message_key(team: str, channel: str, ts: str) -> str:
    """Identifies one Slack message; several events may be about it."""
    return f"slack:{team}/{channel}/{ts}"


def _ignored(team: str, event_id: str, verdict: Verdict, facts: Mapping[str, str]) -> Received:
    return Received(slack_message_id(team, event_id), verdict, facts)


def _ignored_because(event: _Event, own_app: str) -> str:
    """Why an event is ignored whatever its text is; empty: it may lead to a request."""
    if event.type not in ("message", "app_mention"):
        return "not_a_message"
    if own_app and event.app_id == own_app:
        return "own_message"
    if event.bot_id or event.bot_profile or event.app_id or event.subtype == "bot_message":
        return "bot_message"
    if event.subtype not in _WRITTEN:
        return _REASONS.get(event.subtype or "", "not_written_by_a_person")
    return ""
