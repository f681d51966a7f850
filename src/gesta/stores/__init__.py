"""The stores, one package each. The scheme of a URL is the name of the package."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from gesta.errors import BadSettings
from gesta.ports.boundary_queue import BoundaryQueue
from gesta.ports.event_store import EventStore
from gesta.ports.job_queue import JobQueue
from gesta.ports.read_model import ReadModel
from gesta.ports.stores import EventPorts, JobPorts, Missing, QueuePorts, Stores, ViewPorts
from gesta.ports.vault import Vault
from gesta.runtime.clock import Runtime
from gesta.runtime.redaction import scrub

#: Other names of a store.
NICKNAMES = {"postgres": "postgresql", "sqlite3": "sqlite"}
#: Schemes that one folder serves under several names.
_FOLDERS = dict.fromkeys(("rediss", "redis+cluster", "rediss+cluster"), "redis") | {
    "kurrentdb+discover": "kurrentdb"
}


class Opening(Protocol):
    async def __call__(self, url: str, runtime: Runtime) -> QueuePorts: ...


class Adapter(Protocol):
    """The package of a store.

    A package without `open_stores` holds only a part: `open_events`, `open_views`, `open_queue`.
    """

    async def open_stores(self, url: str, runtime: Runtime) -> Stores: ...


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open the store that a URL names."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_stores"):
        raise BadSettings(
            f"url: {_lacking(url, Vault, 'secrets need it')}. Name a sqlite:// or postgresql:// URL"
            f" here, and this one in {' and '.join(_settings_for(adapter))}"
        )
    return await adapter.open_stores(url, runtime)


async def open_queue(url: str, runtime: Runtime) -> QueuePorts:
    """Open the queue that a URL names: an adapter that is only a queue, or the one of a store."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_queue") and not hasattr(adapter, "open_stores"):
        raise BadSettings(
            f"{_lacking(url, JobQueue, 'jobs need it')}. queue_url accepts redis://, postgresql://"
            " and sqlite:// URLs; without it the queue is in the store of url"
        )
    opening: Opening = getattr(adapter, "open_queue", None) or adapter.open_stores
    return await opening(url, runtime)


async def open_views(url: str, runtime: Runtime) -> ViewPorts:
    """Open the database of views that a URL names."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_views"):
        raise BadSettings(
            f"{_lacking(url, ReadModel, 'views need it')} alone. views_url accepts redis:// URLs;"
            " without it the views are in the store of url"
        )
    views: ViewPorts = await adapter.open_views(url, runtime)
    return views


async def open_events(url: str, runtime: Runtime) -> EventPorts:
    """Open the database of events that a URL names: an adapter for events, or a whole store."""
    adapter = _adapter_of(url)
    if hasattr(adapter, "open_events"):
        events: EventPorts = await adapter.open_events(url, runtime)
        return events
    if not hasattr(adapter, "open_stores"):
        raise BadSettings(
            f"{_lacking(url, EventStore, 'events need it')}. events_url accepts kurrentdb://,"
            " postgresql:// and sqlite:// URLs"
        )
    # Here, because it brings all that joins two databases.
    from gesta.stores.separate_events import events_of

    return events_of(await adapter.open_stores(url, runtime))


def _lacking(url: str, protocol: type, purpose: str) -> str:
    return Missing(protocol, scrub(url), purpose).sentence


def _settings_for(adapter: Adapter) -> list[str]:
    openings = {"open_events": "events_url", "open_views": "views_url", "open_queue": "queue_url"}
    return [setting for name, setting in openings.items() if hasattr(adapter, name)]


async def open_jobs(url: str, runtime: Runtime) -> JobPorts:
    """Open the jobs of slow endpoints that a URL names."""
    adapter = _adapter_of(url)
    if hasattr(adapter, "open_jobs"):
        jobs: JobPorts = await adapter.open_jobs(url, runtime)
        return jobs
    stores = await open_stores(url, runtime)
    if stores.job_store is None:
        await stores.close()
        raise BadSettings(f"{url!r} cannot hold jobs; jobs_url accepts redis:// URLs")
    return JobPorts(
        job_store=stores.job_store, close=stores.close, now_ms=stores.now_ms, name=stores.name
    )


def job_places(url: str) -> frozenset[tuple[object, ...]]:
    """Where the jobs of a URL are. URLs with a place in common name the same jobs, however they are
    written. Raises BadSettings.
    """
    adapter = _adapter_of(url)
    if not hasattr(adapter, "job_places"):
        return frozenset({(url,)})
    places: frozenset[tuple[object, ...]] = adapter.job_places(url)
    return places


async def open_boundary(url: str, runtime: Runtime) -> BoundaryQueue:
    """Open the boundary queue that a URL names."""
    adapter = _adapter_of(url)
    if not hasattr(adapter, "open_boundary"):
        raise BadSettings(
            f"{url!r} is not a queue for inbound events; write sqs://region/queue-name"
        )
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
                f"url: there is no store {scheme!r}; this gesta has: kurrentdb, memory,"
                " postgresql, redis, sqlite, sqs"
            ) from None
        adapter = found[0].load()
    return adapter
