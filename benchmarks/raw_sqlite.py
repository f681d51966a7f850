"""The raw rate: the rows of one request, written by a bare loop, for the ratio that `make bench`
prints.

A request costs two event rows, a view insert and a view update, a job insert, a take and a delete,
in five commits per batch of
1,000, WAL with synchronous=FULL. Rows are as large as a typical request's (about 330 bytes of
payload, 150 of metadata). Run it
before and after a change; nothing in here may be made slower to look better.

    python -m benchmarks.raw_sqlite [requests [batch [history [folder]]]]
"""

# ruff: noqa: B023 -- each lambda is called in the turn of the loop that made it

import pathlib
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable

SCHEMA = """
create table events(pos integer primary key autoincrement, stream text not null, ver int not null,
                    id blob not null, type text not null, data blob not null,
                    meta blob not null, unique(stream, ver));
create table views(ns text, tenant text, id text, status text, version int, updated real,
                   body blob, primary key(tenant, id)) without rowid;
create index views_by_status on views(tenant, status, updated);
create table jobs(id text primary key, tenant text, due real, state int, lease text, until real);
create index jobs_by_due on jobs(state, due);
"""
EVENT = "insert into events(stream, ver, id, type, data, meta) values(?, ?, ?, ?, ?, ?)"
VIEW = """insert into views values(?, ?, ?, ?, ?, ?, ?) on conflict(tenant, id) do update
          set status = excluded.status, version = excluded.version, updated = excluded.updated,
              body = excluded.body"""
JOB = "insert or ignore into jobs values(?, ?, ?, 0, null, null)"
TAKE = """update jobs set state = 1, lease = 'w', until = ? where id in
          (select id from jobs where state = 0 and due <= ? order by due limit ?) returning id"""


def ordered_id(counter: int) -> str:
    """A time-ordered id, as UUIDv7 is."""
    return str(uuid.UUID(int=(time.time_ns() // 1_000_000 << 80) | counter))


def write_history(
    db: sqlite3.Connection, history: int, batch: int, body: bytes, meta: bytes
) -> None:
    """Finished requests, before the clock starts: two events and a view each, no job."""
    for first in range(0, history, batch):
        # Counted from far away, so that no id is met again even within one millisecond.
        ids, now = (
            [ordered_id((1 << 40) + first + k) for k in range(min(batch, history - first))],
            time.time(),
        )
        streams = [f"notification.slack.request-acme-{i}" for i in ids]
        db.execute("begin immediate")
        db.executemany(
            EVENT,
            [
                (s, 0, s[-16:].encode(), "notification.slack.MessageRequestCreated.v1", body, meta)
                for s in streams
            ],
        )
        db.executemany(
            EVENT,
            [
                (s, 1, s[-16:].encode(), "notification.slack.MessageSent.v1", body[:80], meta)
                for s in streams
            ],
        )
        db.executemany(VIEW, [("notification.slack", "acme", i, "sent", 2, now, body) for i in ids])
        db.execute("commit")
    db.execute("pragma wal_checkpoint(truncate)")


def raw_requests_per_second(
    requests: int = 40_000, batch: int = 1_000, history: int = 0, folder: str | None = None
) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        db = sqlite3.connect(pathlib.Path(inside, "raw.db"), isolation_level=None)
        for pragma in (
            "journal_mode = wal",
            "synchronous = full",
            "cache_size = -65536",
            "wal_autocheckpoint = 4000",
        ):
            db.execute(f"pragma {pragma}")
        db.executescript(SCHEMA)
        body, meta = b"x" * 330, b"m" * 150
        if history:
            write_history(db, history, batch, body, meta)
        start = time.perf_counter()
        for first in range(0, requests, batch):
            ids, now = [ordered_id(first + k) for k in range(batch)], time.time()
            streams = [f"notification.slack.request-acme-{i}" for i in ids]
            steps: list[Callable[[], object]] = [
                lambda: db.executemany(
                    EVENT,
                    [
                        (
                            s,
                            0,
                            s[-16:].encode(),
                            "notification.slack.MessageRequestCreated.v1",
                            body,
                            meta,
                        )
                        for s in streams
                    ],
                ),
                lambda: (
                    db.executemany(
                        VIEW,
                        [("notification.slack", "acme", i, "queued", 1, now, body) for i in ids],
                    ),
                    db.executemany(JOB, [(i, "acme", now) for i in ids]),
                ),
                lambda: db.execute(TAKE, (now, now + 1, batch)).fetchall(),
                lambda: db.executemany(
                    EVENT,
                    [
                        (
                            s,
                            1,
                            s[-16:].encode(),
                            "notification.slack.MessageSent.v1",
                            body[:80],
                            meta,
                        )
                        for s in streams
                    ],
                ),
                lambda: (
                    db.executemany(
                        VIEW, [("notification.slack", "acme", i, "sent", 2, now, body) for i in ids]
                    ),
                    db.executemany("delete from jobs where id = ?", [(i,) for i in ids]),
                ),
            ]
            for step in steps:
                db.execute("begin immediate")
                step()
                db.execute("commit")
        return requests / (time.perf_counter() - start)


if __name__ == "__main__":
    given = sys.argv[1:]
    numbers = [int(text) for text in given[:3]] + [40_000, 1_000, 0][len(given) :]
    folder = given[3] if len(given) > 3 else None
    print(f"{raw_requests_per_second(numbers[0], numbers[1], numbers[2], folder):.0f}")
