"""From the embedded store to a server, and back: one call, and nothing is sent twice."""

import asyncpg  # type: ignore[import-untyped]
import pytest

from gesta import Erased
from gesta.errors import Fenced, StoreError
from gesta.maintenance.store_copy import copy as copying
from gesta.stores.postgresql.address import address_of
from tests.maintenance.store_copy.stage import (
    OPERATOR,
    Letter,
    Stage,
    check_stored_jobs,
    ended,
    eventually,
    has_attempts,
    is_held,
    put_stored_jobs,
    shorten_leases,
)
from tests.stores.postgresql.places import fresh_url


@pytest.fixture(params=["to a server", "from a server"])
async def stage(tmp_path, monkeypatch, request):
    shorten_leases(monkeypatch)
    return Stage(
        tmp_path, {"target" if request.param == "to a server" else "source": await fresh_url()}
    )


@pytest.mark.slow
async def test_a_copy_repeats_no_ended_request_and_executes_each_waiting_one_once(stage):
    async with stage.engine("source") as engine:
        done = [
            (await engine.submit(Letter(n, to="ada@example.com"), key=str(n))).id for n in range(4)
        ]
        await ended(engine, *done)
        await engine.erase("ada@example.com")
        later = (await engine.submit(Letter(4, "later"))).id
        await eventually(lambda: has_attempts(engine, later))
    async with stage.engine("source", work=False) as engine:
        waiting = [(await engine.submit(Letter(n), key=str(n))).id for n in range(5, 8)]
    async with stage.stores("source") as (stores,):
        held = await put_stored_jobs(stores)
    report = await stage.copy()
    assert (report.claims, report.jobs, report.possibly_executed) == (7, 1, 0)
    async with stage.engine("source", work=False) as engine:
        with pytest.raises(Fenced):
            await engine.submit(Letter(9))
    async with stage.stores("source", "target") as (source, target):
        await check_stored_jobs(source, target, held)
    async with stage.engine("target") as engine:
        await eventually(lambda: is_held(engine, 3))
        assert sum(stage.effects.values()) == 4
        await engine.admin.resume_everything(OPERATOR)
        states = await ended(engine, *done, *waiting)
        again = await engine.submit(Letter(0, to="ada@example.com"), key="0")
        assert (again.verdict, again.id) == ("duplicate", done[0])
        with pytest.raises(Erased):
            await (await engine.request(done[0])).payload()
    assert {state.status for state in states} == {"completed"}
    assert stage.effects == dict.fromkeys([*range(4), *range(5, 8)], 1)
    assert not (await stage.copy()).is_new


@pytest.mark.slow
async def test_a_tenant_goes_and_the_others_stay(stage):
    async with stage.engine("source") as engine:
        sent = (await engine.submit(Letter(1), key="k", tenant="acme")).id
        await ended(engine, sent, tenant="acme")
        assert (await stage.copy("acme")).events == 3
        with pytest.raises(Fenced, match="tenant acme"):
            await engine.submit(Letter(2), tenant="acme")
        await ended(engine, (await engine.submit(Letter(3), tenant="globex")).id, tenant="globex")
    async with stage.engine("target") as engine:
        await engine.admin.resume(tenant="acme", actor=OPERATOR)
        assert (await engine.submit(Letter(1), key="k", tenant="acme")).id == sent
        await ended(engine, (await engine.submit(Letter(4), tenant="acme")).id, tenant="acme")
    assert stage.effects == {1: 1, 3: 1, 4: 1}


@pytest.mark.slow
async def test_a_copy_includes_requests_committed_in_callers_own_transactions(tmp_path):
    """No process has drained it yet; and from the fence on no caller can commit another one."""
    stage = Stage(tmp_path, {"source": await fresh_url()})
    connection = await asyncpg.connect(address_of(stage.urls["source"]).server)
    try:
        async with stage.engine("source", work=False) as engine:
            async with connection.transaction():
                deferred = await engine.submit(Letter(1), key="k", within=connection)
            await stage.copy()
            with pytest.raises(Fenced):
                async with connection.transaction():
                    await engine.submit(Letter(2), within=connection)
    finally:
        await connection.close()
    async with stage.engine("target") as engine:
        await engine.admin.resume_everything(OPERATOR)
        (state,) = await ended(engine, deferred.id)
    assert (state.status, stage.effects) == ("completed", {1: 1})


@pytest.mark.slow
async def test_a_source_with_requests_that_only_its_programs_can_append_is_not_left(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(copying, "FENCE_TRIES", 2)
    stage = Stage(tmp_path, {"source": await fresh_url()})
    address = address_of(stage.urls["source"])
    async with stage.engine("source", work=False):
        pass
    connection = await asyncpg.connect(address.server)
    try:
        await connection.fetch(
            f"select {address.schema}.gesta_submit('copy.letter', '{{\"n\": 1}}')"
        )
    finally:
        await connection.close()
    with pytest.raises(StoreError, match="wait in the outbox"):
        await stage.copy()
    async with stage.engine("source", work=False) as engine:
        assert (await engine.submit(Letter(3))).verdict == "created"
        assert await engine.admin.paused() == []
