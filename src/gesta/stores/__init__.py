"""The stores, one folder each.

A store is chosen by the scheme of its URL, which is the name of its folder.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from gesta.errors import BadSettings
from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime

#: What other programs call a store.
NICKNAMES = {"postgres": "postgresql", "sqlite3": "sqlite"}


class Adapter(Protocol):
    """What the package of a store offers."""

    async def open_stores(self, url: str, runtime: Runtime) -> Stores: ...


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open the store that a URL names."""
    scheme = url.partition(":")[0]
    if not scheme.isidentifier():
        raise BadSettings(
            f"url: {url!r} is not a store URL; write for instance 'sqlite:///gesta.db'"
        )
    if scheme in NICKNAMES:
        raise BadSettings(f"url: write {NICKNAMES[scheme]}:// where it says {scheme}://")
    try:
        adapter: Adapter = import_module(f"gesta.stores.{scheme}")
    except ModuleNotFoundError as error:
        if error.name != f"gesta.stores.{scheme}":
            raise BadSettings(
                f"url: {scheme} needs a package that is not installed; run: pip install"
                f" 'gesta[{scheme}]'"
            ) from error
        found = [entry for entry in entry_points(group="gesta.stores") if entry.name == scheme]
        if not found:
            raise BadSettings(
                f"url: no store is called {scheme!r}; this gesta has: memory, postgresql, sqlite"
            ) from None
        adapter = found[0].load()
    return await adapter.open_stores(url, runtime)
