"""The gateways of gesta, for flows whose program names none."""

from importlib import import_module
from importlib.util import find_spec

from gesta.flows.payment.gateway import Gateway

#: Module below gesta.flows.payment → its class, and the library that it needs.
_KNOWN = {"stripe": ("StripeGateway", "stripe"), "http_gateway": ("HttpGateway", "aiohttp")}


def installed() -> list[Gateway]:
    """Every gateway whose library is installed."""
    return [
        getattr(import_module(f"gesta.flows.payment.{module}"), name)()
        for module, (name, library) in _KNOWN.items()
        if find_spec(library) is not None and find_spec(f"gesta.flows.payment.{module}") is not None
    ]
