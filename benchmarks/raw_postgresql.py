"""The raw rate on PostgreSQL: the rows and commits of raw_sqlite.py, written by a bare loop over
one connection.

A request costs two event rows, a view insert and a view update, a job insert, a take and a delete.
Each of the five commits per batch
of 1,000 is one statement with arrays (`unnest`), so it is one round trip; synced to disk as the
server is configured to, which by default
it does. Tables are in a schema of their own, which is dropped afterwards. Nothing in here may be
made slower to look better.

    echo postgresql://user@host/database | python -m benchmarks.raw_postgresql [requests [batch
    [history]]]

prints the rate and the server's version. The URL is read, not named, because a list of processes
would show its password.
"""

from __future__ import annotations

import sys
import time

import asyncpg  # type: ignore[import-untyped]

from benchmarks.raw_sqlite import ordered_id
from gesta.runtime.clock import SystemRuntime, run

SCHEMA = """
create table events(pos bigint generated always as identity primary key, stream text not null,
                    ver int not null, id bytea not null, type text not null, data bytea not null,
                    meta bytea not null, unique(stream, ver));
create table views(ns text, tenant text, id text, status text, version int,
                   updated double precision, body bytea, primary key(tenant, id));
create index views_by_status on views(tenant, status, updated);
create table jobs(id text primary key, tenant text, due double precision, state int, lease text,
                  until double precision);
create index jobs_by_due on jobs(state, due);
"""
EVENT = """insert into events(stream, ver, id, type, data, meta)
           select stream, $1, id, $2, data, meta
           from unnest($3::text[], $4::bytea[], $5::bytea[], $6::bytea[])
           as given(stream, id, data, meta)"""
VIEW = """insert into views select 'notification.slack', 'acme', id, $1, $2, $3, body
          from unnest($4::text[], $5::bytea[]) as given(id, body)
          on conflict(tenant, id) do update
          set status = excluded.status, version = excluded.version, updated = excluded.updated,
              body = excluded.body"""
VIEW_AND_JOB = f"""with viewed as ({VIEW})
                   insert into jobs select id, 'acme', $3, 0, null, null
                   from unnest($4::text[]) as given(id)
                   on conflict do nothing"""  # noqa: S608 -- constants
TAKE = """update jobs set state = 1, lease = 'w', until = $1 where id in
          (select id from jobs where state = 0 and due <= $2 order by due limit $3) returning id"""
VIEW_AND_DELETE = f"""with viewed as ({VIEW})
                      delete from jobs where id = any($4::text[])"""  # noqa: S608 -- constants
CREATED, SENT = "notification.slack.MessageRequestCreated.v1", "notification.slack.MessageSent.v1"
BODY, META = b"x" * 330, b"m" * 150

_clock = SystemRuntime()


async def raw_requests_per_second(
    url: str, requests: int = 40_000, batch: int = 1_000, history: int = 0
) -> tuple[float, str]:
    """The rate, and the version of the server."""
    db = await asyncpg.connect(url)
    schema = f"gesta_raw_{_clock.random_bytes(8).hex()}"
    try:
        await db.execute(f"create schema {schema}; set search_path to {schema}; {SCHEMA}")
        await write_history(db, history, batch)
        start = time.perf_counter()
        for first in range(0, requests, batch):
            await write_batch(db, [ordered_id(first + k) for k in range(batch)])
        rate = requests / (time.perf_counter() - start)
        return rate, db.get_settings().server_version
    finally:
        await db.execute(f"drop schema if exists {schema} cascade")
        await db.close()


async def write_batch(db: asyncpg.Connection, ids: list[str]) -> None:
    """The whole life of these requests, in five commits."""
    now, count = _clock.now_ms() / 1000, len(ids)
    streams = [f"notification.slack.request-acme-{i}" for i in ids]
    event_ids, bodies, metas = (
        [stream[-16:].encode() for stream in streams],
        [BODY] * count,
        [META] * count,
    )
    await db.execute(EVENT, 0, CREATED, streams, event_ids, bodies, metas)
    await db.execute(VIEW_AND_JOB, "queued", 1, now, ids, bodies)
    await db.fetch(TAKE, now, now + 1, count)
    await db.execute(EVENT, 1, SENT, streams, event_ids, [BODY[:80]] * count, metas)
    await db.execute(VIEW_AND_DELETE, "sent", 2, now, ids, bodies)


async def write_history(db: asyncpg.Connection, history: int, batch: int) -> None:
    """Finished requests, before the clock starts: two events and a view each, no job."""
    for first in range(0, history, batch):
        count = min(batch, history - first)
        # Counted from far away, so that no id is met again even within one millisecond.
        ids, now = [ordered_id((1 << 40) + first + k) for k in range(count)], _clock.now_ms() / 1000
        streams = [f"notification.slack.request-acme-{i}" for i in ids]
        event_ids, metas = [stream[-16:].encode() for stream in streams], [META] * count
        async with db.transaction():
            await db.execute(EVENT, 0, CREATED, streams, event_ids, [BODY] * count, metas)
            await db.execute(EVENT, 1, SENT, streams, event_ids, [BODY[:80]] * count, metas)
            await db.execute(VIEW, "sent", 2, now, ids, [BODY] * count)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:4]]
    rate, version = run(raw_requests_per_second(sys.stdin.readline().strip(), *given))
    print(f"{rate:.0f} {version}")
