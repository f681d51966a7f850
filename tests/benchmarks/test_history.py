"""The history that the bench writes equals one that the engine wrote."""

import re
import sqlite3
from typing import Any

import apsw
import pytest

from benchmarks import check, raw_sqlite
from benchmarks.history import Order, write
from benchmarks.subjects import plain, subject_of
from gesta import Done, Engine

COUNT = 2_500
#: Every request has an id of its own; apart from that, all of them are alike.
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
async def stored(tmp_path):
    """The file of a store with one real request and its copies, and the real one."""
    path = tmp_path / "bench.db"
    with subject_of("plain") as subject:
        async with Engine(f"sqlite:///{path}", flows=[plain]) as engine:
            sample = await engine.submit(subject.payload(0))
            assert await sample.outcome() == Done(sample.id)
    reported = []
    order = Order(f"sqlite:///{path}", sample.flow, sample.tenant, sample.id, COUNT)
    await write(order, lambda done, total: reported.append((done, total)))
    assert reported == [(0, COUNT), (1_000, COUNT), (2_000, COUNT), (COUNT, COUNT)]
    return path, sample


def _shapes(path, table, columns):
    """How many rows of each shape a table has: types and contents, with every id left blank."""
    db = apsw.Connection(str(path))
    shapes: dict[tuple[Any, ...], int] = {}
    for row in db.execute(f"select {columns} from {table}"):
        shape = tuple(_blank(value) for value in row)
        shapes[shape] = shapes.get(shape, 0) + 1
    db.close()
    return shapes


def _blank(value):
    if isinstance(value, bytes):
        return ID.sub("id", value.decode()).encode()
    return ID.sub("id", value) if isinstance(value, str) else value


async def test_copies_have_the_rows_that_a_real_request_leaves(stored):
    path, _ = stored
    # The event's own id is 16 random bytes in a copy as in a real one, so only its form can be
    # compared.
    events = _shapes(path, "events", "stream, version, typeof(id), length(id), type, data, meta")
    assert list(events.values()) == [COUNT + 1, COUNT + 1]
    assert list(_shapes(path, "requests", "*").values()) == [COUNT + 1]
    assert _shapes(path, "jobs", "*") == {}


async def test_every_copy_has_an_id_of_its_own_and_events_of_its_own(stored):
    path, _ = stored
    db = apsw.Connection(str(path))
    assert db.execute("select count(distinct id), count(distinct stream) from events").get == (
        2 * (COUNT + 1),
        COUNT + 1,
    )
    db.close()


async def test_copies_can_be_read_like_any_request(stored):
    path, sample = stored
    async with Engine(f"sqlite:///{path}", flows=[plain]) as engine:
        newest = await engine.find(limit=2)
        assert all(view.state.id > sample.id for view in newest)
        copy, real = newest[0].state, (await engine.get(sample.id)).state
        assert (await engine.get(copy.id)).state == copy
        assert (copy.status, copy.version, copy.attempts) == (
            real.status,
            real.version,
            real.attempts,
        )
        types = [
            name
            for name, event, meta in await engine.history(copy.id)
            if event is not None and meta.request_id == copy.id
        ]
        assert types == [name for name, _, _ in await engine.history(sample.id)]
        assert await engine.admin.counts() == {("bench.plain", "completed"): COUNT + 1}


@pytest.mark.slow
async def test_the_projector_goes_on_after_the_copies(stored):
    path, sample = stored
    with subject_of("plain") as subject:
        async with Engine(f"sqlite:///{path}", flows=[plain]) as engine:
            mark = await check.mark(engine, subject)
            request = await engine.submit(subject.payload(1))
            await request.outcome()
        async with Engine(f"sqlite:///{path}", flows=[plain], work=False) as engine:
            assert mark.position == 2 * (COUNT + 1)
            assert await check.count_errors(engine, subject, mark, [request.id], 1, 0) == []
            # A request of the past has no event after that position: the count would notice a lost
            # one.
            assert await check.count_errors(
                engine, subject, mark, [request.id, sample.id], 2, 0
            ) == ["1 of 2 requests have no event of success"]


def test_the_bare_loop_writes_the_same_past():
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(raw_sqlite.SCHEMA)
    raw_sqlite.write_history(db, 25, 10, b"x" * 330, b"m" * 150)
    counts = [
        db.execute(f"select count(*) from {table}").fetchone()[0]
        for table in ("events", "views", "jobs")
    ]
    assert counts == [50, 25, 0]
    db.close()


def test_the_bare_loop_takes_a_past_and_a_folder(tmp_path):
    assert raw_sqlite.raw_requests_per_second(20, 10, history=15, folder=str(tmp_path)) > 0
    assert list(tmp_path.iterdir()) == []
