"""Stores that fail, and processes that die, while others have work in hand."""

from __future__ import annotations

import asyncio

import pytest

from gesta import Engine, Request
from gesta.errors import LeaseLost, Overloaded, StoreError
from gesta.ports.job_queue import Drop, Job
from gesta.runtime.clock import spawn
from gesta.runtime.settings import Settings
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.testing.plugin import Harness
from gesta.worker.external import RecordFailed, RecordSent, long_poll
from tests.worker.external.leased import (
    FLOW,
    LEASE_SECONDS,
    NOTICED_SECONDS,
    Parcel,
    Pick,
    pick_flow,
    take,
    take_one,
    warehouse,
)
from tests.world import die, let_run, pass_time


async def test_a_token_is_good_in_another_process_and_after_a_restart(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await die(engine)
    async with warehouse() as other:
        await pass_time(gesta, 10)
        assert (
            await other.external.extend(FLOW, item.id, item.token)
        ).lease_until == gesta.runtime.now_ms() + 60_000
        assert (await other.external.fetch(FLOW, item.id, item.token)).attempt == 1
        assert (
            await other.external.report(FLOW, item.id, item.token, RecordSent(attempts=1))
        ).status == "completed"


async def test_after_the_death_of_every_process_unreported_work_is_noticed(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await take_one(engine, gesta)
        await die(engine)
    gesta.advance(3 * LEASE_SECONDS)
    async with warehouse() as other:
        await pass_time(gesta, NOTICED_SECONDS + 4)
        state = (await other.get(request.id)).state
        assert (state.status, state.reason) == ("unknown", "no_report")


async def test_a_process_that_dies_between_take_and_answer_leaves_the_request_unknown_and_not_lost(
    gesta,
):
    """It is unknown whether the answer got out (K-4, K-5)."""
    async with warehouse(on_unknown="resend") as engine:
        request = await engine.submit(Pick())
        await let_run(gesta)
        # The queue has it on record, and no caller gets it.
        await engine.pipeline.environment.stores.external_leases.lease_external(
            "token", f"@{FLOW}/default", 1, LEASE_SECONDS
        )
        await die(engine)
    async with warehouse(on_unknown="resend") as other:
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS + 4)
        item = await take_one(other, gesta)
        assert (item.id, item.attempt) == (request.id, 2)  # K-4: attempts + 1


async def test_a_lost_queue_is_restored_and_what_may_have_been_leased_is_unknown_first(gesta):
    """K-11: the job that the sweeper restores counts as possibly executed."""
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await take_one(engine, gesta)
        queue = engine.pipeline.environment.stores.queue
        assert isinstance(queue, MemoryJobQueue)
        queue._rows.clear()
        await pass_time(gesta, 130)
        assert await take(engine, gesta) == []
        state = (await request.view()).state
        assert (state.status, state.reason) == ("unknown", "no_report")


@pytest.mark.parametrize("port", ["read_model", "events", "vault"])
async def test_a_store_that_fails_after_the_take_releases_the_work(gesta, ports, port):
    verb = {"read_model": "get", "events": "read", "vault": "get"}[port]
    async with warehouse(payload=Parcel) as engine:
        request = await engine.submit(Parcel("Ada"))
        await let_run(gesta)
        getattr(ports, port).fail(verb)
        with pytest.raises(StoreError):
            await engine.external.take(FLOW)
        item = await take_one(engine, gesta)
        assert (item.id, item.attempt) == (request.id, 1)


async def test_a_report_whose_answer_was_lost_is_recognised_when_it_comes_again(gesta, ports):
    for report in (RecordSent(attempts=1), RecordFailed(reason="busy", retryable=True, attempts=1)):
        async with warehouse(url=f"memory:{type(report).__name__}") as engine:
            request = await engine.submit(Pick())
            item = await take_one(engine, gesta)
            ports.transactions.fail("record", answer_lost=True)
            with pytest.raises(StoreError):
                await engine.external.report(FLOW, item.id, item.token, report)
            answer = await engine.external.report(FLOW, item.id, item.token, report)
            assert answer.attempts == 1
            assert (await request.view()).state.version == 2


async def test_a_report_that_did_not_reach_the_store_can_be_repeated(gesta, ports):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        ports.transactions.fail("record", times=2)
        for _ in range(2):
            with pytest.raises(StoreError):
                await engine.external.report(FLOW, item.id, item.token, RecordSent(attempts=1))
        assert (
            await engine.external.report(FLOW, item.id, item.token, RecordSent(attempts=1))
        ).status == "completed"


async def test_a_success_is_recorded_although_the_vault_is_out_of_reach(gesta, ports):
    async with warehouse(payload=Parcel) as engine:
        await engine.submit(Parcel("Ada"))
        item = await take_one(engine, gesta)
        ports.vault.is_down = True
        report = RecordSent(attempts=1, provider_message_id="box-9", target_id="Ada's door")
        assert (
            await engine.external.report(FLOW, item.id, item.token, report)
        ).status == "completed"
        ports.vault.heal()
        state = (await engine.get(item.id)).state
        assert (state.provider_id, state.target_id) == ("box-9", "")


async def test_a_sweep_that_fails_in_the_middle_notices_later(gesta, ports):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await take_one(engine, gesta)
        ports.transactions.fail("record", times=1)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        assert await request.status() == "queued"
        await pass_time(gesta, 35)
        state = (await request.view()).state
        assert (state.status, state.attempts) == ("unknown", 1)


async def test_a_report_and_the_sweep_that_meet_come_to_the_same_end(gesta, ports):
    """The report comes while the sweeper is just recording the unknown outcome."""
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)

        async def report_first(original, token, external_queues, limit, lease_seconds):
            expired_leases = await original(token, external_queues, limit, lease_seconds)
            if expired_leases:
                ports.queue.heal()
                await engine.external.report(FLOW, item.id, item.token, RecordSent(attempts=1))
            return expired_leases

        ports.queue.replace("expired_leases", report_first)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        assert (await engine.get(item.id)).state.status == "completed"
        await pass_time(gesta, 40)
        assert await engine.pipeline.environment.stores.job_inspection.count(10) == 0


async def test_with_the_queue_in_another_database_it_is_the_same(gesta):
    settings = Settings(url="memory:main", queue_url="memory:queue")
    async with Engine(settings=settings, flows=[pick_flow(on_unknown="resend")]) as engine:
        request = await engine.submit(Pick())
        await pass_time(gesta, 1)
        first = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        second = await take_one(engine, gesta)
        assert (second.id, second.attempt, second.key) == (request.id, 2, first.key)
        assert (
            await engine.external.report(FLOW, second.id, second.token, RecordSent(attempts=2))
        ).status == "completed"
        await pass_time(gesta, 1)
        assert await engine.pipeline.environment.stores.job_inspection.count(10) == 0


async def test_a_poison_request_is_quarantined_and_the_others_are_leased(gesta, ports):
    async with warehouse() as engine:
        poison, good = await engine.submit(Pick()), await engine.submit(Pick())
        await let_run(gesta)

        async def fail_on_poison(original, keys):
            if any(key[2] == poison.id for key in keys):
                raise ValueError("cannot be read")
            return await original(keys)

        ports.read_model.replace("get", fail_on_poison)
        assert [item.id for item in await engine.external.take(FLOW, limit=10)] == [good.id]
        assert [one.what for one in await engine.admin.quarantined()] == ["job"]


async def restored(engine: Engine, gesta: Harness, request: Request) -> None:
    """Lose the job of a request and let the sweeper put it back, possibly executed."""
    await let_run(gesta)
    job = (await request.view()).state.job_id
    stores = engine.pipeline.environment.stores
    await stores.queue.settle([Drop(job)])
    assert await stores.live_jobs([job]) == set()
    await pass_time(gesta, 130)
    assert await stores.live_jobs([job]) == {job}


async def test_a_possibly_executed_job_is_not_released_as_clean_when_the_store_fails(gesta, ports):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await restored(engine, gesta, request)
        ports.read_model.fail("get")
        ports.events.fail("read")
        with pytest.raises(StoreError):
            await engine.external.take(FLOW)
        assert await take(engine, gesta) == []
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        state = (await request.view()).state
        assert (state.status, state.reason) == ("unknown", "no_report")


async def test_a_possibly_executed_job_is_not_released_as_clean_when_its_caller_leaves(
    gesta, ports
):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await restored(engine, gesta, request)
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def slow(original, *args):
            leased = await original(*args)
            reached.set()
            await go_on.wait()
            return leased

        ports.queue.replace("lease_external", slow)
        taking = spawn(engine.external.take(FLOW), "gesta-test")
        await reached.wait()
        taking.cancel()
        await asyncio.wait([taking])
        ports.queue.heal()
        go_on.set()
        assert await take(engine, gesta) == []
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        state = (await request.view()).state
        assert (state.status, state.reason) == ("unknown", "no_report")


async def test_work_whose_lease_is_nearly_over_is_not_leased_out(gesta, ports):
    async with warehouse(payload=Parcel) as engine:
        await engine.submit(Parcel("Ada"))
        await let_run(gesta)

        async def slow(original, *args):
            ports.vault.heal()
            gesta.advance(LEASE_SECONDS - 0.25)
            return await original(*args)

        ports.vault.replace("get", slow)
        assert await engine.external.take(FLOW) == []
        assert (await take_one(engine, gesta)).attempt == 1


async def test_a_job_whose_lost_attempt_is_recorded_is_released_when_the_store_fails(gesta, ports):
    async with warehouse(payload=Parcel, on_unknown="resend") as engine:
        request = await engine.submit(Parcel("Ada"))
        await restored(engine, gesta, request)
        ports.vault.fail("get")
        with pytest.raises(StoreError):
            await engine.external.take(FLOW)
        assert (await take_one(engine, gesta)).attempt == 2


async def test_work_that_ended_by_an_earlier_report_cannot_be_fetched(gesta):
    async with warehouse(on_unknown="resend") as engine:
        await engine.submit(Pick())
        first = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        second = await take_one(engine, gesta)
        await engine.external.report(FLOW, first.id, first.token, RecordSent(attempts=1))
        with pytest.raises(LeaseLost):
            await engine.external.fetch(FLOW, second.id, second.token)


async def test_an_expired_lease_on_a_request_that_is_gone_leaves_no_job(gesta):
    async with warehouse() as engine:
        stores = engine.pipeline.environment.stores
        job = Job("gone-1", "default", f"@{FLOW}/default", "gone", 1)
        await stores.queue.put([job])
        assert await stores.external_leases.lease_external("token", job.flow, 1, LEASE_SECONDS)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        assert await stores.job_inspection.count(10) == 0


async def test_a_release_is_given_up_when_every_lease_has_ended(gesta, ports):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        ports.queue.fail("settle", times=1_000_000)
        giving_back = spawn(engine.external.give_back([item]), "test")
        await pass_time(gesta, 2 * LEASE_SECONDS)
        assert giving_back.done()


async def test_callers_beyond_the_places_of_a_process_are_refused(gesta, monkeypatch):
    monkeypatch.setattr(long_poll, "WAITING_MAX", 1)
    async with warehouse() as engine:
        first = spawn(engine.external.take(FLOW, tenant="acme", wait_seconds=20), "test")
        await let_run(gesta)
        # Of another tenant, so its external queue is another one.
        second = spawn(engine.external.take(FLOW, tenant="globex", wait_seconds=20), "test")
        await pass_time(gesta, 21)
        assert first.result() == []
        with pytest.raises(Overloaded):
            second.result()
