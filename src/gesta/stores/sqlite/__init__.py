"""The embedded default: events, views, queue and vault in one SQLite file, through one writer
thread per process.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from gesta.errors import BadSettings
from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.event_store import SqliteEventStore
from gesta.stores.sqlite.fences import SqliteFences
from gesta.stores.sqlite.health import health_of
from gesta.stores.sqlite.job_queue import SqliteJobQueue
from gesta.stores.sqlite.read_model import SqliteReadModel
from gesta.stores.sqlite.token_buckets import SqliteTokenBuckets
from gesta.stores.sqlite.transactions import SqliteTransactions
from gesta.stores.sqlite.vault import SqliteVault


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open or make the file that `sqlite:///relative.db` or `sqlite:////absolute.db` names."""
    path = file_of(url)
    database = Database(str(path), runtime)
    events = SqliteEventStore(database, runtime)
    views = SqliteReadModel(database, runtime)
    queue = SqliteJobQueue(database, runtime)
    return Stores(
        events=events,
        key_claims=events,
        read_model=views,
        sweep_index=views,
        checkpoints=views,
        leases=views,
        undispatched_jobs=views,
        queue=queue,
        job_inspection=queue,
        job_holds=queue,
        external_leases=queue,
        vault=SqliteVault(database),
        transactions=SqliteTransactions(database, events, views, queue),
        fences=SqliteFences(database, queue),
        token_buckets=SqliteTokenBuckets(database, runtime),
        close=database.close,
        # One file is on one machine: its clock is the store's.
        now_ms=runtime.now_ms,
        projects_inline=True,
        folder=str(path.parent),
        name=str(path),
        health=partial(health_of, database, runtime),
        disk_free=lambda: database.read(lambda _: _free_bytes(path.parent)),
    )


def _free_bytes(folder: Path) -> int:
    """What is left for us; asked in the reader's thread, because a network disk may take its
    time.
    """
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def file_of(url: str) -> Path:
    """The path in a SQLite URL."""
    prefix = "sqlite:///"
    path = unquote(url[len(prefix) :])
    if not url.startswith(prefix) or not path:
        raise BadSettings(
            f"url: {url!r} names no file; write 'sqlite:///gesta.db' for a file here,"
            " 'sqlite:////var/gesta.db' for an absolute path"
        )
    return Path(path)
