"""One tenant's part of a store into another: the others stay where they are and go on."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gesta import Engine, Erased
from gesta.errors import BadInput, Fenced, Forbidden, StoreError
from gesta.maintenance.store_copy import copy as copying
from gesta.maintenance.store_copy.plan import Home
from tests.maintenance.store_copy.stage import (
    OPERATOR,
    Letter,
    Stage,
    ended,
    eventually,
    has_attempts,
    shorten_leases,
)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    shorten_leases(monkeypatch)
    return Stage(tmp_path)


async def test_the_tenant_goes_on_in_the_copy_and_the_others_in_the_source(stage):
    async with stage.engine("source") as engine:
        sent = (await engine.submit(Letter(1), key="k", tenant="acme")).id
        later = (await engine.submit(Letter(2, "later"), tenant="acme")).id
        other = (await engine.submit(Letter(3), key="k", tenant="globex")).id
        await ended(engine, sent, tenant="acme")
        await ended(engine, other, tenant="globex")
        await eventually(lambda: has_attempts(engine, later, tenant="acme"))
        report = await stage.copy("acme")
        assert (report.jobs, report.possibly_executed, report.claims) == (1, 0, 1)
        # The source goes on with everybody else, also where both come at once.
        with pytest.raises(Fenced, match="tenant acme"):
            await engine.submit(Letter(4), tenant="acme")
        (state,) = await ended(
            engine, (await engine.submit(Letter(5), tenant="globex")).id, tenant="globex"
        )
        assert state.status == "completed"
    async with stage.engine("target") as engine:
        assert await engine.admin.counts() == {
            ("copy.letter", "completed"): 1,
            ("copy.letter", "queued"): 1,
        }
        assert (await engine.submit(Letter(1), key="k", tenant="acme")).id == sent
        assert (await engine.submit(Letter(3), key="k", tenant="globex")).id != other
        await engine.admin.resume(tenant="acme", actor=OPERATOR)
        (state,) = await ended(
            engine, (await engine.submit(Letter(6), tenant="acme")).id, tenant="acme"
        )
        assert state.status == "completed"


async def test_a_key_goes_along_although_another_tenant_has_brought_the_id_it_leads_to(stage):
    async with stage.engine("source") as engine:
        ours = (await engine.submit(Letter(1), key="k", tenant="acme")).id
        await engine.submit(Letter(2, own=ours), tenant="globex")
        await ended(engine, ours, tenant="acme")
        await ended(engine, ours, tenant="globex")
        await stage.copy("acme")
    async with stage.engine("target") as engine:
        assert await engine.admin.counts() == {("copy.letter", "completed"): 1}
        assert (await engine.submit(Letter(1), key="k", tenant="acme")).verdict == "duplicate"


async def test_requests_that_come_together_with_those_of_a_tenant_that_left_are_accepted(stage):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1), tenant="acme")
        await stage.copy("acme")
        calls = [engine.submit(Letter(n), tenant="acme" if n % 2 else "globex") for n in range(10)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, Fenced) for one in answers] == [bool(n % 2) for n in range(10)]


@pytest.mark.slow
async def test_requests_of_the_copied_tenant_that_expire_do_not_stop_the_sweep_for_the_others(
    stage,
):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1), tenant="acme", ttl=timedelta(seconds=1))
        await stage.copy("acme")
    async with stage.engine("source") as engine:
        await engine.admin.pause(tenant="globex")
        request = await engine.submit(Letter(2), tenant="globex", ttl=timedelta(seconds=2))
        (state,) = await ended(engine, request.id, tenant="globex")
    assert (state.status, stage.effects) == ("expired", {})


@pytest.mark.slow
async def test_jobs_of_a_tenant_that_left_keep_no_slot_from_the_others(stage):
    async with stage.engine("source", work=False) as engine:
        for number in range(3):
            await engine.submit(Letter(number), tenant="acme")
        await stage.copy("acme")
    flow = replace(stage.flow(), concurrency=2)
    async with Engine(flows=[flow], settings=stage.settings("source")) as engine:
        inspection = engine.pipeline.environment.stores.job_inspection

        async def are_held() -> bool:
            return sum(one.held for one in (await inspection.backlog()).values()) == 3

        await eventually(are_held)
        request = await engine.submit(Letter(9), tenant="globex")
        await ended(engine, request.id, tenant="globex")
    assert stage.effects == {9: 1}


@pytest.mark.slow
async def test_a_second_tenant_follows_the_first(stage):
    async with stage.engine("source") as engine:
        ids = {
            tenant: (await engine.submit(Letter(n), tenant=tenant)).id
            for n, tenant in enumerate(("acme", "globex"))
        }
        for tenant, request_id in ids.items():
            await ended(engine, request_id, tenant=tenant)
    await stage.copy("acme")
    async with stage.engine("target") as engine:
        await engine.admin.resume(tenant="acme", actor=OPERATOR)
        await ended(engine, (await engine.submit(Letter(7), tenant="acme")).id, tenant="acme")
    await stage.copy("globex")
    async with stage.engine("target", work=False) as engine:
        assert {
            (await engine.get(one, tenant=tenant)).state.status for tenant, one in ids.items()
        } == {"completed"}
        assert [pause.scope.tenant for pause in await engine.admin.paused("globex")] == ["globex"]
    with pytest.raises(StoreError, match="Copy the other tenants one by one"):
        await stage.copy(target="third")


@pytest.mark.slow
async def test_a_tenant_with_running_attempts_stays_where_it_is(stage):
    async with stage.engine("source") as engine:
        await engine.submit(Letter(1, "stuck"), tenant="acme")
        await stage.is_stuck.wait()
        with pytest.raises(StoreError, match="--wait"):
            await stage.copy("acme")
        assert await engine.admin.paused("acme") == []
        assert await engine.pipeline.environment.stores.fences.standing() == []
        engine.pipeline.pool._deadlines.cut_all("enough")
    assert (await stage.copy("acme")).possibly_executed == 0


async def test_a_tenant_that_the_target_has_already_is_refused(stage):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1), tenant="acme")
    await stage.copy("acme")
    async with stage.stores("source") as (source,):
        await copying.unfence(Home(source, "source"), "acme")
    with pytest.raises(BadInput, match="already has events"):
        await stage.copy("acme")


async def test_the_tenants_people_and_no_others_come_along(stage):
    async with stage.engine("source") as engine:
        for tenant in ("acme", "globex"):
            await ended(
                engine,
                (await engine.submit(Letter(1, to="ada@example.com"), tenant=tenant)).id,
                tenant=tenant,
            )
        erased = await engine.submit(Letter(2, to="bob@example.com"), tenant="acme")
        await ended(engine, erased.id, tenant="acme")
        await engine.erase("bob@example.com", tenant="acme")
    await stage.copy("acme")
    async with stage.stores("target") as (target,):
        names = {
            (one.tenant, one.name.partition("/")[0])
            for one in await target.vault.listed(("", "", 0), 100)
        }
    assert names == {("_gesta", "identity"), ("_gesta", "data-key"), ("acme", "subject")}
    async with stage.engine("target", work=False) as engine:
        with pytest.raises(Erased):
            await (await engine.request(erased.id, tenant="acme")).payload()


async def test_the_keys_of_the_tenant_go_along_and_those_of_others_do_not(stage):
    async with stage.engine("source", work=False) as engine:
        made, text = await engine.admin.create_key(
            name="acme", scopes=["admin"], tenant="acme", actor=OPERATOR
        )
        ended, dead = await engine.admin.create_key(name="ended", tenant="acme", actor=OPERATOR)
        _, theirs = await engine.admin.create_key(name="other", tenant="x-acme", actor=OPERATOR)
        ended = await engine.admin.revoke_key(ended.id, tenant="acme", actor=OPERATOR)
        await engine.submit(Letter(1), tenant="acme")
        await stage.copy("acme")
        assert (await engine.pipeline.keys.check(theirs)).tenant == "x-acme"
    async with stage.engine("target", work=False) as engine:
        assert (await engine.pipeline.keys.check(text)).tenant == "acme"
        for opens_nothing in (dead, theirs):
            with pytest.raises(Forbidden):
                await engine.pipeline.keys.check(opens_nothing)
        assert await engine.admin.list_keys("acme") == [ended, made]
    async with stage.stores("target") as (target,):
        assert not [
            one for one in await target.vault.listed(("", "", 0), 1_000) if "x-acme" in one.name
        ]
