"""The requests of the demo, and what is counted of each in the end."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gesta.engine.engine import Engine
from gesta.engine.request import Request
from gesta.errors import MissingExtra
from gesta.flows import email, slack, sms, webhook
from gesta.flows.flow import Flow, Payload
from gesta.flows.slack.message import CHANNEL, DEFAULT, WORKSPACE
from gesta.flows.sms.message import ACCOUNT
from gesta.flows.sms.message import NAME as SMS
from gesta.outbound.http import HttpRequest
from gesta.sandbox import Sandbox
from gesta.sandbox.receiver import Call, Fault, Receiver, Reply
from gesta.sandbox.server import SandboxServer
from gesta.sandbox.webhook import FakeWebhookReceiver
from gesta.tenants.templates.templates import TEMPLATE


class Receiving(Protocol):
    """Somebody outside who counts."""

    def received(self, order: str) -> int: ...
    def effects_of(self, order: str) -> int: ...


@dataclass(frozen=True)
class Order:
    """One request and what it is there to show."""

    number: str
    shows: str
    request: Request
    receiver: Receiving


@dataclass(frozen=True)
class Tally:
    """What gesta says of a request, and what the receiver counted."""

    order: str
    shows: str
    id: str
    status: str
    attempts: int
    received: int
    effects: int

    @property
    def is_right(self) -> bool:
        return self.status == "sent" and self.effects == 1


@dataclass(frozen=True)
class OrderResult:
    tallies: Sequence[Tally]
    #: What did not go as gesta promises, beside the counts.
    broken: Sequence[str]
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.broken and all(tally.is_right for tally in self.tallies)

    def as_document(self) -> dict[str, Any]:
        """For --json. The keys are stable: scripts build on them."""
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


#: An address that its owner has given up: every message to it is answered 410 Gone.
RETIRED_PATH = "/webhook/retired"


@dataclass(frozen=True)
class Arrival:
    """A message reached the receiver, whatever it then did about it."""

    order: str
    at_ms: int


class OrderReceiver(FakeWebhookReceiver):
    """Counts by order number and not by message id: a second effect under another id would be a
    second effect all the same.
    """

    def __init__(self, secret: str) -> None:
        super().__init__([secret])
        self.arrivals: list[Arrival] = []

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        call = super().read(request, now_ms)
        if isinstance(call, Reply):
            return call
        self.arrivals.append(Arrival(_order(call.data), now_ms))
        return Reply(410) if request.url.endswith(RETIRED_PATH) else call

    def mishap(self, order: str, fault: Fault) -> None:
        """Let the first message about this order go wrong."""
        self.on(
            lambda call: _order(call.data) == order,
            status=fault.status,
            retry_after=fault.retry_after,
            slow_seconds=fault.slow_seconds,
            drop=fault.drop,
            times=1,
        )

    def arrivals_of(self, order: str) -> list[int]:
        """When messages about this order arrived, epoch milliseconds."""
        return [arrival.at_ms for arrival in self.arrivals if arrival.order == order]

    def received(self, order: str) -> int:
        return len(self.arrivals_of(order))

    def effects_of(self, order: str) -> int:
        return sum(_order(effect.data) == order for effect in self.effects)


def _order(data: dict[str, object]) -> str:
    return str(data.get("order", ""))


_ORDER = re.compile(r"\b[AB]-\d+\b")
#: Known to everybody: they protect nothing but the fakes of one demo.
OLD_TOKEN, NEW_TOKEN = "xoxb-the-old-one", "xoxb-the-new-one"
OPS, OPS_ID, PAID = "ops", "C0PS0PS0PS", "paid"


def installed_flows() -> list[Flow]:
    """The channels of this installation; those whose library is missing stay away."""
    flows = [webhook.flow()]
    for make in (slack.flow, email.flow, sms.flow):
        try:
            flows.append(make())
        except MissingExtra:
            continue
    return flows


@dataclass
class Door:
    """One provider's fake, and how often each order came to it: whatever it then did about it."""

    face: Receiver
    _arrivals: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.face.on(self._note)

    def _note(self, call: Call) -> bool:
        self._arrivals.update(set(_ORDER.findall(call.text)))
        return False

    def received(self, order: str) -> int:
        return self._arrivals[order]

    def effects_of(self, order: str) -> int:
        return sum(order in _ORDER.findall(effect.text) for effect in self.face.effects)


class Doors:
    """All of them, by the name of the flow."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.slack = sandbox.slack
        self._doors = {
            slack.NAME: Door(sandbox.slack),
            email.NAME: Door(sandbox.smtp),
            SMS: Door(sandbox.twilio),
        }

    def __getitem__(self, flow: str) -> Door:
        return self._doors[flow]


async def store_config(engine: Engine, server: SandboxServer) -> None:
    """What a tenant stores once: where messages go, by code, and what they say."""
    put = engine.admin.put_config
    if slack.NAME in engine.flows:
        await put_workspace(engine, server.url, OLD_TOKEN)
        await put(CHANNEL, OPS, {"channel_id": OPS_ID})
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
    if len(engine.flows) > 1:
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
    """What is asked for about an order: the channel and the template by code, never an object and
    never a secret.
    """
    told = {"order": order}
    match flow:
        case slack.NAME:
            return slack.Message(channel=OPS, template=PAID, data=told)
        case email.NAME:
            return email.Message("ana@example.com", template=PAID, data=told)
        case _:
            return sms.Message(to="+4915155500100", template=PAID, data=told)
