"""Whether the file is sound and has room, within a few seconds whatever its size."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from gesta.ports.stores import Health
from gesta.runtime.clock import Runtime
from gesta.stores.sqlite.database import Database

#: A whole check reads the whole file. After this long, what was looked at has to do.
CHECK_SECONDS = 3.0
#: SQLite's steps between two looks at the clock.
STEPS = 20_000
#: More faults than this say nothing more.
FAULTS = 5


async def health_of(database: Database, runtime: Runtime) -> Health:
    return await database.read(lambda db: _health(db, Path(database.path), runtime))


def _health(db: apsw.Connection, path: Path, runtime: Runtime) -> Health:
    faults, is_whole = _checked(db, runtime)
    wal = path.with_name(f"{path.name}-wal")
    files = [one for one in (path, wal, path.with_suffix(".key")) if one.exists()]
    return Health(
        schema=int(db.execute("pragma user_version").get),
        faults=faults,
        is_whole=is_whole,
        size=path.stat().st_size,
        log_size=wal.stat().st_size if wal in files else 0,
        free=shutil.disk_usage(path.parent).free,
        open_to_others=tuple(str(one) for one in files if one.stat().st_mode & 0o077),
    )


def _checked(db: apsw.Connection, runtime: Runtime) -> tuple[tuple[str, ...], bool]:
    """What is wrong with the file, and whether all of it was looked at."""
    until = runtime.monotonic() + CHECK_SECONDS
    db.set_progress_handler(lambda: runtime.monotonic() > until, STEPS)
    try:
        found = [str(row[0]) for row in db.execute(f"pragma quick_check({FAULTS})")]
    except apsw.InterruptError:
        return (), False
    except apsw.Error as error:
        return (str(error),), False
    finally:
        db.set_progress_handler(None)
    return tuple(one for one in found if one != "ok"), True
