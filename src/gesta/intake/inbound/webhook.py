"""inbound.webhook: signed webhooks of other systems, by the Standard Webhooks scheme.

The config names the flow: `data` of a webhook becomes the payload of a request of that flow, and
`webhook-id` is its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.outcome import Outcome, Rejected
from gesta.errors import InvalidRequest
from gesta.flows.flow import ConfigBody, Flow, Payload, Secret
from gesta.flows.validation import decode_fields
from gesta.intake.inbound.inbox import EventRecord
from gesta.intake.inbound.source import (
    Action,
    Malformed,
    Posted,
    Received,
    Source,
    Untrusted,
    Verdict,
)
from gesta.outbound import signatures

if TYPE_CHECKING:
    from gesta.tenants.config import TenantConfig
    from gesta.tenants.templates.renderer import Renderer

NAME: Final = "inbound.webhook"
#: A sender by its code.
SENDER: Final = "inbound.webhook"
_SECRET: Final = re.compile(r"(whsec_[A-Za-z0-9+/]{32,86}={0,2})?")


class Sender(ConfigBody, frozen=True):
    """A system that posts to `/inbound/webhook/TENANT/CODE`."""

    secret: Secret[str]
    #: The flow of the requests that its webhooks lead to.
    flow: Annotated[str, msgspec.Meta(min_length=3, max_length=200)]
    #: The types of events that count; empty: all. Others are ignored.
    types: tuple[str, ...] = ()

    async def errors(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        if _SECRET.fullmatch(self.secret):
            return {}
        return {"secret": "whsec_ and 24 to 64 bytes in base64"}


class WebhookRecord(EventRecord, frozen=True):
    """An ignored webhook."""


class _Body(msgspec.Struct, frozen=True):
    type: str
    data: dict[str, Any]


def flow() -> Flow:
    """The source: `POST /inbound/webhook/{tenant}/{code}`."""
    return Flow(
        NAME,
        WebhookRecord,
        _execute,
        Rules(),
        config={SENDER: Sender},
        inbound=Source("webhook", _verify, _read),
        effects="attempt",
    )


async def _execute(_: WebhookRecord, __: object) -> Outcome:
    return Rejected("not_executable", "inbound.webhook only records events; post them to /inbound")


async def _verify(posted: Posted, config: TenantConfig) -> str:
    """The id of the webhook."""
    (code,) = posted.parts
    secrets = await config.secrets(SENDER, code, "secret")
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = {name: value for name in names if (value := posted.header(name)) is not None}
    try:
        return signatures.verify(secrets, headers, posted.body, posted.received_ms / 1000)
    except signatures.BadSignature as bad:
        raise Untrusted("bad_signature" if bad.reason == "no_match" else bad.reason) from None


def _read(posted: Posted, webhook_id: str, config: TenantConfig) -> Sequence[Received]:
    (code,) = posted.parts
    try:
        body = msgspec.json.decode(posted.body, type=_Body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Malformed("send a JSON object with `type` and `data`") from None
    sender = config.get(SENDER, code)
    assert sender is not None
    assert isinstance(sender.body, Sender)
    event_id, to = f"webhook-{code}-{webhook_id}", sender.body.flow
    if sender.body.types and body.type not in sender.body.types:
        facts = {"sender": code, "type": body.type[:100]}
        return [Received(event_id, Verdict("type_not_configured"), facts)]

    def payload(kind: type[Payload]) -> Payload:
        made, errors = decode_fields(kind, body.data)
        if made is None:
            raise InvalidRequest(to, errors)
        return made

    return [Received(event_id, Action(to, payload, f"webhook:{code}/{webhook_id}"))]
