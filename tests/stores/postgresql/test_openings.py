"""The schema: made once however many start at once, shared by versions side by side, and refused
with a reason where it cannot be used.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta import Done
from gesta.errors import BadSettings, NotOurs, StoreError, TooNew
from gesta.ports.event_store import Appended
from gesta.ports.fences import Fence
from gesta.runtime.clock import SystemRuntime
from gesta.stores import open_stores
from gesta.stores.migrations import migrations_of
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.schema import bring_up_to_date
from gesta.testing.contracts.samples import fresh_append
from gesta.testing.harnesses.postgresql import SharedServer
from gesta.testing.postgres_server import PostgresServer
from tests.stores.postgresql.places import Note, connected, engine_at, fresh_url, opened

MIGRATIONS = migrations_of("gesta.stores.postgresql")
KNOWN = len(MIGRATIONS)


async def test_concurrent_starts_create_one_schema():
    url = await fresh_url()
    stores = await asyncio.gather(*(open_stores(url, SystemRuntime()) for _ in range(6)))
    verdicts = await asyncio.gather(*(one.events.append([fresh_append()]) for one in stores))
    assert verdicts == [[Appended(1)]] * 6
    for one in stores:
        await one.close()
    async with connected(url) as (connection, database):
        rows = await connection.fetch(
            database.sql.filled("select number from {schema}.migrations order by number")
        )
        assert [row[0] for row in rows] == list(range(1, KNOWN + 1))


@pytest.mark.parametrize("left", [False, True], ids=["in use", "left for another store"])
async def test_an_older_schema_is_upgraded_and_then_refused_to_the_older_version(left):
    url = await fresh_url()
    older = [one for one in MIGRATIONS if one.name < "0008"]
    async with connected(url) as (connection, database):
        assert await bring_up_to_date(database, older) == len(older) < KNOWN
        await connection.fetch(database.sql("begin_checkpoint"), "subscription/ledger", 300)
        if left:
            await connection.fetch(database.sql("note_fence"), "left", "", "another")
            # The older version knew no stored jobs.
            statement = database.sql("fence_left")
            before, _, _ = statement.rpartition("create or replace trigger")
            assert "stored_jobs" in statement.removeprefix(before)
            assert "stored_jobs" not in before
            await connection.execute(before)
        async with opened(url) as stores:
            assert await stores.checkpoints.position("subscription/ledger") == 300
            assert await stores.fences.standing() == ([Fence("left", "another")] if left else [])
        with pytest.raises(TooNew, match=f"schema {KNOWN}, this gesta knows {len(older)}"):
            await bring_up_to_date(database, older)
        await database.close()


async def test_a_schema_one_migration_ahead_is_accepted(caplog):
    """The next version has been started beside this one: it added a column, a table, a function and
    nothing else.
    """
    url = await fresh_url()
    async with opened(url):
        pass
    async with connected(url) as (connection, database):
        ahead = (
            "alter table {schema}.requests add column colour text; create table {schema}.novelties"
            " (id text);"
        )
        await connection.execute(database.sql.filled(ahead))
        await connection.fetch(database.sql("note_migration"), KNOWN + 1, "next.sql", KNOWN)
    async with engine_at(url) as engine:
        request = await engine.submit(Note("beside"))
        assert await request.outcome(timeout=60) == Done("beside")
        await engine.admin.rebuild()
        assert (await engine.get(request.id)).state.status == "completed"
    assert f"schema {KNOWN + 1}, this gesta knows {KNOWN}" in caplog.text


async def test_a_schema_that_this_version_cannot_work_with_is_refused():
    url = await fresh_url()
    async with opened(url):
        pass
    async with connected(url) as (connection, database):
        await connection.fetch(database.sql("note_migration"), KNOWN + 1, "next.sql", KNOWN + 1)
    with pytest.raises(TooNew, match=f"schema {KNOWN + 1}, this gesta knows {KNOWN}"):
        await open_stores(url, SystemRuntime())


async def test_a_schema_of_another_program_is_left_alone():
    url = await fresh_url()
    async with connected(url) as (connection, database):
        await connection.execute(
            database.sql.filled("create schema {schema}; create table {schema}.events (id text)")
        )
        with pytest.raises(NotOurs, match="another program's tables"):
            await open_stores(url, SystemRuntime())
        assert await connection.fetch(database.sql.filled("select * from {schema}.events")) == []


@pytest.mark.parametrize("schema", ["user", "Mixed_Case", "_9", "select"])
async def test_a_schema_may_be_called_by_any_plain_name(schema):
    async with opened(f"{await SharedServer.url()}?schema={schema}") as stores:
        assert await stores.events.append([fresh_append()]) == [Appended(1)]
        assert stores.name.endswith(f"?schema={schema}")


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("?schema=", "schema=''"),
        ("?schema=pg_own", "schema='pg_own'"),
        ("?schema=a%22b", "schema="),
        ("?schema=9a", "schema='9a'"),
        ("?schema=a;drop", "schema="),
        ("?pool=1", "pool='1'"),
        ("?pool=many", "pool='many'"),
        ("?listen=maybe", "listen='maybe'"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(end, error):
    with pytest.raises(BadSettings) as raised:
        address_of(f"postgresql://user:hidden@host/database{end}")
    assert error in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_the_servers_own_options_are_passed_on_and_the_password_is_not_shown():
    address = address_of(
        "postgresql://ann:hidden@host:5433/orders?sslmode=require&schema=mine&pool=3&listen=off"
    )
    assert address.server == "postgresql://ann:hidden@host:5433/orders?sslmode=require"
    assert address.name == "postgresql://ann@host:5433/orders?schema=mine"
    assert (address.schema, address.pool, address.listen) == ("mine", 3, False)


async def test_an_unreachable_server_is_reported():
    with pytest.raises(StoreError, match="cannot be reached"):
        await open_stores("postgresql://postgres@127.0.0.1:1/postgres", SystemRuntime())


async def test_a_missing_database_is_reported():
    url = (await SharedServer.url()).removesuffix("postgres") + "nowhere"
    with pytest.raises(StoreError, match="this database does not exist"):
        await open_stores(url, SystemRuntime())


@pytest.mark.slow
async def test_a_wrong_password_and_missing_grants_are_reported(tmp_path):
    rules = tmp_path / "hba.conf"
    rules.write_text(
        "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    )
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    rules.chmod(0o644)
    async with PostgresServer(durable=False, options={"hba_file": str(rules)}) as server:
        async with connected(server.url) as (connection, _):
            await connection.execute("create role ann login password 'right'")
        for password in ("wrong", "right"):
            url = server.url.replace("postgres@", f"ann:{password}@")
            error = "refuses this user" if password == "wrong" else "refuses this user or statement"
            with pytest.raises(StoreError, match=error) as raised:
                await open_stores(url, SystemRuntime())
            assert password not in str(raised.value)
