"""Views in Redis beside a durable store, held to the contracts of a whole store."""

from __future__ import annotations

import atexit
from pathlib import Path

from gesta.ports.stores import Stores
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.redis import open_views
from gesta.stores.separate_views import with_separate_views
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts.harness import Harness
from gesta.testing.valkey_server import ValkeyCluster, ValkeyServer

_SHARED: dict[type[ValkeyServer | ValkeyCluster], ValkeyServer | ValkeyCluster] = {}


async def shared_url(kind: type[ValkeyServer | ValkeyCluster]) -> str:
    """The URL of a server that is started by the first test of a process, and ends with it."""
    if kind not in _SHARED:
        server = kind()
        await server.__aenter__()
        atexit.register(server.end)
        _SHARED[kind] = server
    return _SHARED[kind].url


class _SeparateViews(Harness):
    capabilities = frozenset(
        {
            "events",
            "read_model",
            "sweep_index",
            "checkpoints",
            "queue",
            "unique_jobs",
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
        views = await open_views(await self._url(), self.runtime)
        return with_separate_views(await self._durable(), views)

    async def _url(self) -> str:
        return await shared_url(ValkeyServer)


class _SqliteAndRedis(_SeparateViews):
    async def _durable(self) -> Stores:
        return await open_stores(f"sqlite:///{self.folder / 'gesta.db'}", self.runtime)


class _Cluster(_SeparateViews):
    async def _url(self) -> str:
        return await shared_url(ValkeyCluster)


def separate_views_harness_types() -> dict[str, type[Harness]]:
    return {
        "memory-redis": _SeparateViews,
        "sqlite-redis": _SqliteAndRedis,
        "memory-cluster": _Cluster,
    }
