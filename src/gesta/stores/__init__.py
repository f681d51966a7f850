"""The stores, one package each. The scheme of a URL is the name of the package."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from gesta.errors import BadSettings
from gesta.ports.boundary_queue import BoundaryQueue
from gesta.ports.stores import JobPorts, QueuePorts, Stores, ViewPorts
from gesta.runtime.clock import Runtime

#: Other names of a store.
NICKNAMES = {"postgres": "postgresql", "sqlite3": "sqlite"}
#: Schemes that one folder serves under several names.
_FOLDERS = dict.fromkeys(("rediss", "redis+cluster", "rediss+cluster"), "redis")


class Opening(Protocol):
    async def __call__(self, url: str, runtime: Runtime) -> QueuePorts: ...


class Adapter(Protocol):
    """The package of a store. A package with only `open_queue` is a queue."""

    async def open_stores(self, url: str, runtime: Runtime) -> Stores: ...


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open the store that a URL names."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_stores"):
        raise BadSettings(f"url: {url!r} is only a queue; name it in queue_url")
    return await adapter.open_stores(url, runtime)


async def open_queue(url: str, runtime: Runtime) -> QueuePorts:
    """Open the queue that a URL names: an adapter that is only a queue, or the one of a store."""
    adapter = _adapter_of(url)
    opening: Opening = getattr(adapter, "open_queue", None) or adapter.open_stores
    return await opening(url, runtime)


async def open_views(url: str, runtime: Runtime) -> ViewPorts:
    """Open the database of views that a URL names."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_views"):
        raise BadSettings(f"{url!r} cannot hold views alone; views_url takes redis:// URLs")
    views: ViewPorts = await adapter.open_views(url, runtime)
    return views


async def open_jobs(url: str, runtime: Runtime) -> JobPorts:
    """Open the jobs of slow endpoints that a URL names."""
    adapter = _adapter_of(url)
    if hasattr(adapter, "open_jobs"):
        jobs: JobPorts = await adapter.open_jobs(url, runtime)
        return jobs
    stores = await open_stores(url, runtime)
    if stores.job_store is None:
        await stores.close()
        raise BadSettings(f"{url!r} cannot hold jobs; jobs_url takes redis:// URLs")
    return JobPorts(
        job_store=stores.job_store, close=stores.close, now_ms=stores.now_ms, name=stores.name
    )


async def open_boundary(url: str, runtime: Runtime) -> BoundaryQueue:
    """Open the boundary queue that a URL names."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_boundary"):
        raise BadSettings(f"{url!r} is no queue for inbound events; write sqs://region/queue-name")
    queue: BoundaryQueue = await adapter.open_boundary(url, runtime)
    return queue


def _adapter_of(url: str) -> Adapter:
    scheme = url.partition(":")[0]
    scheme = _FOLDERS.get(scheme, scheme)
    if not scheme.isidentifier():
        raise BadSettings(
            f"url: {url!r} is not a store URL; write for instance 'sqlite:///gesta.db'"
        )
    if scheme in NICKNAMES:
        raise BadSettings(f"url: write {NICKNAMES[scheme]}:// instead of {scheme}://")
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
                f"url: no store is called {scheme!r}; this gesta has: memory, postgresql, redis,"
                " sqlite, sqs"
            ) from None
        adapter = found[0].load()
    return adapter
