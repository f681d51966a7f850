"""A past for the store: finished requests written before the clock starts, many times faster than they could be lived.

Each is a copy of one real request of the same file under an id of its own, so it has the rows that a real one leaves: two events,
a view, no job, and a checkpoint that is past all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import apsw
import msgspec

from gesta.adapters.sqlite.database import open_connection
from gesta.addresses import request_stream
from gesta.projector.follow import CHECKPOINT
from gesta.request import Request
from gesta.runtime import Ids, SystemRuntime

#: Requests per commit.
BATCH = 1_000
#: Everything is appended, so a small cache is as fast as a large one, and the bench's memory stays the engine's own.
CACHE_KIB = 500

#: Told how many of how many are written.
Progress = Callable[[int, int], None]


def write_history(path: str, sample: Request, count: int, progress: Progress) -> None:
    """Copy a finished request `count` times. No engine may be at work on the file."""
    ids = Ids(SystemRuntime())
    db = open_connection(path)
    try:
        db.execute(f"pragma cache_size = -{CACHE_KIB}; pragma temp_store = memory")
        for done in range(0, count, BATCH):
            progress(done, count)
            _copy(db, sample, [ids.new() for _ in range(min(BATCH, count - done))])
        progress(count, count)
    finally:
        # The last connection takes the write-ahead log with it: the run starts on a settled file.
        db.close()


def _copy(db: apsw.Connection, sample: Request, new_ids: list[str]) -> None:
    listed = msgspec.json.encode(new_ids).decode()
    with db:
        db.execute(_sql("copy_events"), (request_stream(sample.flow, sample.tenant, sample.id), sample.id, listed))
        db.execute(_sql("copy_view"), (sample.tenant, sample.flow, sample.id, listed))
        db.execute(_sql("catch_up"), (CHECKPOINT,))


def _sql(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
