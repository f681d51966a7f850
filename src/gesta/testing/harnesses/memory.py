"""The memory stores under the contract suites.

The database object stands for the disk: it is what a restart leaves.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from gesta.runtime.clock import ManualRuntime
from gesta.stores.memory.database import MemoryDatabase
from gesta.testing.contracts.harness import Capability


class Harness:
    """One memory database for one test."""

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
        self.database = MemoryDatabase(self.runtime)

    async def open(self) -> None:
        stores = self.database.stores()
        self.events, self.queue, self.views = stores.events, stores.queue, stores.views
        self.fences, self.buckets = stores.fences, stores.buckets
        self.vault, self.commits = stores.vault, stores.commits

    async def close(self) -> None:
        del self.events, self.queue, self.views, self.vault, self.commits, self.fences, self.buckets
