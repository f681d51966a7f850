"""The bare loop on PostgreSQL writes the rows of the one on SQLite, on a real server, and leaves
nothing there.
"""

import sqlite3
from contextlib import AsyncExitStack

import asyncpg  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from benchmarks import raw_postgresql, raw_sqlite
from benchmarks.store import BenchStore
from gesta.runtime.clock import turn
from gesta.runtime.settings import Settings
from gesta.testing.postgres_server import PostgresServer
from gesta.testing.scratch_store import ChosenStore

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

IDS = [raw_sqlite.ordered_id(number) for number in range(10)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    below = tmp_path_factory.mktemp("server")
    async with PostgresServer(below=below) as server:
        yield server
    assert list(below.iterdir()) == []


@pytest_asyncio.fixture(loop_scope="module")
async def db(server):
    """A connection with the tables of the bare loop."""
    connection = await asyncpg.connect(server.url)
    await connection.execute(
        f"create schema trial; set search_path to trial; {raw_postgresql.SCHEMA}"
    )
    yield connection
    await connection.execute("drop schema trial cascade")
    await connection.close()


async def _rows(db, table):
    return [tuple(row) for row in await db.fetch(f"select * from {table} order by 1, 2, 3")]


async def test_the_tables_have_the_columns_and_indexes_of_the_one_on_sqlite(db):
    twin = sqlite3.connect(":memory:")
    twin.executescript(raw_sqlite.SCHEMA)
    for table in ("events", "views", "jobs"):
        columns = await db.fetch(
            "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0 order by"
            " attnum",
            table,
        )
        assert [row[0] for row in columns] == [
            row[1] for row in twin.execute(f"pragma table_info({table})")
        ]
        # The primary key of events is SQLite's table itself.
        indexes = len(twin.execute(f"pragma index_list({table})").fetchall()) + (table == "events")
        assert (
            await db.fetchval(
                "select count(*) from pg_indexes where schemaname = 'trial' and tablename = $1",
                table,
            )
            == indexes
        )
    twin.close()


async def test_a_batch_leaves_two_events_and_a_view_for_each_request_and_no_job(db):
    await raw_postgresql.write_batch(db, IDS)
    events = await _rows(db, "events")
    assert [(stream[-36:], version) for _, stream, version, *_ in events] == [
        (one, 0) for one in IDS
    ] + [(one, 1) for one in IDS]
    assert [(len(data), len(meta)) for *_, data, meta in events] == [(330, 150)] * 10 + [
        (80, 150)
    ] * 10
    assert [(row[2], row[3], row[4], len(row[6])) for row in await _rows(db, "views")] == [
        (one, "sent", 2, 330) for one in IDS
    ]
    assert await _rows(db, "jobs") == []


async def test_every_commit_of_a_batch_is_one_statement_that_does_its_part(db):
    # The first time the client asks the server for the types of the arguments.
    await raw_postgresql.write_batch(db, IDS[:5])
    done = []
    db.add_query_logger(lambda record: done.append(record.query))
    await raw_postgresql.write_batch(db, IDS[5:])
    # Loggers are called a moment later.
    await turn()
    assert done == [
        raw_postgresql.EVENT,
        raw_postgresql.VIEW_AND_JOB,
        raw_postgresql.TAKE,
        raw_postgresql.EVENT,
        raw_postgresql.VIEW_AND_DELETE,
    ]


async def test_a_past_is_two_events_and_a_view_for_each_request_and_no_job(db):
    await raw_postgresql.write_history(db, 25, 10)
    counts = [
        await db.fetchval(f"select count(*) from {table}") for table in ("events", "views", "jobs")
    ]
    assert counts == [50, 25, 0]


async def test_the_bench_runs_it_in_a_process_of_its_own_and_it_leaves_nothing_behind(
    server, tmp_path
):
    settings = Settings(url=f"{server.url}?schema=shop&pool=3")
    chosen = ChosenStore(settings.url)
    store = BenchStore(settings, tmp_path, is_here=True, chosen=chosen, exits=AsyncExitStack())
    run = await store.raw(20, 10, 15)
    assert run.requests_per_second > 0
    assert run.store == store.name(run)
    assert run.store.startswith("PostgreSQL 18")
    db = await asyncpg.connect(server.url)
    assert await db.fetch("select nspname from pg_namespace where nspname like 'gesta%'") == []
    assert await db.fetchval("show fsync") == "on"
    await db.close()
