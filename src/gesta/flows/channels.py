"""The channels of gesta by name, for the error about a flow that this process does not declare."""

from collections.abc import Iterable
from importlib.util import find_spec

from gesta.errors import UnknownFlow

#: Channel → its config kinds. Only names, so that no channel is imported for an error.
CHANNELS = {
    "slack": ("slack.workspace", "slack.channel", "slack.app", "template"),
    "email": ("email.sender", "email.bodies", "template"),
    "sms": ("sms.account", "template"),
    "webhook": ("webhook.endpoint", "webhook.subscription"),
    "ticket": ("backlog.space", "backlog.project", "slack.team"),
    "slack_events": ("slack.team",),
    "webhook_events": ("inbound.webhook",),
    "card": ("payment.gateway",),
    "transfer": ("payment.gateway",),
    "settlement": ("payment.gateway",),
    "gateway_events": ("payment.gateway",),
}
#: Channel → its flow, where that is not `notification.CHANNEL`.
_FLOWS = {
    "ticket": "ticket.backlog",
    "slack_events": "inbound.slack",
    "webhook_events": "inbound.webhook",
    "card": "payment.card",
    "transfer": "payment.transfer",
    "settlement": "payment.settlement",
    "gateway_events": "inbound.gateway",
}
#: Channel → its module, where that is not `gesta.flows.CHANNEL`.
_MODULES = {
    "slack_events": "gesta.intake.inbound.slack",
    "webhook_events": "gesta.intake.inbound.webhook",
    "card": "gesta.flows.payment.card",
    "transfer": "gesta.flows.payment.transfer",
    "settlement": "gesta.flows.payment.settlement",
    "gateway_events": "gesta.flows.payment.webhooks",
}

#: Channel → a library of its extra.
EXTRAS = {"slack": "slack_sdk", "email": "aiosmtplib", "sms": "phonenumbers"}


def flow_name(channel: str) -> str:
    return _FLOWS.get(channel, f"notification.{channel}")


def module_of(channel: str) -> str:
    """The module whose `flow()` makes the channel."""
    return _MODULES.get(channel, f"gesta.flows.{channel}")


def how_to_add(name: str) -> str:
    """How to add the missing flow or config kind of this name; empty if it is not one of gesta."""
    found = [one for one, kinds in CHANNELS.items() if name == flow_name(one) or name in kinds]
    if not found:
        return ""
    calls = " or ".join(f"{module_of(one)}.flow()" for one in found)
    missing = [one for one in found if one in EXTRAS and find_spec(EXTRAS[one]) is None]
    if not missing:
        return f"; add {calls} to the Engine's flows"
    # `gesta serve` has every channel whose libraries are installed.
    return (
        f"; its libraries are not installed: pip install 'gesta[{','.join(missing)}]' and restart"
        f" this process; your own program also adds {calls} to the Engine's flows"
    )


def unknown_flow(name: str, known: Iterable[str]) -> UnknownFlow:
    """The error about a flow that is not declared here, with how to add it."""
    return UnknownFlow(repr(name), name=name, known=known, remedy=how_to_add(name))
