"""The SQLite file under the contract suites."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from gesta.runtime.clock import ManualRuntime
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts.harness import Capability


class Harness:
    """One file for one test."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            "events",
            "queue",
            "views",
            "vault",
            "commits",
            "fences",
            "buckets",
            "inline",
            "eager_dispatch",
            "durable",
        }
    )

    def __init__(self, folder: Path) -> None:
        self.runtime = ManualRuntime()
        self._url = f"sqlite:///{folder / 'gesta.db'}"

    async def open(self) -> None:
        stores = await open_stores(self._url, self.runtime)
        self.events, self.queue, self.views = stores.events, stores.queue, stores.views
        self.fences, self.buckets = stores.fences, stores.buckets
        self.vault, self.commits, self._close = stores.vault, stores.commits, stores.close

    async def close(self) -> None:
        await self._close()
