"""Everything from one SQLite file into another: what was done is not done again, what waits is done
once, what is known stays known.
"""

import pytest
from msgspec.structs import replace

from gesta import Conflict, Erased, Event
from gesta.errors import BadInput, Fenced, StoreError, WrongMasterKey
from gesta.maintenance.store_copy import copy as copying
from gesta.maintenance.store_copy import transfer
from gesta.maintenance.store_copy.plan import Home
from gesta.maintenance.sweeper import ROLE
from gesta.ports import event_store
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.tenants.pauses import EVERYTHING
from tests.maintenance.store_copy.stage import (
    KEY,
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

ADA = "ada@example.com"


@pytest.fixture
def stage(tmp_path, monkeypatch):
    shorten_leases(monkeypatch)
    return Stage(tmp_path)


async def resume(engine):
    return await engine.admin.resume_everything(OPERATOR)


async def test_the_copy_is_on_hold_and_then_does_what_waited_once_and_nothing_again(stage):
    async with stage.engine("source") as engine:
        done = [(await engine.submit(Letter(n), key=str(n))).id for n in range(5)]
        await ended(engine, *done)
    async with stage.engine("source", work=False) as engine:
        waiting = [(await engine.submit(Letter(n), key=str(n))).id for n in range(5, 8)]
    report = await stage.copy()
    assert (report.events, report.claims, report.jobs, report.possibly_executed) == (
        5 * 2 + 3 + 1,
        8,
        0,
        0,
    )
    async with stage.engine("target") as engine:
        (pause,) = await engine.admin.paused()
        assert (pause.scope, "copied to" in pause.reason) == (EVERYTHING, True)
        await eventually(lambda: is_held(engine, 3))
        assert sum(stage.effects.values()) == 5
        assert await resume(engine) == 3
        states = await ended(engine, *done, *waiting)
    assert {state.status for state in states} == {"completed"}
    assert stage.effects == dict.fromkeys(range(8), 1)


async def test_jobs_of_slow_endpoints_and_their_claims_go_along_and_stay_refused_in_the_source(
    stage,
):
    async with stage.engine("source") as engine:
        await ended(engine, (await engine.submit(Letter(1))).id)
    async with stage.stores("source") as (source,):
        held = await put_stored_jobs(source)
    assert (await stage.copy()).stored_jobs == 3
    async with stage.stores("source", "target") as (source, target):
        await check_stored_jobs(source, target, held)
    # A target that has such jobs of its own is not overwritten.
    async with stage.stores("used") as (used,):
        await put_stored_jobs(used)
        await stage.unfence("source")
    with pytest.raises(BadInput, match="already has jobs of slow endpoints"):
        await stage.copy(target="used")


async def test_a_key_that_was_used_before_leads_to_the_same_request(stage):
    async with stage.engine("source") as engine:
        first = await engine.submit(Letter(1), key="one")
        await ended(engine, first.id)
    await stage.copy()
    async with stage.engine("target", work=False) as engine:
        again = await engine.submit(Letter(1), key="one")
        assert (again.verdict, again.id) == ("duplicate", first.id)
        with pytest.raises(Conflict):
            await engine.submit(Letter(2), key="one")


async def test_a_job_never_leased_is_copied_clean_and_a_leased_one_possibly_executed(stage):
    async with stage.engine("source") as engine:
        later = (await engine.submit(Letter(1, "later"))).id
        await eventually(lambda: has_attempts(engine, later, 1))
        stuck = (await engine.submit(Letter(2, "stuck"))).id
        await stage.is_stuck.wait()
        report = await stage.copy()
        assert (report.jobs, report.possibly_executed) == (2, 1)
        assert "their outcomes are unknown" in stage.messages[-1]
        with pytest.raises(Fenced):
            await engine.submit(Letter(3))
        engine.pipeline.pool._leave()
    async with stage.engine("target") as engine:
        await resume(engine)
        (state,) = await ended(engine, stuck)
        assert (state.status, state.reason) == ("unknown", "lease_lost")
        waiting = (await engine.get(later)).state
        assert (waiting.status, waiting.in_doubt, waiting.attempts) == ("queued", False, 1)
        jobs = await engine.pipeline.environment.stores.job_inspection.jobs("", 10)
        assert [(one.job.request_id, one.job.possibly_executed) for one in jobs] == [(later, False)]
    assert stage.effects == {2: 1}


@pytest.mark.slow
async def test_a_running_attempt_may_end_before_the_fence_where_that_is_asked_for(stage):
    async with stage.engine("source") as engine:
        stuck = (await engine.submit(Letter(2, "stuck"))).id
        await stage.is_stuck.wait()
        engine.pipeline.environment.runtime.call_later(
            0.3, engine.pipeline.pool._deadlines.cut_all, "enough"
        )
        report = await stage.copy(wait_seconds=15)
    assert report.possibly_executed == 0
    async with stage.engine("target", work=False) as engine:
        (state,) = await ended(engine, stuck)
        assert (state.status, state.attempts) == ("unknown", 1)


async def test_erased_people_stay_erased_and_others_stay_readable(stage):
    async with stage.engine("source") as engine:
        ada = await engine.submit(Letter(1, to=ADA))
        grace = await engine.submit(Letter(2, to="grace@example.com"))
        await ended(engine, ada.id, grace.id)
        await engine.erase(ADA)
    await stage.copy()
    async with stage.engine("target", work=False) as engine:
        with pytest.raises(Erased):
            await (await engine.request(ada.id)).payload()
        assert (await (await engine.request(grace.id)).payload()).to == "grace@example.com"
        assert await engine.erase(ADA) == 0


@pytest.mark.slow
async def test_a_person_erased_while_the_copy_is_made_is_erased_in_it(stage, monkeypatch):
    async with stage.engine("source") as engine:
        ada = await engine.submit(Letter(1, to=ADA))
        await ended(engine, ada.id)
    with monkeypatch.context() as patched:
        patched.setattr(copying.Copy, "_pause_and_fence", _dies)
        with pytest.raises(Died):
            await stage.copy()
    async with stage.stores("target") as (target,):
        assert any(one.box for one in await target.vault.listed(("default", "", 0), 10))
    async with stage.engine("source", work=False) as engine:
        assert await engine.erase(ADA) == 1
    await stage.copy()
    async with stage.engine("target", work=False) as engine:
        with pytest.raises(Erased):
            await (await engine.request(ada.id)).payload()


class Died(Exception):
    """Stands for the end of the process."""


async def _dies(*_):
    raise Died


async def test_nearly_all_is_copied_before_the_fence_also_where_pages_are_full_of_few_events(
    stage, monkeypatch
):
    monkeypatch.setattr(event_store, "FOLLOW_BYTES", 1)
    monkeypatch.setattr(copying.Copy, "_pause_and_fence", _dies)
    async with stage.engine("source") as engine:
        await ended(engine, *[(await engine.submit(Letter(n))).id for n in range(5)])
    with pytest.raises(Died):
        await stage.copy()
    async with stage.stores("source", "target") as (source, target):
        assert await source.events.end() == await target.events.end()


async def test_a_subscription_resumes_after_the_last_event_it_handled(stage):
    heard: list[str] = []

    def listening(name, *, fails=False):
        engine = stage.engine(name)

        @engine.on("copy.*", "completed", name="ledger", since="beginning")
        async def hear(event: Event) -> None:
            if fails and len(heard) == 2:
                raise RuntimeError("no more of this")
            heard.append(event.request_id)

        return engine

    async with listening("source", fails=True) as engine:
        sent = [(await engine.submit(Letter(n))).id for n in range(5)]
        await ended(engine, *sent)
        await eventually(lambda: len(heard) == 2)
    assert len(heard) == 2
    await stage.copy()
    async with listening("target"):
        await eventually(lambda: len(heard) >= 5)
    assert sorted(heard) == sorted(sent)


async def test_the_source_can_be_read_and_taken_back(stage):
    async with stage.engine("source") as engine:
        request = await engine.submit(Letter(1))
        await ended(engine, request.id)
    await stage.copy()
    async with stage.engine("source", work=False) as engine:
        assert (await engine.get(request.id)).state.status == "completed"
        with pytest.raises(Fenced, match=r"was copied to .*target\.db"):
            await engine.submit(Letter(2))
    with pytest.raises(Fenced):
        await stage.engine("source").start()
    async with stage.stores("source") as (source,):
        assert await copying.unfence(Home(source, "source"), None)
    async with stage.engine("source") as engine:
        await resume(engine)
        (state,) = await ended(engine, (await engine.submit(Letter(2))).id)
        assert state.status == "completed"


async def test_a_copy_that_is_repeated_after_its_end_changes_nothing(stage):
    async with stage.engine("source") as engine:
        await ended(engine, (await engine.submit(Letter(1))).id)
    assert (await stage.copy()).is_new
    async with stage.engine("target") as engine:
        await resume(engine)
        await ended(engine, (await engine.submit(Letter(2))).id)
    assert not (await stage.copy()).is_new
    assert stage.effects == {1: 1, 2: 1}


async def test_events_the_source_had_not_projected_are_dispatched_clean_by_the_copy(
    stage,
):
    async with stage.engine("source", work=False) as engine:
        request = (await engine.submit(Letter(1))).id
    report = await stage.copy()
    assert (report.jobs, report.possibly_executed) == (0, 0)
    async with stage.engine("target") as engine:
        await resume(engine)
        (state,) = await ended(engine, request)
    assert (state.status, stage.effects) == ("completed", {1: 1})


@pytest.mark.slow
async def test_requests_that_retention_removes_meanwhile_are_removed_from_the_copy(
    stage, monkeypatch
):
    async with stage.engine("source") as engine:
        gone = (await engine.submit(Letter(1), key="gone")).id
        kept = (await engine.submit(Letter(2))).id
        await ended(engine, gone, kept)
    with monkeypatch.context() as patched:
        patched.setattr(copying.Copy, "_pause_and_fence", _dies)
        with pytest.raises(Died):
            await stage.copy()
    async with stage.engine("source", work=False) as engine:
        state = (await engine.get(gone)).state
        while await engine.pipeline.projector.step():
            pass
        assert (
            await engine.pipeline.environment.stores.transactions.remove(
                [(f"copy.letter.request-default-{gone}", state)]
            )
            == 1
        )
    await stage.copy()
    async with stage.engine("target", work=False) as engine:
        assert [view.state.id for view in await engine.find()] == [kept]
        assert (await engine.submit(Letter(1), key="gone")).id == gone


async def test_a_server_that_starts_on_an_unfinished_copy_is_refused(stage, monkeypatch):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1))
    monkeypatch.setattr(copying.Copy, "_pause_and_fence", _dies)
    with pytest.raises(Died):
        await stage.copy()
    for work in (True, False):
        with pytest.raises(Fenced, match="being filled"):
            await stage.engine("target", work=work).start()
    async with stage.stores("target") as (target,):
        with pytest.raises(Fenced):
            await target.queue.put([Job("x-1", "default", "copy.letter", "x", 1)])


async def test_a_target_with_events_of_its_own_is_refused(stage):
    for name in ("source", "target"):
        async with stage.engine(name, work=False) as engine:
            await engine.submit(Letter(1))
    with pytest.raises(BadInput, match="another installation"):
        await stage.copy()
    async with stage.stores("source", "target") as stores:
        assert [await one.fences.standing() for one in stores] == [[], []]


@pytest.mark.slow
async def test_a_target_that_is_worked_on_is_refused(stage):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1))
    async with stage.stores("source", "target") as (source, target):
        await target.vault.put(await source.vault.listed(("_gesta", "", 0), 1))
        # A live process, however slow this machine is.
        assert await target.leases.claim(ROLE, "another process", 300)
        with pytest.raises(StoreError, match="worked on"):
            await stage.copy()


async def test_another_master_key_is_refused_before_anything_is_written(stage):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1))
    with pytest.raises(WrongMasterKey):
        await stage.copy(key=KEY[::-1].lstrip("=").ljust(43, "A") + "=")
    async with stage.stores("target") as (target,):
        assert (await target.events.end(), await target.fences.standing()) == (0, [])


async def test_a_source_that_was_copied_elsewhere_is_refused(stage):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1))
    await stage.copy()
    with pytest.raises(Fenced, match=r"target\.db"):
        await stage.copy(target="third")


async def test_a_copy_that_differs_names_the_stream_and_stays_shut(stage, monkeypatch):
    async with stage.engine("source", work=False) as engine:
        request = (await engine.submit(Letter(1))).id
    append = transfer._append

    def spoilt(recorded):
        return append(replace(recorded, data=recorded.data.replace(b'"n":1', b'"n":2')))

    monkeypatch.setattr(transfer, "_append", spoilt)
    with pytest.raises(StoreError, match=request):
        await stage.copy()
    async with stage.stores("target") as (target,):
        assert [fence.kind for fence in await target.fences.standing()] == ["filling"]


async def test_a_fence_names_its_scope(stage):
    async with stage.engine("source", work=False) as engine:
        await engine.submit(Letter(1))
    await stage.copy()
    async with stage.stores("source") as (source,):
        assert await source.fences.standing() == [Fence("left", stage.url("target"))]
