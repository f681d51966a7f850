"""The stores of this checkout, found by their folders: a new one is tested without a line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import gesta.stores
from gesta.testing.contracts.harness import Harness


@cache
def harness_types() -> dict[str, type[Harness]]:
    """Adapter → its `Harness`.

    A folder without one is an error: nothing would hold that store to the contract.
    """
    folders = [module.name for module in iter_modules(gesta.stores.__path__) if module.ispkg]
    return {name: import_module(f"gesta.testing.harnesses.{name}").Harness for name in folders}
