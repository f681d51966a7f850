"""What a request to Slack carries, and what a tenant stores by code for it."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

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
#: Slack cuts a longer text and only warns; half a message is not what was asked for.
TEXT_LENGTH_MAX: Final = 40_000
BLOCKS_MAX: Final = 50

#: Ids of channels, direct messages, groups and people. Anything else (#name, @name, an address) may
#: mean somebody else tomorrow.
PLACE: Final = re.compile(r"[CDGUW][A-Z0-9]{2,}")
PLACE_RULE: Final = (
    "must be an id of Slack's, C… D… G… U… or W… in capitals and digits; a name or an address is"
    " none"
)

Code = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
ChannelCode = Annotated[str, msgspec.Meta(pattern=f"^{PLACE.pattern}$")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
Blocks = Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=BLOCKS_MAX)]
#: A number in a text: as a float it would lose its last digits.
Ts = Annotated[str, msgspec.Meta(pattern=r"^\d{10}\.\d{6}$")]

#: Python's names, and the names that the contract of the requests has for them.
_STORED: Final = {
    "workspace": "workspaceCode",
    "template": "templateCode",
    "channel_code": "channelCode",
    "app": "appCode",
    "thread_ts": "threadTs",
}


class Message(Payload, frozen=True, omit_defaults=True, rename=_STORED):
    """A message: text, blocks or both, or a template with its data.

    `channel` is how callers say where: an id is kept as `recipient`, anything else as
    `channel_code`, the code of a `slack.channel`.
    Without any of the three it goes to the workspace's default channel.
    """

    channel: str | None = None
    text: Text | None = None
    blocks: Blocks | None = None
    template: Code | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    locale: Annotated[str, msgspec.Meta(min_length=1, max_length=35)] | None = None
    #: The message that this one answers.
    thread_ts: Ts | None = None
    workspace: Code = DEFAULT
    channel_code: Code | None = None
    recipient: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    app: Code | None = None

    def __post_init__(self) -> None:
        if self.channel is None:
            return
        # Two ways to say where would be two contents of one key; what is stored has one.
        if (
            isinstance(self.channel, str)
            and self.channel
            and self.channel_code is None
            and self.recipient is None
        ):
            force_setattr(
                self, "recipient" if PLACE.fullmatch(self.channel) else "channel_code", self.channel
            )
            force_setattr(self, "channel", None)

    @property
    def has_content(self) -> bool:
        return self.text is not None or self.blocks is not None


class Workspace(ConfigBody, frozen=True):
    """A workspace of the tenant's and the token that posts there."""

    sent_to: ClassVar = {"token": ("api_url",)}

    token: Secret[str]
    #: Where a message goes that says nothing about it.
    default_channel_id: ChannelCode | None = None
    #: Slack takes several hundred messages a minute from an app in one workspace,
    per_second: PerSecond = 5.0
    #: and about one a second in one channel.
    channel_per_second: PerSecond = 1.0
    #: Another address of the API; the private-address guard has its say.
    api_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/?#]+/", max_length=2_048)] = (
        API_URL
    )

    def __repr__(self) -> str:
        return f"Workspace(default_channel_id={self.default_channel_id!r})"


class Channel(ConfigBody, frozen=True):
    """A channel by a name of the tenant's own.

    Disabled, it fails what is sent to it and never lets it go elsewhere.
    """

    channel_id: ChannelCode
    workspace: Code = DEFAULT
    disabled: bool = False
    disabled_reason: str = ""
    #: Instead of the workspace's.
    per_second: PerSecond | None = None


class App(ConfigBody, frozen=True):
    """How messages look: the name and picture they are posted under, and what becomes of links."""

    username: Annotated[str, msgspec.Meta(min_length=1, max_length=80)] | None = None
    icon_emoji: Annotated[str, msgspec.Meta(pattern="^:[^:\\s]+:$")] | None = None
    icon_url: Annotated[str, msgspec.Meta(pattern="^https://", max_length=2_048)] | None = None
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None


def faults_of(message: Message) -> Mapping[str, str]:
    """Field → fault: what the type alone cannot say."""
    faults = {}
    if message.template is not None and message.has_content:
        faults["templateCode"] = "text and blocks come from the template: give either it or them"
    elif message.template is None and not message.has_content:
        faults["text"] = "missing: a message has text, blocks or a templateCode"
    if message.template is None and (message.data or message.locale is not None):
        faults["data" if message.data else "locale"] = "of no use without a templateCode"
    if message.channel is not None:
        faults["channel"] = (
            "names where it goes, as recipient and channelCode do: give one of the three"
        )
    elif message.recipient is not None and message.channel_code is not None:
        faults["recipient"] = "give a recipient or a channelCode, not both"
    if message.recipient is not None and not PLACE.fullmatch(message.recipient):
        faults["recipient"] = PLACE_RULE
    return faults


def tags_of(message: Message, request_id: str) -> Mapping[str, str]:
    """What every log line about the request carries."""
    tags = {"messageRequestId": request_id, "workspaceCode": message.workspace}
    if message.template is not None:
        tags["templateCode"] = message.template
    if message.channel_code is not None:
        tags["channelCode"] = message.channel_code
    return tags


_decode = msgspec.json.Decoder(Message).decode


class SendMessageJob(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """A pointer to a request, and nothing else: no object and no secret fits in.

    `thread_ts` is a hint; the request has it too.
    """

    message_request_id: UUID
    tenant: str
    thread_ts: Ts | None = None


def job_of(view: View) -> SendMessageJob:
    return SendMessageJob(UUID(view.state.id), view.state.tenant, _decode(view.payload).thread_ts)


def snapshot(view: View) -> dict[str, Any]:
    """A request's fields by their names in the contract; codes that it does not name are left
    out.
    """
    message, state = _decode(view.payload), view.state
    codes = {
        "templateCode": message.template,
        "channelCode": message.channel_code,
        "recipient": message.recipient,
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
