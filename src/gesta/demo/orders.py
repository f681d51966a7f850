"""The requests of the demo, and the counts of each."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import msgspec

from gesta.engine.engine import Engine
from gesta.engine.request import Request
from gesta.errors import MissingExtra
from gesta.flows import card, email, settlement, slack, sms, ticket, webhook
from gesta.flows.flow import Flow, Payload
from gesta.flows.payment.gateway import GATEWAY
from gesta.flows.payment.gateways import installed
from gesta.flows.slack.message import CHANNEL, DEFAULT, WORKSPACE
from gesta.flows.sms.message import ACCOUNT
from gesta.flows.sms.message import NAME as SMS
from gesta.intake.inbound import slack as slack_events
from gesta.outbound.http import HttpRequest
from gesta.sandbox import Sandbox
from gesta.sandbox.receiver import Call, Fault, Receiver, Reply
from gesta.sandbox.server import SandboxServer
from gesta.sandbox.slack import TEAM
from gesta.sandbox.webhook import FakeWebhookReceiver
from gesta.tenants.templates.templates import TEMPLATE


class Receiving(Protocol):
    """A receiver that counts."""

    def received(self, order: str) -> int: ...
    def effects_of(self, order: str) -> int: ...


@dataclass(frozen=True)
class Order:
    """One request and what it demonstrates."""

    number: str
    shows: str
    request: Request
    receiver: Receiving


@dataclass(frozen=True)
class Tally:
    """The status of a request, and the counts of the receiver."""

    order: str
    shows: str
    id: str
    status: str
    attempts: int
    received: int
    effects: int

    @property
    def is_right(self) -> bool:
        return self.status in ("sent", "completed", "captured") and self.effects == 1


@dataclass(frozen=True)
class OrderResult:
    tallies: Sequence[Tally]
    #: Broken promises beside the counts.
    broken: Sequence[str]
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.broken and all(tally.is_right for tally in self.tallies)

    def as_document(self) -> dict[str, Any]:
        """For --json. Scripts depend on the keys."""
        requests = [asdict(tally) for tally in self.tallies]
        return {
            "ok": self.is_right,
            "seconds": round(self.seconds, 1),
            "broken": list(self.broken),
            "requests": requests,
        }


async def tally(order: Order) -> Tally:
    state = (await order.request.view()).state
    received, effects = (
        order.receiver.received(order.number),
        order.receiver.effects_of(order.number),
    )
    return Tally(
        order.number, order.shows, state.id, state.status, state.attempts, received, effects
    )


#: An abandoned address: every message to it is answered 410 Gone.
RETIRED_PATH = "/webhook/retired"


class OrderReceiver(FakeWebhookReceiver):
    """Counts by order number, not by message id, so that a second effect with another id is
    noticed.
    """

    def __init__(self, secret: str) -> None:
        super().__init__([secret])
        #: Order and time in epoch milliseconds of every message, whatever its answer.
        self.arrivals: list[tuple[str, int]] = []

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        call = super().read(request, now_ms)
        if isinstance(call, Reply):
            return call
        self.arrivals.append((_order(call.data), now_ms))
        return Reply(410) if request.url.endswith(RETIRED_PATH) else call

    def mishap(self, order: str, fault: Fault) -> None:
        """Let the first message about this order fail."""
        once = msgspec.structs.replace(fault, times=1)
        self.arm(once, lambda call: _order(call.data) == order)

    def arrivals_of(self, order: str) -> list[int]:
        """When messages about this order arrived, epoch milliseconds."""
        return [at_ms for number, at_ms in self.arrivals if number == order]

    def received(self, order: str) -> int:
        return len(self.arrivals_of(order))

    def effects_of(self, order: str) -> int:
        return sum(_order(effect.data) == order for effect in self.effects)


def _order(data: dict[str, object]) -> str:
    return str(data.get("order", ""))


_ORDER = re.compile(r"\b[ABC]-\d+\b")
#: Public: they protect only the fakes of one demo.
OLD_TOKEN, NEW_TOKEN = "xoxb-the-old-one", "xoxb-the-new-one"
SIGNING_SECRET = "the signing secret of the demo"  # noqa: S105 -- see above
OPS, OPS_ID, PAID = "ops", "C0PS0PS0PS", "paid"


def installed_flows() -> list[Flow]:
    """The channels whose libraries are installed."""
    flows = [webhook.flow(), ticket.flow(), slack_events.flow()]
    for make in (slack.flow, email.flow, sms.flow):
        try:
            flows.append(make())
        except MissingExtra:
            continue
    if any(gateway.type == "stripe" for gateway in installed()):
        flows += [card.flow(), settlement.flow()]
    return flows


@dataclass
class Door:
    """A fake, and how many calls about each order it received."""

    fake: Receiver
    _arrivals: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.fake.on(self._note)

    def _note(self, call: Call) -> bool:
        self._arrivals.update(set(_ORDER.findall(call.text)))
        return False

    def received(self, order: str) -> int:
        return self._arrivals[order]

    def effects_of(self, order: str) -> int:
        return sum(order in _ORDER.findall(effect.text) for effect in self.fake.effects)


def doors_of(sandbox: Sandbox) -> dict[str, Door]:
    """The fakes by the name of the flow."""
    return {
        slack.NAME: Door(sandbox.slack),
        email.NAME: Door(sandbox.smtp),
        SMS: Door(sandbox.twilio),
        ticket.NAME: Door(sandbox.backlog),
    }


async def store_config(engine: Engine, server: SandboxServer) -> None:
    """The config of a tenant: destinations and templates by code."""
    put = engine.admin.put_config
    if slack.NAME in engine.flows:
        await put_workspace(engine, server.url, OLD_TOKEN)
        await put(CHANNEL, OPS, {"channel_id": OPS_ID})
        await put(slack_events.TEAM, TEAM, {"signing_secret": SIGNING_SECRET})
        url = f"{server.url}/backlog"
        space = {"host": "demo.backlog.com", "api_key": "k", "api_url": url, "per_second": 50}
        await put("backlog.space", DEFAULT, space)
        await put("backlog.project", DEFAULT, {"project_id": 7, "issue_type_id": 8})
    if email.NAME in engine.flows:
        host, _, port = server.smtp_url.removeprefix("smtp://").rpartition(":")
        fields = {
            "kind": "smtp",
            "host": host,
            "port": int(port),
            "tls": "none",
            "from_address": "shop@example.com",
        }
        await put(email.SENDER, email.DEFAULT, fields)
    if SMS in engine.flows:
        fields = {
            "account_sid": "AC1",
            "auth_token": "sandbox",
            "sender": "+15550100",
            "api_url": f"{server.url}/twilio",
        }
        await put(ACCOUNT, DEFAULT, fields)
    if card.NAME in engine.flows:
        fields = {
            "type": "stripe",
            "account": "acct_1",
            "api_key": "sk_test_demo",
            "api_url": f"{server.url}/stripe",
        }
        await put(GATEWAY, DEFAULT, fields)
    if {slack.NAME, email.NAME, SMS} & engine.flows.keys():
        texts = {
            "subject": "Order {{ order }}",
            "text": "Order {{ order }} is paid.",
            "html": "<p>Order {{ order }} is paid.</p>",
        }
        await put(TEMPLATE, PAID, texts)


async def put_workspace(engine: Engine, url: str, token: str) -> None:
    fields = {"token": token, "api_url": f"{url}/slack/", "channel_per_second": 50}
    await engine.admin.put_config(WORKSPACE, DEFAULT, fields)


def payload_of(flow: str, order: str) -> Payload:
    """The payload about an order. It names channel and template by code."""
    data = {"order": order}
    match flow:
        case slack.NAME:
            return slack.Message(channel=OPS, template=PAID, data=data)
        case email.NAME:
            return email.Message("ana@example.com", template=PAID, data=data)
        case _:
            return sms.Message(to="+4915155500100", template=PAID, data=data)
