"""The payload of a Slack message and the config kinds that it refers to by code."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

import msgspec

from gesta.flows.flow import ConfigBody, Payload, Secret
from gesta.outbound.rate_limits import PerSecond
from gesta.ports.read_model import View

NAME: Final = "notification.slack"
#: The config kinds of this channel.
WORKSPACE: Final = "slack.workspace"
CHANNEL: Final = "slack.channel"
APP: Final = "slack.app"
#: The workspace of a message that names none, and the one that `flow(token=…)` declares.
DEFAULT: Final = "default"
API_URL: Final = "https://slack.com/api/"
#: Slack truncates a longer text with only a warning.
TEXT_LENGTH_MAX: Final = 40_000
BLOCKS_MAX: Final = 50

#: Ids of channels, direct messages, groups and users. A name (#name, @name) or an address may
#: belong to another channel or person later.
PLACE: Final = re.compile(r"[CDGUW][A-Z0-9]{2,}")
PLACE_RULE: Final = (
    "must be a Slack id, C… D… G… U… or W… in capitals and digits, not a name or an address"
)

Code = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
ChannelCode = Annotated[str, msgspec.Meta(pattern=f"^{PLACE.pattern}$")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
Blocks = Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=BLOCKS_MAX)]
#: A string, because a float would lose its last digits.
Ts = Annotated[str, msgspec.Meta(pattern=r"^\d{10}\.\d{6}$")]


class Message(Payload, frozen=True, omit_defaults=True, rename="camel"):
    """A message: text, blocks or both, or a template with its data.

    `channel` is an id of Slack's or the code of a `slack.channel`. `recipient` takes only an id,
    `channel_code` only a code. Without any of them the message goes to the workspace's default
    channel.
    """

    channel: Code | None = None
    text: Text | None = None
    blocks: Blocks | None = None
    template: Code | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    locale: Annotated[str, msgspec.Meta(min_length=1, max_length=35)] | None = None
    #: The message that this one answers.
    thread_ts: Ts | None = None
    workspace: Code = DEFAULT
    channel_code: Code | None = None
    recipient: Code | None = None
    app: Code | None = None

    @property
    def code(self) -> str | None:
        """The code of the `slack.channel` that the message names."""
        is_code = self.channel is not None and not PLACE.fullmatch(self.channel)
        return self.channel if is_code else self.channel_code

    @property
    def place(self) -> str | None:
        """The recipient's id in Slack, if the message names one."""
        is_place = self.channel is not None and PLACE.fullmatch(self.channel)
        return self.channel if is_place else self.recipient

    @property
    def has_content(self) -> bool:
        return self.text is not None or self.blocks is not None


class Workspace(ConfigBody, frozen=True):
    """A workspace of the tenant and the token that posts there."""

    sent_to: ClassVar = {"token": ("api_url",)}

    token: Secret[str]
    #: Where a message goes that names no channel.
    default_channel_id: ChannelCode | None = None
    #: Slack takes several hundred messages a minute from an app in one workspace,
    per_second: PerSecond = 5.0
    #: and about one a second in one channel.
    channel_per_second: PerSecond = 1.0
    #: Another address of the API; the private-address guard applies.
    api_url: Annotated[
        str, msgspec.Meta(pattern=r"^https?://[^\s/?#]+/", max_length=2_048, examples=[API_URL])
    ] = API_URL

    def __repr__(self) -> str:
        return f"Workspace(default_channel_id={self.default_channel_id!r})"


class Channel(ConfigBody, frozen=True):
    """A channel under a code of the tenant's.

    A message to a disabled channel fails; it never goes to another one.
    """

    channel_id: ChannelCode
    workspace: Code = DEFAULT
    disabled: bool = False
    disabled_reason: str = ""
    #: Instead of the workspace's.
    per_second: PerSecond | None = None


class App(ConfigBody, frozen=True):
    """How messages look: the name and icon they are posted under, and whether links unfold."""

    username: Annotated[str, msgspec.Meta(min_length=1, max_length=80)] | None = None
    icon_emoji: (
        Annotated[str, msgspec.Meta(pattern="^:[^:\\s]+:$", examples=[":robot_face:"])] | None
    ) = None
    icon_url: (
        Annotated[
            str,
            msgspec.Meta(
                pattern="^https://", max_length=2_048, examples=["https://example.com/icon.png"]
            ),
        ]
        | None
    ) = None
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None


def errors_of(message: Message) -> Mapping[str, str]:
    """Field → error, for what the type cannot express."""
    errors = {}
    if message.template is not None and message.has_content:
        errors["template"] = "give either a template or text and blocks, not both"
    elif message.template is None and not message.has_content:
        errors["text"] = "missing: a message needs text, blocks or a template"
    if message.template is None and (message.data or message.locale is not None):
        errors["data" if message.data else "locale"] = "only used with a template"
    if message.channel is not None and (message.recipient or message.channel_code):
        errors["channel"] = "give one of channel, recipient and channelCode"
    elif message.recipient is not None and message.channel_code is not None:
        errors["recipient"] = "give a recipient or a channelCode, not both"
    if message.recipient is not None and not PLACE.fullmatch(message.recipient):
        errors["recipient"] = PLACE_RULE
    return errors


def tags_of(message: Message, request_id: str) -> Mapping[str, str]:
    """Codes that every log line about the request carries."""
    tags = {"messageRequestId": request_id, "workspaceCode": message.workspace}
    if message.template is not None:
        tags["templateCode"] = message.template
    if message.code is not None:
        tags["channelCode"] = message.code
    return tags


_decode = msgspec.json.Decoder(Message).decode


class SendMessageJob(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """A pointer to a request. It has no field for an object or a secret.

    `thread_ts` is a hint; the request has it too.
    """

    message_request_id: UUID
    tenant: str
    thread_ts: Ts | None = None


def job_of(view: View) -> SendMessageJob:
    return SendMessageJob(UUID(view.state.id), view.state.tenant, _decode(view.payload).thread_ts)


def snapshot(view: View) -> dict[str, Any]:
    """A request's fields under the contract's names, without codes that it does not name."""
    message, state = _decode(view.payload), view.state
    codes = {
        "templateCode": message.template,
        "channelCode": message.code,
        "recipient": message.place,
        "threadTs": message.thread_ts,
    }
    return {
        "id": state.id,
        "tenant": state.tenant,
        "workspaceCode": message.workspace,
        **{name: code for name, code in codes.items() if code is not None},
        "data": message.data,
        "status": state.status,
        "version": state.version,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        # A stream's first event has revision 0.
        "lastStreamRevision": state.version - 1,
    }
