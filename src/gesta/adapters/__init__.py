"""The stores, one folder each. A store is chosen by the scheme of its URL, which is the name of its folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from gesta.commits import Commits
from gesta.errors import BadSettings
from gesta.event_store import EventStore
from gesta.job_queue import JobQueue
from gesta.runtime import Runtime
from gesta.vault import Vault
from gesta.views import Views


class Closing(Protocol):
    async def __call__(self) -> None: ...


async def unlimited() -> None:
    """The store has no disk of its own."""


@dataclass(frozen=True)
class Stores:
    """The ports of one engine, wired to one database."""

    events: EventStore
    views: Views
    queue: JobQueue
    vault: Vault
    commits: Commits
    close: Closing
    #: Where a key file may lie beside the store; None where there is no such place.
    folder: str | None = None
    name: str = ""
    #: Bytes left where the store grows; None where nobody can say.
    disk_free: Callable[[], Awaitable[int | None]] = unlimited


class Adapter(Protocol):
    """What the package of a store offers."""

    async def open_stores(self, url: str, runtime: Runtime) -> Stores: ...


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open the store that a URL names."""
    scheme = url.partition(":")[0]
    if not scheme.isidentifier():
        raise BadSettings(f"url: {url!r} is not a store URL; write for instance 'sqlite:///gesta.db'")
    try:
        adapter: Adapter = import_module(f"gesta.adapters.{scheme}")
    except ModuleNotFoundError as error:
        if error.name != f"gesta.adapters.{scheme}":
            raise BadSettings(
                f"url: {scheme} needs a package that is not installed; run: pip install 'gesta[{scheme}]'"
            ) from error
        found = [entry for entry in entry_points(group="gesta.stores") if entry.name == scheme]
        if not found:
            raise BadSettings(f"url: no store is called {scheme!r}; this gesta has: memory, sqlite") from None
        adapter = found[0].load()
    return await adapter.open_stores(url, runtime)
