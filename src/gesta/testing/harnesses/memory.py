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
            "read_model",
            "vault",
            "transactions",
            "fences",
            "token_buckets",
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
        self.events, self.queue, self.read_model = stores.events, stores.queue, stores.read_model
        self.fences, self.token_buckets = stores.fences, stores.token_buckets
        self.vault, self.transactions = stores.vault, stores.transactions

    async def close(self) -> None:
        del (
            self.events,
            self.queue,
            self.read_model,
            self.vault,
            self.transactions,
            self.fences,
            self.token_buckets,
        )
