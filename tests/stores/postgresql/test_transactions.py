"""What a transaction sets is over with it; what has to be on disk is, and what need not be is not
waited for.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta.errors import StoreError
from gesta.ports.transactions import Entry
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import Connections
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.recording import record
from gesta.testing.contracts.samples import fresh_append
from tests.stores.postgresql.places import connected, fresh_url, opened

SETTINGS = (
    "synchronous_commit",
    "idle_in_transaction_session_timeout",
    "lock_timeout",
    "enable_seqscan",
    "search_path",
)


async def _settings(connection):
    return [(await connection.fetch("select current_setting($1)", name))[0][0] for name in SETTINGS]


@pytest.fixture
async def url():
    url = await fresh_url()
    async with opened(url):
        pass
    return url


class Within:
    """An open transaction that `record` and others can be called in."""

    def __init__(self, connection, sql):
        self._connection, self._sql = connection, sql

    async def ask(self, name, *values):
        return await self._connection.fetch(self._sql(name), *values)


async def test_no_setting_outlives_its_transaction(url):
    async with connected(url) as (connection, database):
        before = await _settings(connection)
        for name in ("begin_durable", "begin_relaxed"):
            await connection.execute(database.sql(name))
            assert await _settings(connection) != before
            await connection.execute(database.sql("limit_lock_wait"))
            await connection.execute("commit")
            assert await _settings(connection) == before
        for durable in (True, False):
            await record(
                Within(connection, database.sql),
                [Entry(fresh_append(), None)],
                {},
                0,
                durable=durable,
            )
            assert await _settings(connection) == before


@pytest.mark.parametrize(
    ("default", "durable", "expected"),
    [("on", False, "off"), ("off", True, "on"), ("local", True, "local")],
)
async def test_a_record_with_events_waits_for_the_disk(url, default, durable, expected):
    async with connected(url) as (connection, database):
        await connection.execute("begin")
        await connection.fetch("select set_config('synchronous_commit', $1, false)", default)
        await record(
            Within(connection, database.sql), [Entry(fresh_append(), None)], {}, 0, durable=durable
        )
        # As it is when the commit comes: the function's own settings are undone at its end, this
        # one is not.
        assert (await _settings(connection))[0] == expected
        await connection.execute("rollback")


async def test_a_transaction_that_fails_leaves_nothing_and_its_connection_is_used_again(url):
    address = address_of(url)
    database = Database(address, Connections(address))
    pids = []

    async def fail(connection):
        pids.append((await connection.fetch("select pg_backend_pid()"))[0][0])
        await connection.fetch(database.sql("begin_checkpoint"), "half", 7)
        await connection.fetch("select 1 / 0")

    for _ in range(2):
        with pytest.raises(StoreError, match="nothing was written"):
            await database.transact(fail, durable=False)
    assert await database.ask("get_checkpoint", "half") == []
    assert len(set(pids)) == 1
    await database.close()


async def test_a_statement_that_was_sent_completes_although_its_caller_is_cancelled(url):
    address = address_of(url)
    database = Database(address, Connections(address))
    began = asyncio.Event()

    async def begin(connection):
        began.set()
        await connection.fetch(database.sql("begin_checkpoint"), "whole", 7)

    calling = asyncio.create_task(database.transact(begin, durable=False))
    await began.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await database.close()
    async with connected(url) as (connection, _):
        assert [
            row[0] for row in await connection.fetch(database.sql("get_checkpoint"), "whole")
        ] == [7]
