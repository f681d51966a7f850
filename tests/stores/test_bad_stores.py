"""Files that are not ours, newer than the code, or on a disk without room: reported clearly, and
left as they were.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from gesta import Attempt, Done, Engine, Outcome, Payload, flow
from gesta.errors import (
    DamagedStore,
    EmptiedStore,
    LostMasterKey,
    NotOurs,
    StoreError,
    TooNew,
    UnreadableMasterKey,
)
from gesta.stores.sqlite import database

#: Submits until no file may grow any further.
PROGRAM = """
import asyncio, resource
from gesta import Attempt, Done, Engine, Outcome, Payload, flow
from gesta.errors import StoreError

class Note(Payload):
    text: str

@flow("walk.note", on_unknown="manual")
async def note(payload: Note, attempt: Attempt) -> Outcome:
    return Done()

async def main():
    async with Engine("sqlite:///gesta.db", flows=[note], work=False) as engine:
        try:
            while True:
                request = await engine.submit(Note("x" * 3_000))
                print(request.id, flush=True)
        except StoreError as error:
            print(type(error).__name__, error, flush=True)

resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
asyncio.run(main())
"""


class Note(Payload, frozen=True):
    text: str = "hello"


@flow("walk.note", on_unknown="manual")
async def note_flow(payload: Note, attempt: Attempt) -> Outcome:
    return Done()


def engine_of(path: Path) -> Engine:
    return Engine(f"sqlite:///{path}", flows=[note_flow], work=False)


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "content",
    [
        b"Dear Ann,\nthis is a letter.\n" * 100,
        b"\x00" * 5_000,
        b"SQLite format 3\x00" + b"\xff" * 5_000,
    ],
)
async def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path, content):
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(NotOurs, match=re.escape(f"{path} is not a gesta store")):
        await engine_of(path).start()
    assert everything_in(tmp_path) == {"letter.txt": content}


async def a_store(path: Path) -> None:
    async with Engine(f"sqlite:///{path}", flows=[note_flow], work=False) as engine:
        for _ in range(20):
            await engine.submit(Note("x" * 3_000))


@pytest.mark.parametrize("evidence", ["gesta.key", "gesta.db-wal"])
async def test_an_emptied_store_was_silently_created_again(tmp_path, evidence):
    path = tmp_path / "gesta.db"
    await a_store(path)
    path.write_bytes(b"")
    (tmp_path / "gesta.key").rename(tmp_path / evidence)
    before = everything_in(tmp_path)
    with pytest.raises(
        EmptiedStore,
        match=rf"gesta\.db is empty, but .*{evidence} shows .* Restore the store from a backup",
    ):
        await engine_of(path).start()
    assert everything_in(tmp_path) == before


async def test_a_store_that_another_process_is_creating_for_an_existing_key_is_not_refused(
    tmp_path,
):
    path = tmp_path / "gesta.db"
    await a_store(tmp_path / "other.db")
    (tmp_path / "other.key").rename(tmp_path / "gesta.key")
    path.touch()
    engine = engine_of(path)
    opening = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    assert not opening.done()
    path.write_bytes((tmp_path / "other.db").read_bytes())
    await opening
    await engine.stop()


async def test_a_missing_store_is_created_for_an_existing_key(tmp_path):
    await a_store(tmp_path / "gesta.db")
    (tmp_path / "gesta.db").unlink()
    await a_store(tmp_path / "gesta.db")


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("damage", ["header", "schema", "cut"])
async def test_a_damaged_store_was_reported_as_not_a_gesta_store(tmp_path, damage, has_key):
    path = tmp_path / "gesta.db"
    await a_store(path)
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[0:16] = b"\x00" * 16
    elif damage == "schema":
        content[100:4096] = b"\xff" * 3996
    else:
        del content[4096:]
    path.write_bytes(content)
    if not has_key:
        (tmp_path / "gesta.key").unlink()
    with pytest.raises(
        DamagedStore, match=r"gesta\.db is a damaged gesta store .* restore the store from a backup"
    ):
        await engine_of(path).start()
    assert path.read_bytes() == content


async def test_damage_found_while_the_store_is_in_use_is_reported_as_damage(tmp_path):
    path = tmp_path / "gesta.db"
    await a_store(path)
    db = apsw.Connection(str(path))
    db.execute("pragma wal_checkpoint(truncate)")
    (page,) = db.execute("select rootpage from sqlite_schema where name = 'events'")
    size = int(str(db.execute("pragma page_size").get))
    db.close()
    content = bytearray(path.read_bytes())
    start = (int(str(page[0])) - 1) * size
    content[start : start + size] = b"\xff" * size
    path.write_bytes(content)
    async with engine_of(path) as engine:
        with pytest.raises(DamagedStore, match="database disk image is malformed"):
            await engine.pipeline.environment.stores.events.follow(0, 100)


async def test_an_unreadable_key_file_is_reported_as_such(tmp_path):
    await a_store(tmp_path / "gesta.db")
    (tmp_path / "gesta.key").unlink()
    # The superuser may read every file, but no folder.
    (tmp_path / "gesta.key").mkdir()
    with pytest.raises(UnreadableMasterKey, match=r"gesta\.key cannot be read \(Is a directory\)"):
        await engine_of(tmp_path / "gesta.db").start()


async def test_another_programs_database_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "shop.db"
    db = apsw.Connection(str(path))
    db.execute("create table orders (id integer); insert into orders values (7)")
    db.close()
    before = everything_in(tmp_path)
    with pytest.raises(NotOurs, match="another program's SQLite database"):
        await engine_of(path).start()
    assert everything_in(tmp_path) == before


async def test_a_file_of_a_newer_gesta_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "gesta.db"
    async with engine_of(path) as engine:
        await engine.submit(Note())
    db = apsw.Connection(str(path))
    db.execute("pragma user_version = 99")
    db.close()
    before = everything_in(tmp_path)
    with pytest.raises(
        TooNew, match=r"has schema 99, this gesta knows \d+; nothing was changed. Upgrade gesta"
    ):
        await engine_of(path).start()
    assert everything_in(tmp_path) == before


async def test_a_lost_key_file_is_reported_and_no_new_key_is_created(tmp_path):
    path, key = tmp_path / "gesta.db", tmp_path / "gesta.key"
    async with Engine(f"sqlite:///{path}"):
        pass
    kept = key.read_text()
    key.unlink()
    with pytest.raises(LostMasterKey, match=r"gesta\.key"):
        async with Engine(f"sqlite:///{path}"):
            pass
    assert not key.exists()
    key.write_text(kept)
    async with Engine(f"sqlite:///{path}"):
        pass


async def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"the folder .* does not exist; create it first"):
        await engine_of(tmp_path / "no" / "gesta.db").start()


async def test_a_folder_instead_of_a_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        await engine_of(tmp_path).start()


@pytest.mark.slow
async def test_everything_acknowledged_before_the_disk_was_full_is_there_afterwards(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "GESTA_LOG_LEVEL": "critical"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    *acknowledged, reported = done.stdout.splitlines()
    assert (done.returncode, len(acknowledged) > 20) == (0, True), done.stderr
    assert re.match(r"Store(Full|Error) gesta\.db: .*nothing was written", reported)
    async with engine_of(tmp_path / "gesta.db") as engine:
        events = await engine.pipeline.environment.stores.events.follow(0, 100_000)
        # The one that was refused is not there, and it can be submitted again.
        assert [
            event.stream.removeprefix("walk.note.request-default-") for event in events
        ] == acknowledged
        await engine.submit(Note("x" * 3_000))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(database, "BUSY_MS", 300)


async def test_a_file_locked_by_a_stuck_process_fails_all_writes_until_it_is_unlocked(
    tmp_path, impatient
):
    path = tmp_path / "gesta.db"
    async with engine_of(path) as engine:
        stuck = apsw.Connection(str(path))
        stuck.execute("begin immediate")
        before = time.monotonic()
        answers = await asyncio.gather(
            *(engine.submit(Note(str(n)), key=str(n)) for n in range(20)), return_exceptions=True
        )
        # All of them waited for the same lock, not one after the other.
        assert time.monotonic() - before < 3
        assert {type(answer).__name__ for answer in answers} == {"StoreError"}
        assert "was locked by another process" in str(answers[0])
        stuck.execute("rollback")
        assert (await engine.submit(Note("0"), key="0")).verdict == "created"
        stuck.close()


async def test_a_file_that_was_locked_during_a_poll_is_watched_again(tmp_path, monkeypatch):
    path = tmp_path / "gesta.db"
    async with engine_of(path) as looking, engine_of(path) as other:
        committed = asyncio.Event()
        watched = looking.pipeline.environment.stores.close.__self__  # type: ignore[attr-defined]

        def busy() -> int:
            monkeypatch.undo()
            raise apsw.BusyError("held")

        monkeypatch.setattr(watched, "_data_version", busy)
        while watched._data_version is busy:
            await asyncio.sleep(0.01)
        watched.on_commit(committed.set)
        await other.submit(Note())
        await asyncio.wait_for(committed.wait(), 60)
