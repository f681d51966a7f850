"""gesta's own channels by name: what to say to who asks for one that this process does not
declare.
"""

from __future__ import annotations

from importlib.util import find_spec

#: A channel's module, below gesta.flows → its config kinds. Names alone: nobody loads a channel to
#: say that it is not there.
CHANNELS = {
    "slack": ("slack.workspace", "slack.channel", "slack.app", "template"),
    "email": ("email.sender", "email.bodies", "template"),
    "sms": ("sms.account", "template"),
    "webhook": ("webhook.endpoint", "told.webhook"),
}


#: A channel that is an extra → one of the libraries that it brings.
EXTRAS = {"slack": "slack_sdk", "email": "aiosmtplib", "sms": "phonenumbers"}


def how_to_add(name: str) -> str:
    """What to do where a flow or a config kind of this name is missing; nothing where it is none of
    ours.
    """
    found = [
        one for one, kinds in CHANNELS.items() if name == f"notification.{one}" or name in kinds
    ]
    if not found:
        return ""
    # Without its library a channel cannot even be declared.
    missing = [one for one in found if one in EXTRAS and find_spec(EXTRAS[one]) is None]
    install = (
        f"; what it needs is not installed: pip install 'gesta[{','.join(missing)}]'"
        if missing
        else ""
    )
    return (
        f"; add {' or '.join(f'gesta.flows.{one}.flow()' for one in found)} to the Engine's"
        f" flows{install}"
    )
