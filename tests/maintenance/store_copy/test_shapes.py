"""Between stores of any shape: events in the KurrentDB double, views and jobs on Redis."""

import pytest

from gesta.errors import Fenced
from gesta.maintenance.store_copy import copy as copying
from gesta.maintenance.store_copy import roles
from gesta.stores.kurrentdb import fences
from gesta.testing.kurrentdb_double import KurrentDBDouble
from gesta.testing.valkey_server import ValkeyServer
from tests.maintenance.store_copy.stage import OPERATOR, Letter, Stage, ended, eventually
from tests.stores.postgresql.places import fresh_url

#: Where each store of a copy has its events, and whether views and jobs are on Redis.
SHAPES = {
    "a file into the double and redis": (("sqlite", False), ("double", True)),
    "the double into a file": (("double", False), ("sqlite", False)),
    "the double and redis into another double": (("double", True), ("double", False)),
    "postgresql and redis into the double": (("postgresql", True), ("double", False)),
    "the double into postgresql and redis": (("double", False), ("postgresql", True)),
    "a file and redis into postgresql": (("sqlite", True), ("postgresql", False)),
    "postgresql into a file and redis": (("postgresql", False), ("sqlite", True)),
    "postgresql and redis into the double and redis": (("postgresql", True), ("double", True)),
}


@pytest.fixture(params=SHAPES.values(), ids=[*SHAPES])
async def stage(tmp_path, monkeypatch, request):
    monkeypatch.setattr(roles, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(copying, "LEASE_SECONDS", 0.2)
    # All processes of a test are this one.
    monkeypatch.setattr(fences, "SETTLE_SECONDS", 0.0)
    stage = Stage(tmp_path)
    servers: list[KurrentDBDouble | ValkeyServer] = []
    for name, (events, on_redis) in zip(("source", "target"), request.param, strict=True):
        parts = stage.parts.setdefault(name, {})
        if events == "postgresql":
            stage.urls[name] = await fresh_url()
        if events == "double":
            double = await KurrentDBDouble().__aenter__()
            servers.append(double)
            parts["events_url"] = double.url
        if on_redis:
            valkey = await ValkeyServer().__aenter__()
            servers.append(valkey)
            parts["views_url"] = parts["queue_url"] = valkey.url
    yield stage
    for server in servers:
        await server.__aexit__(None, None, None)


async def held(engine, count):
    return sum(one.count for one in await engine.admin.held()) == count


@pytest.mark.slow
async def test_a_copy_repeats_no_ended_request_and_executes_each_waiting_one_once(stage):
    async with stage.engine("source") as engine:
        done = [(await engine.submit(Letter(n), key=str(n))).id for n in range(4)]
        await ended(engine, *done)
    async with stage.engine("source", work=False) as engine:
        waiting = [(await engine.submit(Letter(n), key=str(n))).id for n in range(5, 8)]
    report = await stage.copy()
    assert (report.claims, report.possibly_executed) == (7, 0)
    async with stage.engine("source", work=False) as engine:
        with pytest.raises(Fenced):
            await engine.submit(Letter(9))
    async with stage.engine("target") as engine:
        await eventually(lambda: held(engine, 3))
        assert sum(stage.effects.values()) == 4
        await engine.admin.resume_everything(OPERATOR)
        states = await ended(engine, *done, *waiting)
        again = await engine.submit(Letter(0), key="0")
        assert (again.verdict, again.id) == ("duplicate", done[0])
    assert {state.status for state in states} == {"completed"}
    assert stage.effects == dict.fromkeys([*range(4), *range(5, 8)], 1)
    assert not (await stage.copy()).is_new
