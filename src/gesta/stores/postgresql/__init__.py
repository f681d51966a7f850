"""Events, views, queue and vault in one schema of a PostgreSQL database, for several processes on
several machines.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from gesta.ports.stores import Health, Stores
from gesta.runtime.clock import OnClock, Runtime, spawn
from gesta.stores.job_results import JobResults
from gesta.stores.postgresql.address import Address, address_of
from gesta.stores.postgresql.clock import ServerClock
from gesta.stores.postgresql.connections import Connections
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.event_store import PostgresqlEventStore
from gesta.stores.postgresql.fences import PostgresqlFences
from gesta.stores.postgresql.job_queue import PostgresqlJobQueue
from gesta.stores.postgresql.notifications import Notifications
from gesta.stores.postgresql.outbox import PostgresqlOutbox
from gesta.stores.postgresql.read_model import PostgresqlReadModel
from gesta.stores.postgresql.schema import bring_up_to_date
from gesta.stores.postgresql.stored_jobs import PostgresqlStoredJobs
from gesta.stores.postgresql.token_buckets import PostgresqlTokenBuckets
from gesta.stores.postgresql.transactions import PostgresqlTransactions
from gesta.stores.postgresql.vault import PostgresqlVault

#: The same number as in migrations/0002_read_model.sql. It never changes, because a stream stays in
#: its partition for ever. Enough for the projectors that one server can feed, and few enough to be
#: moved in one statement.
PARTITIONS = 16
#: With all 2,000 callers in one commit, engine and server would wait for each other in turn.
COMMIT_SIZE = 512


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open or create the schema that `postgresql://user@host/database?schema=gesta` names.

    `pool=8`: at most 8 connections. `listen=off`: for a connection pooler that does not support
    LISTEN.
    """
    address = address_of(url)
    return await open_at(address, runtime, Connections(address))


async def open_at(
    address: Address,
    runtime: Runtime,
    connections: Connections,
    now_ms: Callable[[], int] | None = None,
) -> Stores:
    """As `open_stores`. `now_ms` replaces the server's clock."""
    database = Database(address, connections)
    background: list[asyncio.Task[None]] = []

    async def close() -> None:
        await _end(background)
        await database.close()

    def keep_running(run: Coroutine[Any, Any, None], name: str) -> None:
        background.append(spawn(run, f"gesta-postgresql-{name}"))

    try:
        await bring_up_to_date(database)
        if now_ms is None:
            clock = ServerClock(database, runtime)
            await clock.measure()
            now_ms = clock.now_ms
            keep_running(clock.keep(), "clock")
        notifications = Notifications(database, runtime)
        keep_running(notifications.send(), "send")
        keep_running(notifications.poll(), "poll")
        if address.listen:
            keep_running(notifications.listen(), "listen")
    except BaseException:
        await close()
        raise
    on_clock = OnClock(runtime, now_ms)
    events = PostgresqlEventStore(database, notifications, on_clock)
    views = PostgresqlReadModel(database, on_clock)
    queue = PostgresqlJobQueue(database, notifications, on_clock)
    return Stores(
        events=events,
        key_claims=events,
        read_model=views,
        sweep_index=views,
        checkpoints=views,
        leases=views,
        undispatched_jobs=views,
        queue=queue,
        unique_jobs=queue,
        job_inspection=queue,
        job_holds=queue,
        external_leases=queue,
        vault=PostgresqlVault(database),
        transactions=PostgresqlTransactions(
            database, events=events, views=views, queue=queue, runtime=runtime
        ),
        fences=PostgresqlFences(database, queue),
        job_rows=(stored_jobs := PostgresqlStoredJobs(database, on_clock)),
        job_store=JobResults(stored_jobs, on_clock),
        token_buckets=PostgresqlTokenBuckets(database, on_clock),
        close=close,
        now_ms=now_ms,
        partitions=PARTITIONS,
        projects_inline=True,
        commit_size=COMMIT_SIZE,
        name=address.name,
        outbox=PostgresqlOutbox(database, events, on_clock),
        health=partial(_health_of, database),
    )


def job_places(url: str) -> frozenset[tuple[object, ...]]:
    address = address_of(url)
    server = urlsplit(address.server)
    host = (server.hostname or "localhost").lower()
    host = "localhost" if host in ("127.0.0.1", "::1") else host
    return frozenset({(host, server.port or 5432, server.path.strip("/"), address.schema)})


async def _health_of(database: Database) -> Health:
    """A store that answers is healthy. The server watches its own disks."""
    ((number, _),) = await database.ask("schema_version")
    ((size,),) = await database.ask("schema_size", database.address.schema)
    return Health(
        schema=number, errors=(), is_whole=True, size=size, log_size=0, free=None, open_to_others=()
    )


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Whatever their errors: the connections have to be closed after them."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
