"""gesta's own channels by name: what to say to who asks for one that this process does not
declare.
"""

from collections.abc import Iterable
from importlib.util import find_spec

from gesta.errors import UnknownFlow

#: A channel's module, below gesta.flows → its config kinds. Names alone: nobody loads a channel to
#: say that it is not there.
CHANNELS = {
    "slack": ("slack.workspace", "slack.channel", "slack.app", "template"),
    "email": ("email.sender", "email.bodies", "template"),
    "sms": ("sms.account", "template"),
    "webhook": ("webhook.endpoint", "webhook.subscription"),
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


def unknown_flow(name: str, known: Iterable[str]) -> UnknownFlow:
    """The error of whoever names a flow that is not declared here, with what would add it."""
    return UnknownFlow(repr(name), name=name, known=known, remedy=how_to_add(name))
