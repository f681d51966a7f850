"""Slack, e-mail and SMS in the story: the sandbox's doubles stand in for the providers, and count
by order number, too.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from gesta.engine.engine import Engine
from gesta.errors import MissingExtra
from gesta.flows import email, slack, sms, webhook
from gesta.flows.flow import Flow, Payload
from gesta.flows.slack.message import CHANNEL, DEFAULT, WORKSPACE
from gesta.flows.sms.message import ACCOUNT
from gesta.flows.sms.message import NAME as SMS
from gesta.sandbox import Sandbox
from gesta.sandbox.receiver import Call, Receiver
from gesta.sandbox.server import SandboxServer
from gesta.tenants.templates.templates import TEMPLATE

_ORDER = re.compile(r"\b[AB]-\d+\b")
#: Known to everybody: they protect nothing but the doubles of one demo.
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
    """One provider's double, and how often each order came to it: whatever it then did about it."""

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
