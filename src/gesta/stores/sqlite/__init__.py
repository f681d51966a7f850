"""The default store: events, views, queue and vault in one SQLite file."""

import os
import shutil
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import apsw

from gesta.errors import BadSettings
from gesta.ports.stores import Health, Stores
from gesta.runtime.clock import Runtime
from gesta.stores.job_results import JobResults
from gesta.stores.sqlite.database import Database, emptied_evidence, refuse_emptied
from gesta.stores.sqlite.event_store import SqliteEventStore
from gesta.stores.sqlite.fences import SqliteFences
from gesta.stores.sqlite.job_queue import SqliteJobQueue
from gesta.stores.sqlite.read_model import SqliteReadModel
from gesta.stores.sqlite.stored_jobs import SqliteStoredJobs
from gesta.stores.sqlite.token_buckets import SqliteTokenBuckets
from gesta.stores.sqlite.transactions import SqliteTransactions
from gesta.stores.sqlite.vault import SqliteVault

__all__ = ["emptied_evidence", "file_of", "open_stores"]

#: The check of a file ends after this time, although it has not read all of it.
CHECK_SECONDS = 3.0
#: Steps of SQLite between two readings of the clock.
STEPS = 20_000
#: The check ends after so many errors.
ERRORS_MAX = 5


async def open_stores(url: str, runtime: Runtime) -> Stores:
    """Open or create the file that `sqlite:///relative.db` or `sqlite:////absolute.db` names."""
    path = file_of(url)
    await refuse_emptied(path, runtime)
    database = Database(str(path), runtime)
    events = SqliteEventStore(database, runtime)
    views = SqliteReadModel(database, runtime)
    queue = SqliteJobQueue(database, runtime)
    stored_jobs = SqliteStoredJobs(database, runtime)
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
        vault=SqliteVault(database),
        transactions=SqliteTransactions(database, events=events, views=views, queue=queue),
        fences=SqliteFences(database, queue),
        job_store=JobResults(stored_jobs, runtime),
        job_rows=stored_jobs,
        token_buckets=SqliteTokenBuckets(database, runtime),
        close=database.close,
        # A file is on one machine, whose clock is the clock of the store.
        now_ms=runtime.now_ms,
        projects_inline=True,
        folder=str(path.parent),
        name=str(path),
        health=partial(health_of, database, runtime),
        disk_free=lambda: database.read(lambda _: _free_bytes(path.parent)),
    )


def _free_bytes(folder: Path) -> int:
    """Runs in the reader's thread: a network disk may be slow."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def job_places(url: str) -> frozenset[tuple[object, ...]]:
    return frozenset({(file_of(url).resolve(),)})


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


async def health_of(database: Database, runtime: Runtime) -> Health:
    return await database.read(lambda db: _health(db, Path(database.path), runtime))


def _health(db: apsw.Connection, path: Path, runtime: Runtime) -> Health:
    errors, is_whole = _checked(db, runtime)
    wal = path.with_name(f"{path.name}-wal")
    files = [one for one in (path, wal, path.with_suffix(".key")) if one.exists()]
    return Health(
        schema=int(db.execute("pragma user_version").get),
        errors=errors,
        is_whole=is_whole,
        size=path.stat().st_size,
        log_size=wal.stat().st_size if wal in files else 0,
        free=shutil.disk_usage(path.parent).free,
        open_to_others=tuple(str(one) for one in files if one.stat().st_mode & 0o077),
    )


def _checked(db: apsw.Connection, runtime: Runtime) -> tuple[tuple[str, ...], bool]:
    """The errors in the file, and whether all of it was checked."""
    until = runtime.monotonic() + CHECK_SECONDS
    db.set_progress_handler(lambda: runtime.monotonic() > until, STEPS)
    try:
        found = [str(row[0]) for row in db.execute(f"pragma quick_check({ERRORS_MAX})")]
    except apsw.InterruptError:
        return (), False
    except apsw.Error as error:
        return (str(error),), False
    finally:
        db.set_progress_handler(None)
    return tuple(one for one in found if one != "ok"), True
