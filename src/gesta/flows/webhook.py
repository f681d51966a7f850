"""notification.webhook: Standard Webhooks 1.0.0, one signed POST for each attempt.

What the receiver answers, and the outcome:

- 2xx: Done. The body does not matter.
- 3xx: Rejected `redirect_refused`. The endpoint's URL has to be changed.
- 401, 403: the credential is refused. Requests for this endpoint are held until it is put again,
  and no attempt is used up.
- 410: Rejected `endpoint_gone`, and the endpoint is disabled.
- 502, 504: Unknown. It comes from a gateway, and the receiver behind it may have acted.
- Any other status, 429 and 500 included: Retry. The standard counts it as a failure.
- No connection: Retry. An address that the guard refuses is Rejected.
- Reset or time-out after sending: Unknown.

Retry and Unknown both come back on the standard's schedule (0, 5 s, 5 m, 30 m, 2 h, 5 h, 10 h,
14 h, 20 h, 24 h, stretched by up to 10 %) and never before Retry-After. They differ at the end.
Ten failures are a dead letter, whose redrive is a new message. With one unknown among
them the request stays `unknown`, and a redrive keeps the message id.

`webhook-id` is the same for every attempt of an intent, so a receiver that remembers ids acts once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import force_setattr

from gesta.api_types.config_commands import put_command
from gesta.domain.commands import Rules
from gesta.domain.durations import iso
from gesta.domain.ids import id_bytes, pattern_error
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.status_events import WORDS
from gesta.errors import BadFlow
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import SECRET_MISSING, ConfigMissing, CredentialRefused
from gesta.flows.flow import ConfigBody, Executor, Flow, Notice, Notices, Payload, Secret
from gesta.outbound import signatures
from gesta.outbound.http import AttemptEnded, HttpResponse, status_reason
from gesta.runtime.redaction import HIDDEN_MARKS, masked_host, without_credentials
from gesta.tenants.config import TenantConfig

if TYPE_CHECKING:
    from gesta.tenants.templates.renderer import Renderer

NAME = "notification.webhook"
ENDPOINT = "webhook.endpoint"
#: Which statuses an endpoint is notified of (subscriptions/status_webhooks.py).
SUBSCRIPTION = "webhook.subscription"
#: The endpoint that `flow(url=…)` declares.
DEFAULT = "default"
#: The waits before attempts 2 to 10, as the standard proposes them.
SCHEDULE_SECONDS = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)

#: The executor's deadline is this much later than the call's, to distinguish a slow receiver from a
#: stuck worker.
_MARGIN_SECONDS = 5.0
_REFERENCE = "env:"
#: The guard decides by address whether plain http is allowed.
_URL = re.compile(r"^https?://[^\s/?#]+")
#: 24 to 64 bytes in base64; blank in a stored endpoint, whose secret is in the vault.
_SECRET = re.compile(r"^(whsec_[A-Za-z0-9+/]{32,86}={0,2})?$")
_SECRET_EXAMPLE = f"whsec_{'A' * 32}"


class Message(Payload, frozen=True):
    """One event for one endpoint. By convention `type` is dotted (`order.paid`)."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    data: dict[str, Any]
    endpoint: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] = DEFAULT


class Endpoint(ConfigBody, frozen=True):
    """Where a tenant's messages go.

    The user part and the query of `url` may be credentials, so the whole URL is kept in the vault
    and `url` keeps the rest. The engine disables an endpoint that answers 410; putting it again
    enables it.
    """

    url: Annotated[
        str,
        msgspec.Meta(
            pattern=_URL.pattern, max_length=2_048, examples=["https://example.com/hooks"]
        ),
    ]
    secret: Secret[
        Annotated[str, msgspec.Meta(pattern=_SECRET.pattern, examples=[_SECRET_EXAMPLE])]
    ]
    disabled: bool = False
    disabled_reason: str = ""
    #: The URL with its credentials; filled from `url`, blank where it has none.
    whole_url: Secret[str] = ""

    def __post_init__(self) -> None:
        shown = without_credentials(self.url) if isinstance(self.url, str) else self.url
        if shown != self.url:
            force_setattr(self, "whole_url", self.url)
            force_setattr(self, "url", shown)

    async def errors(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        is_of_url = not self.whole_url or without_credentials(self.whole_url) == self.url
        return {} if is_of_url else {"whole_url": "write the whole URL into url"}

    def __repr__(self) -> str:
        return f"Endpoint({masked_host(self.url)})"


class WebhookSubscription(ConfigBody, frozen=True):
    """Notify an endpoint of the tenant's requests: of these flows, at these statuses. Without a
    status: at all.
    """

    endpoint: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = DEFAULT
    #: A flow, `kind.*` for all of a kind, or `*`.
    flow: str = "*"
    statuses: list[str] = msgspec.field(default_factory=list)

    async def errors(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        errors = {"flow": error} if (error := pattern_error(self.flow)) else {}
        if unknown := [status for status in self.statuses if status not in WORDS]:
            errors["statuses"] = f"{unknown[0]!r} is not a status; known: {', '.join(WORDS)}"
        return errors


def flow(
    url: str | None = None,
    secret: str | None = None,
    *,
    timeout_seconds: float = 20.0,
    concurrency: int = 100,
) -> Flow:
    """The channel.

    `url` and `secret` declare the endpoint `default` for tenants that have stored none of that
    code. `secret` is `whsec_…`, or `env:NAME`, which is read when a message is sent.
    """
    declared = None if url is None else _declared(url, secret)

    def url_of(message: Message, config: TenantConfig) -> str | None:
        body = getattr(config.find(ENDPOINT, message.endpoint), "body", None)
        if isinstance(body, Endpoint):
            return body.url
        return declared.url if declared is not None and message.endpoint == DEFAULT else None

    def target(message: Message) -> str:
        return (
            masked_host(declared.url)
            if declared is not None and message.endpoint == DEFAULT
            else message.endpoint
        )

    return Flow(
        NAME,
        Message,
        _executor(declared, timeout_seconds),
        Rules(
            RetryPolicy(attempts=len(SCHEDULE_SECONDS) + 1, schedule_seconds=SCHEDULE_SECONDS),
            "resend",
        ),
        timeout_seconds=timeout_seconds + _MARGIN_SECONDS,
        concurrency=concurrency,
        config={ENDPOINT: Endpoint, SUBSCRIPTION: WebhookSubscription},
        example={"type": "order.paid", "data": {"order": 7}},
        target=target,
        clear_texts=True,
        credential=lambda message: f"{ENDPOINT}/{message.endpoint}",
        url=url_of,
        declared=(
            {}
            if declared is None
            else {f"{ENDPOINT}/{DEFAULT}": (declared.whole_url or declared.url, declared.secret)}
        ),
        effects="attempt",
        stand_ins=lambda _: {ENDPOINT: Endpoint("https://sandbox.example.org/", "")},
        notices=Notices(
            _notice,
            lambda code, config: endpoint_error(code, config, is_declared=declared is not None),
        ),
    )


def _executor(declared: Endpoint | None, timeout_seconds: float) -> Executor:
    async def execute(message: Message, attempt: Attempt) -> Outcome:
        url, secrets = await _endpoint(message.endpoint, declared, attempt)
        message_id = _message_id(attempt.key)
        body = _body(message, attempt)
        response = await attempt.http.exchange(
            "POST",
            url,
            body=body,
            headers=_headers(message_id, attempt, secrets, body),
            timeout_seconds=timeout_seconds,
        )
        if response.status in (401, 403):
            raise CredentialRefused(
                f"{ENDPOINT}/{message.endpoint}",
                status_reason(response.status),
                f"answered {response.status}",
            )
        if response.status == 410:
            return await _gone(message.endpoint, attempt)
        return _outcome(response, message_id, attempt)

    return execute


async def _gone(code: str, attempt: Attempt) -> Rejected:
    """The receiver answered 410. An endpoint that only the program declares stays enabled."""
    if attempt.config.get(ENDPOINT, code) is None:
        return Rejected("endpoint_gone", "answered 410")
    await attempt.config.disable(ENDPOINT, code, "the receiver answered 410 Gone")
    return Rejected("endpoint_gone", f"answered 410, so the endpoint is disabled; {_enable(code)}")


def _enable(code: str) -> str:
    return f"before a redrive, store it again: gesta {put_command(ENDPOINT, code)}"


def _notice(code: str, notice: Notice) -> Payload:
    return Message("gesta.alert", {**notice.data, "text": notice.text}, code)


def endpoint_error(code: str, config: TenantConfig, *, is_declared: bool) -> str:
    """Why nothing would arrive at an endpoint of the tenant. `is_declared`: the program declares
    `default`.
    """
    found = config.find(ENDPOINT, code)
    if found is None:
        return "" if is_declared and code == DEFAULT else f"there is no {ENDPOINT} {code}"
    body = getattr(found, "body", None)
    if not isinstance(body, Endpoint):
        return f"the {ENDPOINT} {code} cannot be read; put it again"
    return (
        f"the {ENDPOINT} {code} is disabled: {body.disabled_reason or 'no reason given'}"
        if body.disabled
        else ""
    )


def _declared(url: str, secret: str | None) -> Endpoint:
    if not secret:
        raise BadFlow(
            NAME,
            "url= needs secret=, 'whsec_…' or 'env:NAME': without a signature, a receiver cannot"
            " verify our messages",
        )
    if not _URL.match(url):
        raise BadFlow(NAME, "url= must start with https:// and name a host")
    if not secret.startswith(_REFERENCE):
        try:
            signatures.secret_bytes(secret)
        except ValueError as error:
            raise BadFlow(NAME, f"secret=: {error}") from None
    return Endpoint(url, secret)


async def _endpoint(
    code: str, declared: Endpoint | None, attempt: Attempt
) -> tuple[str, list[str]]:
    """The URL that the message goes to and the secrets that sign it.

    Ends the attempt when the tenant has no such endpoint.
    """
    stored = attempt.config.get(ENDPOINT, code)
    if stored is not None:
        endpoint = stored.body
        assert isinstance(endpoint, Endpoint)
        if endpoint.disabled:
            detail = f"{endpoint.disabled_reason or 'no reason given'}; {_enable(code)}"
            raise AttemptEnded(Rejected("endpoint_disabled", detail))
        secrets = await attempt.config.secrets(ENDPOINT, code, "secret")
        if not secrets:
            raise CredentialRefused(f"{ENDPOINT}/{code}", SECRET_MISSING, "the vault has no secret")
        return await _whole_url(code, endpoint, attempt), secrets
    if declared is None or code != DEFAULT:
        raise ConfigMissing(ENDPOINT, code, "endpoint_missing")
    if not declared.secret.startswith(_REFERENCE) and not attempt.test:
        return declared.whole_url or declared.url, [declared.secret]
    try:
        return declared.whole_url or declared.url, [attempt.config.reference(declared.secret)]
    except KeyError:
        raise CredentialRefused(
            f"{ENDPOINT}/{code}", SECRET_MISSING, f"{declared.secret} is not set"
        ) from None


async def _whole_url(code: str, endpoint: Endpoint, attempt: Attempt) -> str:
    """The URL with its credentials. They are used only for the URL that they were stored with."""
    if not any(mark in endpoint.url for mark in HIDDEN_MARKS):
        return endpoint.url
    stored = await attempt.config.secrets(ENDPOINT, code, "whole_url")
    for url in (endpoint.whole_url, *stored):
        if without_credentials(url) == endpoint.url:
            return url
    raise CredentialRefused(
        f"{ENDPOINT}/{code}",
        SECRET_MISSING,
        "the credentials of the URL are not stored; put the endpoint with its whole URL",
    )


def _message_id(key: str) -> str:
    """The same for every attempt of an intent. A digest, because the key contains the tenant, which
    may have dots.
    """
    return f"msg_{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _body(message: Message, attempt: Attempt) -> bytes:
    """The same bytes for every attempt, because a receiver may compare the bodies of one id.

    `timestamp` is the creation of the request, which its id (UUIDv7) begins with.
    """
    made_ms = int.from_bytes(id_bytes(attempt.request_id)[:6], "big")
    return msgspec.json.encode(
        {"type": message.type, "timestamp": iso(made_ms), "data": message.data}
    )


def _headers(message_id: str, attempt: Attempt, secrets: list[str], body: bytes) -> dict[str, str]:
    sent_at_seconds = attempt.at_ms // 1000
    try:
        signature = signatures.sign(secrets, message_id, sent_at_seconds, body)
    except ValueError as error:
        # It may be corrected while the schedule runs.
        raise AttemptEnded(Retry("secret_invalid", str(error))) from None
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at_seconds),
        "webhook-signature": signature,
    }


def _outcome(response: HttpResponse, message_id: str, attempt: Attempt) -> Outcome:
    status, detail = response.status, f"answered {response.status}"
    if 200 <= status < 300:
        return Done(message_id)
    if 300 <= status < 400:
        return Rejected("redirect_refused", detail)
    after_seconds = attempt.http.retry_after(response) or 0.0
    if status in (502, 504):
        return Unknown(status_reason(status), detail, after_seconds)
    return Retry(status_reason(status), detail, after_seconds)
