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
        self._url = f"sqlite:///{folder / 'gesta.db'}"

    async def open(self) -> None:
        stores = await open_stores(self._url, self.runtime)
        self.events, self.queue, self.read_model = stores.events, stores.queue, stores.read_model
        self.fences, self.token_buckets = stores.fences, stores.token_buckets
        self.vault, self.transactions, self._close = stores.vault, stores.transactions, stores.close

    async def close(self) -> None:
        await self._close()
