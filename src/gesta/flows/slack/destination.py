"""Where a message goes and under which token: workspace, channel and app by their codes, as they
are at this attempt.
"""

from typing import NamedTuple

import msgspec

from gesta.domain.outcome import Rejected
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import SECRET_MISSING, ConfigMissing, CredentialRefused
from gesta.flows.slack.message import (
    APP,
    CHANNEL,
    DEFAULT,
    PLACE,
    PLACE_RULE,
    WORKSPACE,
    App,
    Channel,
    Message,
    Workspace,
)
from gesta.outbound.http import AttemptEnded
from gesta.outbound.rate_limits import Limit
from gesta.tenants.config import Entity, TenantConfig, not_stored
from gesta.tenants.templates.templates import TEMPLATE, find_template

#: After a rest a workspace may send so many at once.
_BURST = 10
#: Slack lets a conversation be read fifty times a minute. A question reads it once, where not very
#: much has been said since.
_QUESTIONS_PER_SECOND = 0.5


class Destination(NamedTuple):
    """Everything that a call needs beside its token and what is in the message itself."""

    #: Up to the slash before a method's name.
    api_url: str
    channel_id: str
    #: Arguments of the call: where it goes and how it looks.
    arguments: dict[str, str | bool]
    #: The key that Slack's "too fast" closes, and the one around it.
    channel_limit: Limit
    workspace_limit: Limit
    history_limit: Limit
    #: The tenant has a workspace of that code; otherwise it is the one that the program declares.
    is_stored: bool
    #: What is filled in; None where there is none, or nobody asked for it.
    template: Entity | None = None


def destination_of(message: Message, attempt: Attempt, declared: str | None) -> Destination:
    """By codes, never by what a job carries.

    Ends the attempt when something that the message names is not there.
    """
    key = (WORKSPACE, *_named(message), declared is None)
    return attempt.config.derived(key, _resolved, message, declared)


def with_template(
    message: Message, attempt: Attempt, declared: str | None, template: str
) -> Destination:
    """The same with the message's template."""
    key = (TEMPLATE, template, message.locale, *_named(message), declared is None)
    return attempt.config.derived(key, _resolved_with, message, declared, template)


def _named(message: Message) -> tuple[str | None, ...]:
    """Everything in the message that decides about its destination."""
    return (
        message.workspace,
        message.channel,
        message.channel_code,
        message.recipient,
        message.app,
    )


def _resolved_with(
    config: TenantConfig, message: Message, declared: str | None, template: str
) -> Destination:
    return _resolved(config, message, declared)._replace(
        template=find_template(config, template, message.locale)
    )


def _resolved(config: TenantConfig, message: Message, declared: str | None) -> Destination:
    stored = config.get(WORKSPACE, message.workspace)
    workspace = _workspace(message, stored, declared)
    channel = _channel(message, config)
    app = _app(message, config)
    channel_id = _channel_id(message, channel, workspace)
    per_second = (
        workspace.channel_per_second
        if channel is None or channel.per_second is None
        else channel.per_second
    )
    name = f"slack/{message.workspace}"
    return Destination(
        workspace.api_url if workspace.api_url.endswith("/") else f"{workspace.api_url}/",
        channel_id,
        {"channel": channel_id, **_look(app)},
        Limit(f"{name}/{channel_id}", per_second),
        Limit(name, workspace.per_second, _BURST),
        Limit(f"{name}/history", _QUESTIONS_PER_SECOND, _BURST),
        stored is not None,
    )


def token_at_hand(
    message: Message, attempt: Attempt, destination: Destination, declared: str | None
) -> str | None:
    """The token as it is at this attempt; None: the vault has to be asked.

    Raises CredentialRefused when the program declares one that is not there.
    """
    if not destination.is_stored:
        return _declared_token(message, attempt, declared)
    # The newest: an older one is kept for a while for receivers of signatures, and Slack receives
    # none.
    tokens = attempt.config.secrets_at_hand(WORKSPACE, message.workspace, "token")
    return tokens[0] if tokens else None


async def stored_token(message: Message, attempt: Attempt) -> str:
    """The same from the vault. Raises CredentialRefused when there is none."""
    tokens = await attempt.config.secrets(WORKSPACE, message.workspace, "token")
    if not tokens:
        raise CredentialRefused(credential_of(message), SECRET_MISSING, "the vault has no token")
    return tokens[0]


def _workspace(message: Message, stored: Entity | None, declared: str | None) -> Workspace:
    if stored is not None:
        assert isinstance(stored.body, Workspace)
        return stored.body
    if declared is None or message.workspace != DEFAULT:
        raise ConfigMissing(WORKSPACE, message.workspace, "workspace_missing")
    return Workspace("")


def _channel(message: Message, config: TenantConfig) -> Channel | None:
    """The channel that the message names.

    One that is not there must fail: elsewhere, strangers would read the message.
    """
    code = message.code
    if code is None:
        return None
    stored = config.get(CHANNEL, code)
    if stored is None:
        raise AttemptEnded(Rejected("channel_config_missing", not_stored(CHANNEL, code)))
    assert isinstance(stored.body, Channel)
    if stored.body.disabled:
        raise AttemptEnded(
            Rejected(
                "channel_config_missing",
                f"the {CHANNEL} is disabled: {stored.body.disabled_reason or 'no reason given'}",
            )
        )
    if stored.body.workspace != message.workspace:
        raise AttemptEnded(
            Rejected(
                "channel_config_missing",
                f"the {CHANNEL} belongs to the workspace {stored.body.workspace}, and the message"
                f" is for {message.workspace}: give it a workspace",
            )
        )
    return stored.body


def _channel_id(message: Message, channel: Channel | None, workspace: Workspace) -> str:
    if channel is not None:
        return channel.channel_id
    place = message.place
    if place is not None:
        if not PLACE.fullmatch(place):
            raise AttemptEnded(Rejected("invalid_recipient", PLACE_RULE))
        return place
    if workspace.default_channel_id is None:
        raise AttemptEnded(
            Rejected(
                "channel_missing",
                "the message names no channel and the workspace has no default_channel_id",
            )
        )
    return workspace.default_channel_id


def _app(message: Message, config: TenantConfig) -> App | None:
    if message.app is None:
        return None
    stored = config.get(APP, message.app)
    if stored is None:
        raise AttemptEnded(Rejected("app_config_missing", not_stored(APP, message.app)))
    assert isinstance(stored.body, App)
    return stored.body


def _look(app: App | None) -> dict[str, str | bool]:
    return (
        {}
        if app is None
        else {
            name: value for name, value in msgspec.structs.asdict(app).items() if value is not None
        }
    )


def credential_of(message: Message) -> str:
    """What a refused token is held under."""
    return f"{WORKSPACE}/{message.workspace}"


def _declared_token(message: Message, attempt: Attempt, declared: str | None) -> str:
    assert declared is not None
    try:
        return attempt.config.reference(declared)
    except KeyError:
        raise CredentialRefused(
            credential_of(message), SECRET_MISSING, f"{declared} is not set"
        ) from None
