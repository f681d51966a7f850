"""A rebuild beside a process under load: no request lost, no effect doubled, and the views are what
the events say.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from gesta import Engine
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.state import State
from gesta.domain.task import TASK
from gesta.errors import GestaError
from gesta.ports.read_model import Filter
from gesta.sandbox.server import SandboxServer
from gesta.stores.sqlite.database import open_connection
from tests.crash.stage import eventually
from tests.pipeline.kill_program import open_engine
from tests.pipeline.test_kill import child, states_at_rest

fold = TASK.fold

SPOIL = """update requests set status = 'failed', sweep_at = 1
    where status = 'completed' and rowid % 7 = 0"""

decode_state = msgspec.json.Decoder(State).decode


def states_by_the_events(db: apsw.Connection) -> dict[str, State]:
    """Every request as a fold of its stream, by nothing but the domain."""
    histories: dict[str, list[Any]] = {}
    for type_name, data, meta_bytes in db.execute(
        "select type, data, meta from events order by position"
    ):
        meta = decode_meta(meta_bytes)
        histories.setdefault(meta.request_id, []).append(
            (event_types(meta.flow).decode(type_name, data), meta)
        )
    return {
        request_id: state
        for request_id, history in histories.items()
        if (state := fold(history)) is not None
    }


async def assert_indexes_are_right(engine: Engine, db: apsw.Connection) -> None:
    """Every question answered by an index has the answer of a full scan."""
    views = engine.pipeline.environment.stores.read_model
    rows = db.execute("select flow, status, id, sweep_at from requests not indexed").fetchall()
    assert await views.counts() == Counter((flow, status) for flow, status, _, _ in rows)
    for status in ("queued", "completed", "failed", "unknown"):
        found = await views.find(Filter("default", status=status, limit=100_000))
        assert {view.state.id for view in found} == {
            id_ for _, state, id_, _ in rows if state == status
        }
    due, _ = await engine.pipeline.environment.stores.sweep_index.due(2**53, 100_000)
    assert {view.state.id for view in due} == {
        id_ for *_, id_, sweep_at in rows if sweep_at is not None
    }
    assert db.execute("pragma integrity_check").get == "ok"


async def caught_up(engine: Engine) -> bool:
    return not await engine.admin.unseen()


async def projected(engine: Engine) -> bool:
    return bool(await engine.pipeline.environment.stores.read_model.counts())


@pytest.mark.slow
async def test_a_rebuild_beside_a_process_under_load_loses_nothing_and_doubles_nothing(
    tmp_path: Path,
):
    path = tmp_path / "gesta.db"
    lines: list[bytes] = []
    async with SandboxServer() as server:
        url = f"{server.url}/http"
        async with child(path, url, 0) as process:
            assert process.stdout is not None
            lines.append(await asyncio.wait_for(process.stdout.readline(), 20))
            reading = asyncio.create_task(process.stdout.read())
            async with open_engine(str(path), url, work=False) as engine:
                stores: Any = engine.pipeline.environment.stores
                database = stores.close.__self__
                # The process acknowledges before it projects, and on a busy machine long before.
                await eventually(lambda: projected(engine), "nothing was projected")
                for _ in range(4):
                    # Wrong rows, so that it shows whether they are made anew.
                    await database.write(lambda db: db.execute(SPOIL).fetchall(), durable=False)
                    assert await engine.admin.rebuild() > 0
                    await asyncio.sleep(0.2)
            process.kill()
            lines.append(await reading)
        words = [line.split() for line in b"".join(lines).decode().splitlines()]
        requests = {
            int(one[0]): (one[1], one[2]) for one in words if len(one) == 3 and len(one[2]) == 36
        }
        async with child(path, url, 0, "--rest"):
            states = await states_at_rest(path, url, requests)
            async with open_engine(str(path), url, work=False) as engine:
                await eventually(lambda: caught_up(engine), "the views did not catch up")
        effects = Counter(
            (effect.type.rpartition("/")[2], effect.data["n"])
            for effect in server.sandbox.http.effects
        )
        async with open_engine(str(path), url, work=False) as engine:
            db = open_connection(str(path))
            try:
                views = {
                    state.id: state
                    for (blob,) in db.execute("select state from requests")
                    for state in [decode_state(blob)]
                }
                assert views == states_by_the_events(db)  # R1-50
                await assert_indexes_are_right(engine, db)  # R1-50, S0-21
                assert (
                    db.execute(
                        "select name from sqlite_schema where name glob 'requests_*_*'"
                    ).fetchall()
                    != []
                )
                assert (
                    db.execute(
                        "select 1 from sqlite_schema where type = 'table' and name glob"
                        " 'requests_*'"
                    ).get
                    is None
                )
            finally:
                db.close()
    assert len(requests) > 100
    assert set(states) == set(requests)
    # Orders are sent once each; parcels once, or they are unknown where the kill met them.
    assert max(effects.values()) == 1
    assert all(effects["orders", n] == 1 for n in requests if n % 2)
    assert all(
        effects["parcels", n] == 1
        for n, state in states.items()
        if not n % 2 and state.status == "completed"
    )


async def test_a_second_rebuild_at_the_same_time_is_refused(tmp_path: Path):
    path = str(tmp_path / "gesta.db")
    async with (
        open_engine(path, "http://127.0.0.1:9", work=False) as first,
        open_engine(path, "http://127.0.0.1:9", work=False) as other,
    ):
        assert await first.pipeline.environment.stores.leases.claim("rebuild", "another", 4.0)
        with pytest.raises(GestaError, match="already being rebuilt"):
            await other.admin.rebuild()
        await first.pipeline.environment.stores.leases.claim("rebuild", "another", 0.0)
        answers = await asyncio.gather(
            first.admin.rebuild(), first.admin.rebuild(), return_exceptions=True
        )
        assert answers[0] == 0
        assert "already being rebuilt" in str(answers[1])
        assert await other.admin.rebuild() == 0


async def test_a_rebuild_that_was_interrupted_changed_nothing_and_its_leftovers_go_with_the_next(
    tmp_path: Path,
):
    path = str(tmp_path / "gesta.db")
    async with open_engine(path, "http://127.0.0.1:9", work=False) as engine:
        views = engine.pipeline.environment.stores.read_model
        left = await views.shadow()
        await engine.admin.rebuild()
        with pytest.raises(GestaError, match="no such table"):
            await left.swap(["projector"], 0, [])
        await engine.admin.rebuild()
    db = open_connection(path)
    try:
        assert (
            db.execute(
                "select 1 from sqlite_schema where type = 'table' and name glob 'requests_*'"
            ).get
            is None
        )
    finally:
        db.close()


def schema_of_views(path: str) -> tuple[list[Any], set[str]]:
    db = open_connection(path)
    try:
        columns = db.execute(
            "select name, type, \"notnull\", dflt_value, pk from pragma_table_info('requests')"
        ).fetchall()
        texts = [
            str(row[0])
            for row in db.execute(
                "select sql from sqlite_schema where tbl_name = 'requests' and type = 'index' and"
                " sql is not null"
            )
        ]
        return columns, {text[text.index("(") :] for text in texts}
    finally:
        db.close()


async def test_the_table_of_a_rebuild_is_the_one_that_the_migrations_make(tmp_path: Path):
    path = str(tmp_path / "gesta.db")
    async with open_engine(path, "http://127.0.0.1:9", work=False) as engine:
        before = schema_of_views(path)
        for _ in range(2):
            await engine.admin.rebuild()
            assert schema_of_views(path) == before
