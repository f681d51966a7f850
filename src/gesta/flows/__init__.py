"""Flows: the contract of a flow, and one module or package for each channel.

`from gesta.flows import card` works as for every channel: the flows that move money are modules of
`payment`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gesta.flows.payment import card, settlement, transfer

__all__ = ["card", "settlement", "transfer"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in __all__:
            return import_module(f"gesta.flows.payment.{name}")
        raise AttributeError(f"module 'gesta.flows' has no attribute {name!r}")
