"""People on a real disk: no byte of them in any file, no byte of an erased key, and no process that
still has it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from gesta import Attempt, Done, Engine, Erased, Outcome, Payload, Personal, Rejected, Retry, flow
from gesta.runtime.clock import SystemRuntime
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts.samples import fresh_encrypted

ROOT = Path(__file__).parents[2]
NAME, EMAIL = "Ana Maria Quixote", "ana.quixote@people.example"


class Parcel(Payload, frozen=True):
    name: Personal[str]
    contacts: dict[str, Personal[str]]
    weight: int = 1


def parcels(seen: list[Parcel], *outcomes: Outcome):
    waiting = list(outcomes)

    @flow("walk.parcel", on_unknown="resend")
    async def parcel(payload: Parcel, attempt: Attempt) -> Outcome:
        seen.append(payload)
        return (
            waiting.pop(0)
            if waiting
            else Done(f"sent to {len(seen)}", detail=f"{payload.name} was at home")
        )

    return parcel


ANA = Parcel(NAME, {"mail": EMAIL})


def bytes_of(folder: Path) -> bytes:
    """All files of the store as they are on disk now, the write-ahead log among them."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def assert_no_person_is_in(folder: Path) -> None:
    kept = bytes_of(folder)
    assert b"walk.parcel" in kept
    for text in (NAME, "Quixote", EMAIL, "people.example"):
        assert text.encode() not in kept, text  # R1-43


async def test_no_byte_of_a_person_reaches_disk_or_log_and_an_erased_one_is_executed_no_more(
    tmp_path, caplog
):
    caplog.set_level(logging.DEBUG, "gesta")
    seen: list[Parcel] = []
    async with Engine(
        f"sqlite:///{tmp_path / 'gesta.db'}",
        flows=[parcels(seen, Done("m-1"), Retry("busy", NAME, 3600))],
    ) as engine:
        done = await engine.submit(ANA, key="first")
        assert isinstance(await done.outcome(), Done)
        waiting = await engine.submit(ANA, key="second", correlation_id=f"mail {EMAIL}")
        while (await waiting.view()).state.attempts == 0:
            await asyncio.sleep(0.01)
        assert seen == [ANA, ANA]
        assert await waiting.payload() == ANA
        assert_no_person_is_in(tmp_path)
        assert await engine.erase(NAME) == 1
        await waiting.retry()
        ended = await waiting.outcome()
        assert isinstance(ended, Rejected)
        assert ended.reason == "subject_erased"
        assert (await engine.submit(ANA, key="second")).id == waiting.id
        with pytest.raises(Erased):
            await done.payload()
        assert len(seen) == 2
    assert_no_person_is_in(tmp_path)
    assert "Quixote" not in caplog.text
    assert "people.example" not in caplog.text


@pytest.mark.slow
async def test_data_that_another_process_erased_is_not_opened_again(tmp_path):
    seen: list[Parcel] = []
    url = f"sqlite:///{tmp_path / 'gesta.db'}"
    async with Engine(url, flows=[parcels(seen, Retry("busy", "", 3600))]) as engine:
        waiting = await engine.submit(ANA)
        while (await waiting.view()).state.attempts == 0:
            await asyncio.sleep(0.01)
        command = (sys.executable, "-m", "gesta", "erase", EMAIL, "--url", url, "--by", "dpo")
        office = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await office.communicate()
        assert (office.returncode, output) == (0, b"1\n")
        await waiting.retry()
        assert isinstance(await waiting.outcome(), Rejected)
    assert len(seen) == 1


@pytest.mark.slow
async def test_a_destroyed_key_leaves_no_byte_in_any_file(tmp_path):
    """Neither in pages that were split while it was there, nor in free space, nor in the
    write-ahead log.
    """
    stores = await open_stores(f"sqlite:///{tmp_path / 'gesta.db'}", SystemRuntime())
    runtime = SystemRuntime()
    keys = [
        fresh_encrypted(
            name=f"subject/{runtime.random_bytes(16).hex()}", box=runtime.random_bytes(60)
        )
        for _ in range(2_000)
    ]
    for start in range(0, len(keys), 7):
        assert all(await stores.vault.put(keys[start : start + 7]))
    gone, kept = keys[::2], keys[1::2]
    await stores.vault.delete([(one.tenant, one.name, one.version) for one in gone])
    on_disk = bytes_of(tmp_path)
    # Cells that go are overwritten from their fifth byte on at the latest; a part of a key is as
    # revealing as all of it.
    assert [one.name for one in gone if one.box[20:44] in on_disk] == []
    assert sum(one.box in on_disk for one in kept) > len(kept) * 0.9
    assert len(
        await stores.vault.get([(one.tenant, one.name, one.version) for one in keys])
    ) == len(kept)
    await stores.close()


async def test_an_erasure_does_not_wait_for_ever_for_a_reader(tmp_path):
    """The key is gone at once; the write-ahead log is emptied when the reader lets go of it."""
    import apsw

    path = tmp_path / "gesta.db"
    stores = await open_stores(f"sqlite:///{path}", SystemRuntime())
    key = fresh_encrypted(box=bytes(range(60)))
    await stores.vault.put([key])
    reader = apsw.Connection(str(path))
    reader.execute("begin")
    reader.execute("select count(*) from vault").fetchall()
    await stores.vault.delete([(key.tenant, key.name, key.version)])
    assert await stores.vault.get([(key.tenant, key.name, key.version)]) == {}
    assert key.box in bytes_of(tmp_path)
    reader.execute("commit")
    reader.close()
    # By itself: it stayed there until the engine was stopped.
    until = asyncio.get_running_loop().time() + 30
    while key.box[20:44] in bytes_of(tmp_path):
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.05)
    await stores.close()
