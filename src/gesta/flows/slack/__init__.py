"""notification.slack: chat.postMessage by Slack's own client, with workspace, channel, app and
template by code.

Slack's answer, and the outcome:

- ok: Done, with `ts` as id and the channel as target.
- Rate limited (429, `ratelimited`): nothing was posted. The channel's limit is closed for all
  processes; the request waits as long as Slack asks and uses up no attempt.
- `service_unavailable`, no connection: Retry.
- `message_limit_exceeded` and similar codes: Retry after a quarter of an hour. The workspace is
  closed meanwhile.
- `internal_error`, 5xx, a lost answer: Unknown. Slack is searched for the mark in the message's
  metadata.
- `token_revoked` and similar codes, 401, 403, no token: requests of the workspace are held until
  its token changes.
- `channel_not_found` and similar codes: Rejected with that reason.
- A code that is not in the table in client.py: Rejected `slack_other`, and an error in the log.

A rate limit uses up no attempt, because it concerns the channel and not the request. Otherwise a
busy hour would make dead letters of valid messages. A request with a time to live still expires.

The window for a duplicate: a message was posted, its answer was lost, and a person deleted it
before Slack was asked; or Slack posts it more than ASK_AFTER_SECONDS after the connection broke.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.outcome import Done, Outcome, Rejected, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import CredentialRefused, Postponed
from gesta.flows.flow import ConfigBody, Executor, Flow, Notice, Notices, Payload
from gesta.flows.slack.asking import ask, marked
from gesta.flows.slack.client import (
    LATER_SECONDS,
    MEANINGS,
    OTHER,
    THROTTLED_SECONDS,
    SlackApi,
    meaning_of,
    outcome_of,
    require_library,
    word_of,
)
from gesta.flows.slack.destination import (
    Destination,
    credential_of,
    destination_of,
    stored_token,
    token_at_hand,
    with_template,
)
from gesta.flows.slack.message import (
    APP,
    BLOCKS_MAX,
    CHANNEL,
    DEFAULT,
    NAME,
    PLACE,
    TEXT_LENGTH_MAX,
    WORKSPACE,
    App,
    Channel,
    Message,
    SendMessageJob,
    Workspace,
    errors_of,
    job_of,
    snapshot,
    tags_of,
)
from gesta.outbound.http import AttemptEnded, HttpResponse, ProviderRefusal
from gesta.outbound.rate_limits import Limit
from gesta.tenants.config import TenantConfig, not_stored
from gesta.tenants.templates.templates import TEMPLATE, Template, Templates

__all__ = [
    "NAME",
    "App",
    "Channel",
    "Message",
    "SendMessageJob",
    "Workspace",
    "flow",
    "job_of",
    "snapshot",
]

#: A message that Slack received just before the connection broke is visible by then.
ASK_AFTER_SECONDS: Final = 30.0
#: The executor's deadline is this much later than the call's, to distinguish a slow Slack from a
#: stuck worker.
_MARGIN_SECONDS: Final = 5.0
#: The channel of tests where the tenant has stored none.
_SANDBOX_CHANNEL: Final = "C0SANDBOX"
#: Reasons of this channel that may be labels of a metric: a closed set.
_REASONS: Final = frozenset(
    {
        *MEANINGS,
        OTHER,
        "workspace_missing",
        "channel_config_missing",
        "channel_missing",
        "invalid_recipient",
        "app_config_missing",
        "template_missing",
        "template_render_failed",
        "history_too_long",
        "history_incomplete",
        "not_posted",
        "cannot_ask",
    }
)
#: The token may post but not read, so requests are not held.
_NOT_FOR_READING: Final = frozenset(
    {"missing_scope", "no_permission", "not_allowed_token_type", "access_denied"}
)


def flow(
    token: str | None = None, *, timeout_seconds: float = 20.0, concurrency: int = 100
) -> Flow:
    """The channel.

    `token` declares the workspace `default` for tenants that have stored none of that code. It is
    `xoxb-…`, or `env:NAME`, which is read when a message is sent.
    """
    require_library()
    return Flow(
        NAME,
        Message,
        _executor(token, timeout_seconds),
        Rules(RetryPolicy(attempts=5), "reconcile", ask_after_seconds=ASK_AFTER_SECONDS),
        _reconciler(token, timeout_seconds),
        timeout_seconds=timeout_seconds + _MARGIN_SECONDS,
        concurrency=concurrency,
        config={WORKSPACE: Workspace, CHANNEL: Channel, APP: App, TEMPLATE: Template},
        example={"channel": "C012AB3CD", "text": "hello"},
        target=lambda message: message.code or message.place or "",
        credential=credential_of,
        declared={} if token is None else {f"{WORKSPACE}/{DEFAULT}": (token,)},
        check=_check,
        tags=tags_of,
        reasons=_REASONS,
        clear_texts=True,
        alarms=frozenset({OTHER}),
        effects="attempt",
        stand_ins=_stand_ins,
        notices=notices(is_declared=token is not None),
    )


def _executor(token: str | None, timeout_seconds: float) -> Executor:
    async def execute(message: Message, attempt: Attempt) -> Outcome:
        code = message.template
        destination = (
            destination_of(message, attempt, token)
            if code is None
            else with_template(message, attempt, token, code)
        )
        secret = token_at_hand(message, attempt, destination, token)
        if secret is None:
            secret = await stored_token(message, attempt)
        if code is None:
            content = _content(message.text, message.blocks)
        elif destination.template is None:
            raise AttemptEnded(Rejected("template_missing", not_stored(TEMPLATE, code)))
        else:
            parts = await attempt.templates.fill(destination.template, message.data)
            blocks = parts.get("blocks")
            content = _content(
                parts.get("text"), None if blocks is None else msgspec.json.decode(blocks)
            )
        api = SlackApi(
            attempt.http, secret, api_url=destination.api_url, timeout_seconds=timeout_seconds
        )
        await attempt.limits.take(destination.channel_limit, destination.workspace_limit)
        try:
            answer = await api.post(
                "chat.postMessage", _arguments(message, content, destination, attempt)
            )
        except ProviderRefusal as refused:
            return await _ending(
                refused.response,
                message,
                attempt,
                destination.channel_limit,
                destination.workspace_limit,
            )
        return Done(
            str(answer.get("ts", "")),
            str(answer.get("channel", "")),
            str(answer.get("warning", "")),
        )

    return execute


def _reconciler(token: str | None, timeout_seconds: float) -> Executor:
    async def reconcile(message: Message, attempt: Attempt) -> Outcome:
        destination = destination_of(message, attempt, token)
        secret = token_at_hand(message, attempt, destination, token)
        if secret is None:
            secret = await stored_token(message, attempt)
        api = SlackApi(
            attempt.http, secret, api_url=destination.api_url, timeout_seconds=timeout_seconds
        )
        try:
            return await ask(message, attempt, destination, api)
        except ProviderRefusal as refused:
            if word_of(refused.response) in _NOT_FOR_READING:
                return Unknown(
                    "cannot_ask",
                    "the token may not read the conversation; it needs the history scopes",
                )
            outcome = await _ending(
                refused.response,
                message,
                attempt,
                destination.history_limit,
                destination.workspace_limit,
            )
            # A refused question does not resolve the outcome.
            return (
                Unknown(outcome.reason, outcome.detail)
                if not isinstance(outcome, Done)
                else outcome
            )

    return reconcile


def _stand_ins(message: Message) -> Mapping[str, ConfigBody]:
    return {
        WORKSPACE: Workspace("", default_channel_id=_SANDBOX_CHANNEL),
        CHANNEL: Channel(_SANDBOX_CHANNEL, workspace=message.workspace),
        APP: App(),
    }


async def _check(message: Message, _: TenantConfig, templates: Templates) -> Mapping[str, str]:
    errors = errors_of(message)
    if (
        errors
        or message.template is None
        or templates.has_all(message.template, message.data, message.locale)
    ):
        return errors
    return await templates.missing(message.template, message.data, message.locale)


def _content(text: str | None, blocks: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The arguments with the content. Ends the attempt when there is none."""
    content: dict[str, Any] = {}
    if text:
        content["text"] = text
        if len(text) > TEXT_LENGTH_MAX:
            raise AttemptEnded(Rejected("msg_too_long", f"more than {TEXT_LENGTH_MAX} characters"))
    if blocks:
        content["blocks"] = blocks
        if len(blocks) > BLOCKS_MAX:
            raise AttemptEnded(Rejected("msg_blocks_too_long", f"more than {BLOCKS_MAX} blocks"))
    if not content:
        raise AttemptEnded(Rejected("no_text", "neither text nor blocks"))
    return content


def _arguments(
    message: Message, content: dict[str, Any], destination: Destination, attempt: Attempt
) -> dict[str, Any]:
    content.update(destination.arguments)
    marked(content, attempt)
    if message.thread_ts is not None:
        content["thread_ts"] = message.thread_ts
    return content


async def _ending(
    response: HttpResponse, message: Message, attempt: Attempt, key: Limit, around: Limit
) -> Outcome:
    """The ending of an attempt that Slack refused. Rate limits and refused tokens concern all
    requests that share them.
    """
    meaning, retry_after = meaning_of(response), attempt.http.retry_after(response)
    if meaning == "throttled":
        await _throttled(attempt, key, THROTTLED_SECONDS if retry_after is None else retry_after)
    if meaning == "credential":
        reason = word_of(response) or f"http_{response.status}"
        raise CredentialRefused(credential_of(message), reason, f"Slack answered {response.status}")
    if meaning == "later":
        await attempt.limits.close(around.name, LATER_SECONDS)
    return outcome_of(response, retry_after)


async def _throttled(attempt: Attempt, key: Limit, seconds: float) -> NoReturn:
    await attempt.limits.close(key.name, seconds)
    raise Postponed(seconds)


def notices(*, is_declared: bool) -> Notices:
    """`is_declared`: the program declares the workspace `default`."""

    def error(channel: str, config: TenantConfig) -> str:
        if not PLACE.fullmatch(channel):
            found = getattr(config.find(CHANNEL, channel), "body", None)
            if not isinstance(found, Channel):
                return f"there is no {CHANNEL} {channel}"
            if found.disabled:
                return (
                    f"the {CHANNEL} {channel} is disabled:"
                    f" {found.disabled_reason or 'no reason given'}"
                )
            if found.workspace != DEFAULT:
                return (
                    f"the {CHANNEL} {channel} is not in the workspace {DEFAULT}, from which alerts"
                    " are sent"
                )
        return (
            ""
            if is_declared or config.find(WORKSPACE, DEFAULT) is not None
            else f"there is no {WORKSPACE} {DEFAULT}"
        )

    return Notices(_write, error)


def _write(channel: str, notice: Notice) -> Payload:
    return Message(channel, notice.text)
