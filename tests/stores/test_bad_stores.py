"""Files that are not ours, newer than the code, or on a disk without room: told clearly, and left
as they were.
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
from gesta.errors import LostMasterKey, NotOurs, StoreError, TooNew
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
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path, content):
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(NotOurs, match=re.escape(f"{path} is not a gesta store")):
        await engine_of(path).start()
    assert everything_in(tmp_path) == {"letter.txt": content}


async def test_another_programs_database_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "shop.db"
    db = apsw.Connection(str(path))
    db.execute("create table orders (id integer); insert into orders values (7)")
    db.close()
    before = everything_in(tmp_path)
    with pytest.raises(NotOurs, match="another program's SQLite database"):
        await engine_of(path).start()
    assert everything_in(tmp_path) == before


async def test_a_file_of_a_newer_gesta_is_refused_and_left_as_it_was(tmp_path):
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


async def test_a_lost_key_file_is_told_and_no_new_one_is_made_that_would_open_nothing(tmp_path):
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


async def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(StoreError, match=r"the folder .* does not exist; make it first"):
        await engine_of(tmp_path / "no" / "gesta.db").start()


async def test_a_folder_in_place_of_a_file_is_told(tmp_path):
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
    *acknowledged, told = done.stdout.splitlines()
    assert (done.returncode, len(acknowledged) > 20) == (0, True), done.stderr
    assert re.match(r"Store(Full|Error) gesta\.db: .*nothing was written", told)
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


async def test_a_file_held_by_a_stuck_process_is_reported_to_all_and_work_goes_on_when_it_is_free(
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
        assert "was held by another process" in str(answers[0])
        stuck.execute("rollback")
        assert (await engine.submit(Note("0"), key="0")).verdict == "created"
        stuck.close()


async def test_a_file_that_cannot_be_watched_for_a_moment_is_watched_again(tmp_path, monkeypatch):
    path = tmp_path / "gesta.db"
    async with engine_of(path) as looking, engine_of(path) as other:
        told = asyncio.Event()
        watched = looking.pipeline.environment.stores.close.__self__  # type: ignore[attr-defined]

        def busy() -> int:
            monkeypatch.undo()
            raise apsw.BusyError("held")

        monkeypatch.setattr(watched, "_data_version", busy)
        while watched._data_version is busy:
            await asyncio.sleep(0.01)
        watched.on_commit(told.set)
        await other.submit(Note())
        await asyncio.wait_for(told.wait(), 5)
