"""Views in Redis beside a durable store, held to the contracts of a whole store."""

from __future__ import annotations

from pathlib import Path

from gesta.ports.stores import Stores, ViewPorts
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.redis.connection import Redis, address_of
from gesta.stores.redis.read_model import RedisReadModel
from gesta.stores.separate_views import with_separate_views
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts.harness import Harness
from gesta.testing.valkey_server import shared_url


class _SeparateViews(Harness):
    capabilities = frozenset(
        {
            "events",
            "read_model",
            "sweep_index",
            "checkpoints",
            "queue",
            "transactions",
            "undispatched_jobs",
            "durable",
        }
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._database = MemoryDatabase(self.runtime)

    async def _durable(self) -> Stores:
        return self._database.stores()

    async def open_ports(self) -> Stores:
        redis = Redis(address_of(shared_url()))
        model = RedisReadModel(redis)
        views = ViewPorts(read_model=model, sweep_index=model, positions=model, close=redis.close)
        return with_separate_views(await self._durable(), views)


class _SqliteAndRedis(_SeparateViews):
    async def _durable(self) -> Stores:
        return await open_stores(f"sqlite:///{self.folder / 'gesta.db'}", self.runtime)


def separate_views_harness_types() -> dict[str, type[Harness]]:
    return {"memory-redis": _SeparateViews, "sqlite-redis": _SqliteAndRedis}
