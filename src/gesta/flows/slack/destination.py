"""Where a message goes and with which token: workspace, channel and app by code, as of this
attempt.
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

#: The burst of a workspace.
_BURST = 10
#: Slack allows reading a conversation fifty times a minute. A search usually reads it once.
_QUESTIONS_PER_SECOND = 0.5


class Destination(NamedTuple):
    """Everything that a call needs beside its token and content."""

    #: Ends with the slash before the method.
    api_url: str
    channel_id: str
    #: Channel and appearance.
    arguments: dict[str, str | bool]
    #: The limit that a rate-limited answer closes, and the one of the workspace.
    channel_limit: Limit
    workspace_limit: Limit
    history_limit: Limit
    #: The tenant has stored the workspace; otherwise the program declares it.
    is_stored: bool
    #: None: not found, or the message names none.
    template: Entity | None = None


def destination_of(message: Message, attempt: Attempt, declared: str | None) -> Destination:
    """Ends the attempt when the message names config that is missing."""
    key = (WORKSPACE, *_named(message), declared is None)
    return attempt.config.derived(key, _resolved, message, declared)


def with_template(
    message: Message, attempt: Attempt, declared: str | None, template: str
) -> Destination:
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
    """None: it has to be read from the vault. Raises CredentialRefused when a declared token is
    missing.
    """
    if not destination.is_stored:
        return _declared_token(message, attempt, declared)
    # The newest only; older ones are kept for receivers of signatures.
    tokens = attempt.config.secrets_at_hand(WORKSPACE, message.workspace, "token")
    return tokens[0] if tokens else None


async def stored_token(message: Message, attempt: Attempt) -> str:
    """The token from the vault. Raises CredentialRefused when there is none."""
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
    """A missing or disabled channel must fail: the message must not go to another one."""
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
    return f"{WORKSPACE}/{message.workspace}"


def _declared_token(message: Message, attempt: Attempt, declared: str | None) -> str:
    assert declared is not None
    try:
        return attempt.config.reference(declared)
    except KeyError:
        raise CredentialRefused(
            credential_of(message), SECRET_MISSING, f"{declared} is not set"
        ) from None
