"""gesta's own channels by name: what to say to who asks for one that this process does not declare."""

from __future__ import annotations

#: A channel's module, below gesta.flows → its config kinds. Names alone: nobody loads a channel to say that it is not there.
CHANNELS = {
    "slack": ("slack.workspace", "slack.channel", "slack.app", "template"),
    "email": ("email.sender", "email.bodies", "template"),
    "sms": ("sms.account", "template"),
    "webhook": ("webhook.endpoint", "told.webhook"),
}


def how_to_add(name: str) -> str:
    """What to do where a flow or a config kind of this name is missing; nothing where it is none of ours."""
    found = [f"gesta.flows.{one}.flow()" for one, kinds in CHANNELS.items() if name == f"notification.{one}" or name in kinds]
    return f"; add {' or '.join(found)} to the Engine's flows" if found else ""
