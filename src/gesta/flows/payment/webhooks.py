"""inbound.gateway: what payment gateways post about payments.

A webhook is verified on its raw bytes with the secret of the account that the path names. It is
evidence of an id and of nothing else: webhooks come late, twice and out of order. The transaction
learns the id, and while its outcome is unknown the gateway is asked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gesta.domain.commands import Rules
from gesta.domain.outcome import Outcome, Rejected
from gesta.domain.transaction.commands import NoteWebhook
from gesta.errors import InvalidSignature
from gesta.flows.flow import Flow
from gesta.flows.payment.gateway import (
    GATEWAY,
    Delivery,
    Gateway,
    GatewayAccount,
    GatewayEvent,
)
from gesta.flows.payment.gateways import installed
from gesta.intake.inbound.inbox import EventRecord
from gesta.intake.inbound.source import Note, Posted, Received, Source, Untrusted, Verdict

if TYPE_CHECKING:
    from gesta.tenants.config import TenantConfig

NAME: Final = "inbound.gateway"
#: Headers that a gateway may sign with.
_HEADERS: Final = ("stripe-signature", "webhook-id", "webhook-timestamp", "webhook-signature")


class GatewayRecord(EventRecord, frozen=True):
    """A webhook of a gateway that gesta ignores."""


def flow(gateways: Sequence[Gateway] | None = None, headers: Sequence[str] = ()) -> Flow:
    """The source: `POST /inbound/gateway/{tenant}/{code}`, with the code of a payment.gateway.

    `gateways`: by default all that gesta has. `headers`: further ones, in lower case, that a
    gateway of the program needs to verify.
    """
    known = {one.type: one for one in (installed() if gateways is None else gateways)}
    names = (*_HEADERS, *headers)

    async def verify(posted: Posted, config: TenantConfig) -> GatewayEvent:
        (code,) = posted.parts
        stored = config.get(GATEWAY, code)
        gateway = None if stored is None else known.get(getattr(stored.body, "type", ""))
        if stored is None or gateway is None:
            raise Untrusted("unknown_sender")
        assert isinstance(stored.body, GatewayAccount)
        given = {name: value for name in names if (value := posted.header(name)) is not None}
        secrets = await config.secrets(GATEWAY, code, "webhook_secret")
        try:
            return gateway.verify(
                Delivery(given, posted.body), stored.body, secrets, posted.received_ms
            )
        except InvalidSignature:
            raise Untrusted("bad_signature") from None

    return Flow(
        NAME,
        GatewayRecord,
        _execute,
        Rules(),
        config={GATEWAY: GatewayAccount},
        inbound=Source("gateway", verify, _read),
        effects="attempt",
    )


async def _execute(_: GatewayRecord, __: object) -> Outcome:
    return Rejected("not_executable", "inbound.gateway only records events; post them to /inbound")


def _read(posted: Posted, event: GatewayEvent, _: object) -> Sequence[Received]:
    (code,) = posted.parts
    name = f"{code}-{event.id}"
    reference = event.reference
    if reference is None:
        # An account is often used by other programs, too: nothing is kept of their payments.
        return [Received(name, Verdict("not_ours", is_recorded=False))]
    facts = {"gateway": code, "kind": event.kind[:100], "payment": event.payment_id[:100]}
    if reference.tenant != posted.tenant:
        return [Received(name, Verdict("another_tenant"), facts)]
    command = NoteWebhook(
        report=name,
        kind=event.kind,
        at=posted.received_ms,
        payment_id=event.payment_id,
        movement_id=event.movement_id,
        operation=reference.operation,
        intent=reference.intent,
    )
    return [Received(name, Note(reference.flow, reference.request_id, command), facts)]
