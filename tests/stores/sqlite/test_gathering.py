"""Steps that are sent in one turn of the event loop are one commit, and none waits for longer."""

from __future__ import annotations

from typing import Any

import pytest

from gesta.runtime.clock import ManualRuntime, SystemRuntime, turn
from gesta.stores.sqlite import database as module
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import SIZES, run_many


@pytest.fixture
def committed(monkeypatch) -> list[int]:
    """How many steps each commit had."""
    counts: list[int] = []
    before = Database._commit

    def commit(self, calls):
        counts.append(len(calls))
        before(self, calls)

    monkeypatch.setattr(Database, "_commit", commit)
    return counts


async def test_steps_of_one_loop_iteration_are_one_commit_in_order(tmp_path, committed):
    database = Database(str(tmp_path / "gesta.db"), ManualRuntime())
    order: list[int] = []
    first = database.write(lambda _: order.append(1), durable=True)
    second = database.write(lambda _: order.append(2), durable=False)
    await first
    await second
    assert (order, committed) == ([1, 2], [2])
    await database.close()


async def test_a_single_step_is_written_without_a_timer(tmp_path, committed):
    database = Database(str(tmp_path / "gesta.db"), ManualRuntime())
    assert await database.write(lambda _: 7, durable=True) == 7
    assert await database.write(lambda _: 8, durable=False) == 8
    assert committed == [1, 1]
    await database.close()


async def test_a_step_is_passed_on_at_the_end_of_its_loop_iteration(tmp_path):
    database = Database(str(tmp_path / "gesta.db"), ManualRuntime())
    step = database.write(lambda _: 1, durable=True)
    await turn()
    assert database._gathered == []
    assert await step == 1
    await database.close()


async def test_queued_steps_are_written_when_the_store_closes(tmp_path):
    path = str(tmp_path / "gesta.db")
    database = Database(path, SystemRuntime())
    kept = database.write(
        lambda db: db.execute("insert into roles values ('r', 'o', 1)").fetchall(), durable=True
    )
    await database.close()
    await kept
    again = module.open_connection(path, migrate=False)
    assert again.execute("select owner from roles").get == "o"
    again.close()


async def test_a_step_that_fails_is_refused_alone(tmp_path):
    database = Database(str(tmp_path / "gesta.db"), SystemRuntime())

    def fail(_):
        raise ValueError("no")

    good, bad, last = (
        database.write(step, durable=True) for step in (lambda _: 1, fail, lambda _: 3)
    )
    with pytest.raises(ValueError, match="no"):
        await bad
    assert (await good, await last) == (1, 3)
    await database.close()


@pytest.mark.parametrize(
    "count", [0, 1, 15, 16, 17, 31, 63, 64, 127, 128, 129, 255, 511, 1000, 1537]
)
def test_rows_of_any_number_are_all_written_in_few_statements(tmp_path, count):
    db = module.open_connection(str(tmp_path / "gesta.db"))
    statements: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        statements.append(sql)
        return True

    db.set_exec_trace(trace)
    flat: list[Any] = [
        value
        for number in range(count)
        for value in (number.to_bytes(4, "big"), b"request", b"content")
    ]
    assert run_many(db, "claim_keys", 3, flat) == count
    assert len(statements) <= 2 + count // max(SIZES) + (3 if count > 127 else 0)
    db.set_exec_trace(None)
    assert db.execute("select count(*), count(distinct name) from claims").get == (count, count)
    db.close()


async def test_a_commit_of_another_process_is_noticed_within_a_tenth_of_a_second(tmp_path):
    """What it asks for starts within 250 ms, by which a commit, a take and a busy machine have
    their share; how long it takes, the bench measures.
    """
    runtime = ManualRuntime()
    here = Database(str(tmp_path / "gesta.db"), runtime)
    elsewhere = Database(str(tmp_path / "gesta.db"), SystemRuntime())
    calls: list[str] = []
    here.on_commit(lambda: calls.append("committed"))
    await elsewhere.write(
        lambda db: db.execute("update removals set count = count + 1").fetchall(), durable=True
    )
    runtime.advance(0.1)
    assert calls == ["committed"]
    # And no waiter is woken while nothing happens.
    runtime.advance(10)
    assert calls == ["committed"]
    await here.close()
    await elsewhere.close()
