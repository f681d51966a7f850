"""Work of a flow that others execute: what is leased, to whom, and for how long; through a
whole engine on memory stores.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gesta import Engine, Erased, Flow, InvalidRequest, NotFound
from gesta.admin.doctor.checks import diagnose, suspicious_fields
from gesta.admin.doctor.collect import examine, examine_request
from gesta.admin.doctor.explain import why_not_sent
from gesta.engine.process_roles import Work
from gesta.errors import BadFlow, LeaseLost, UnknownFlow
from gesta.ports.job_queue import Job, QueueStanding
from gesta.runtime.clock import spawn
from gesta.worker.external import RecordFailed, RecordSent
from tests.worker.external.leased import (
    FLOW,
    LEASE_SECONDS,
    Parcel,
    Pick,
    pick_flow,
    take,
    take_one,
    warehouse,
)
from tests.world import URL, Note, Provider, let_run, note_flow, pass_time


async def test_work_is_leased_with_all_that_is_needed(gesta):
    async with warehouse() as engine:
        request = await engine.submit(
            Pick("B-1", 3),
            tenant="acme",
            correlation_id="order-7",
            ttl=timedelta(hours=1),
            priority=2,
        )
        item = await take_one(engine, gesta, tenant="acme")
        now = gesta.runtime.now_ms()
        assert (item.flow, item.id, item.attempt) == (FLOW, request.id, 1)
        assert item.key == f"acme:{request.id}:send:1"  # R1-8: the idempotency key
        assert msgspec.json.decode(item.payload) == {"sku": "B-1", "count": 3}
        assert (item.lease_until, item.expires_at) == (now + 60_000, now + 3_600_000)
        assert (item.correlation_id, item.priority, item.cancel_requested) == ("order-7", 2, False)


async def test_leased_work_is_not_leased_to_another_worker(gesta):
    async with warehouse() as engine:
        requests = {(await engine.submit(Pick())).id for _ in range(3)}
        handed = [*await take(engine, gesta, limit=2), *await take(engine, gesta)]
        assert {item.id for item in handed} == requests
        assert len({item.token for item in handed}) == 3
        assert await take(engine, gesta) == []


async def test_each_tenant_takes_its_own_work_only(gesta):
    async with warehouse() as engine:
        for _ in range(20):
            await engine.submit(Pick("flood"), tenant="globex")
        mine = await engine.submit(Pick(), tenant="acme")
        assert [item.id for item in await take(engine, gesta, tenant="acme")] == [mine.id]
        assert await take(engine, gesta, tenant="acme") == []
        assert await take(engine, gesta) == []


async def test_no_worker_of_gesta_leases_a_job_of_an_external_flow(gesta):
    """The executor of such a flow raises; a worker that took the job would make the request
    unknown.
    """
    provider = Provider()
    async with Engine(URL, flows=[pick_flow(), note_flow(provider)]) as engine:
        request, note = await engine.submit(Pick()), await engine.submit(Note())
        await pass_time(gesta, 10)
        assert (await request.status(), await note.status()) == ("queued", "completed")
        assert len(provider.calls) == 1


async def test_a_process_whose_flows_others_execute_is_ready_all_the_same(gesta):
    async with warehouse() as engine:
        await pass_time(gesta, 2)
        assert engine.pipeline.not_begun() == []


async def test_a_worker_is_not_started_for_what_others_execute():
    engine = Engine(URL, flows=[pick_flow()], work=Work(frozenset({"worker"}), ("warehouse.*",)))
    with pytest.raises(BadFlow, match="is an external flow"):
        await engine.start()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"wait_seconds": 61}, "waitSeconds"),
        ({"wait_seconds": float("nan")}, "waitSeconds"),
        ({"lease_seconds": 0.5}, "leaseSeconds"),
        ({"lease_seconds": 301}, "leaseSeconds"),
        ({"tenant": "no such/tenant"}, "tenant"),
    ],
)
async def test_a_take_that_cannot_be_is_refused_with_the_field(gesta, options, field):
    async with warehouse() as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.external.take(FLOW, **options)
        assert list(caught.value.fields) == [field]


async def test_only_flows_that_others_execute_lease_out_work(gesta):
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        with pytest.raises(BadFlow, match="executed by gesta itself"):
            await engine.external.take("test.note")
        with pytest.raises(UnknownFlow):
            await engine.external.take("test.nothing")


async def test_a_waiting_caller_gets_work_when_it_comes(gesta):
    async with warehouse() as engine:
        waiting = spawn(engine.external.take(FLOW, wait_seconds=30), "gesta-test")
        await let_run(gesta)
        request = await engine.submit(Pick())
        await pass_time(gesta, 0.2, 0.05)
        assert [item.id for item in await waiting] == [request.id]


async def test_a_caller_that_waits_in_vain_is_answered_when_the_time_is_up(gesta):
    async with warehouse() as engine:
        waiting = spawn(engine.external.take(FLOW, wait_seconds=5), "gesta-test")
        await pass_time(gesta, 4.75)
        assert not waiting.done()
        await pass_time(gesta, 0.5)
        assert await waiting == []


async def test_each_of_many_waiting_callers_gets_another_request(gesta):
    async with warehouse() as engine:
        waiting = [
            spawn(engine.external.take(FLOW, wait_seconds=30), "gesta-test") for _ in range(3)
        ]
        await let_run(gesta)
        requests = [(await engine.submit(Pick())).id for _ in range(3)]
        await pass_time(gesta, 1, 0.01)
        assert sorted([item.id for one in waiting for item in await one]) == sorted(requests)


async def test_waiting_callers_do_not_ask_the_queue_for_each_other(gesta, ports):
    provider = Provider()
    async with Engine(URL, flows=[pick_flow(), note_flow(provider)]) as engine:
        waiting = [
            spawn(engine.external.take(FLOW, wait_seconds=30), "gesta-test") for _ in range(10)
        ]
        await let_run(gesta)
        before = ports.queue.calls["lease_external"]
        for _ in range(20):
            await engine.submit(Note())
            await pass_time(gesta, 0.1, 0.05)
        assert len(provider.calls) == 20
        assert ports.queue.calls["lease_external"] == before
        for one in waiting:
            one.cancel()


async def test_work_that_comes_between_a_take_and_the_wait_is_not_waited_for(gesta, ports):
    """Those who wait for other work have heard of it by then, and it did not wake them."""
    async with warehouse() as engine:
        other = spawn(engine.external.take(FLOW, tenant="globex", wait_seconds=30), "gesta-test")
        await let_run(gesta)

        async def put_after(original, *args):
            leased = await original(*args)
            ports.queue.heal()
            await engine.submit(Pick())
            await pass_time(gesta, 0.5, 0.05)
            return leased

        ports.queue.replace("lease_external", put_after)
        # The test does not move the clock from here on.
        assert len(await engine.external.take(FLOW, wait_seconds=30)) == 1
        other.cancel()


async def test_a_scheduled_request_is_leased_when_it_is_due(gesta):
    async with warehouse() as engine:
        due = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + 10, UTC)
        request = await engine.submit(Pick(), deliver_at=due)
        waiting = spawn(engine.external.take(FLOW, wait_seconds=30), "gesta-test")
        await pass_time(gesta, 9.5)
        assert not waiting.done()
        await pass_time(gesta, 2)
        (item,) = await waiting
        assert (item.id, item.due_at) == (request.id, round(due.timestamp() * 1000))


async def test_an_expired_request_is_not_leased(gesta, ports):
    async with warehouse() as engine:
        request = await engine.submit(Pick(), ttl=timedelta(seconds=10))
        await let_run(gesta)
        ports.read_model.fail("due", times=1_000)
        await pass_time(gesta, 11)
        assert await engine.external.take(FLOW, limit=10) == []
        assert await request.status() == "expired"


async def test_a_request_that_was_cancelled_is_not_leased(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await let_run(gesta)
        assert await request.cancel() == "cancelled"
        assert await take(engine, gesta) == []


async def test_a_pause_holds_work_back_and_a_resume_lets_it_go(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick(), tenant="acme")
        await engine.admin.pause(flow=FLOW, tenant="acme", reason="stocktaking")
        assert await take(engine, gesta, tenant="acme") == []
        assert [(one.tenant, one.count) for one in await engine.admin.held()] == [("acme", 1)]
        assert await engine.admin.resume(flow=FLOW, tenant="acme") == 1
        item = await take_one(engine, gesta, tenant="acme")
        assert (item.id, item.attempt) == (request.id, 1)


async def test_personal_fields_are_in_clear_for_the_external_worker_only(gesta):
    async with warehouse(payload=Parcel) as engine:
        await engine.submit(Parcel("Ada Lovelace"))
        item = await take_one(engine, gesta)
        assert msgspec.json.decode(item.payload) == {"to": "Ada Lovelace", "order": "A-7"}
        assert "Ada" not in repr(item)
        stored = await engine.pipeline.environment.stores.events.follow(0, 100)
        assert not any(b"Ada" in event.data for event in stored)


async def test_work_about_a_person_who_was_erased_fails_for_good(gesta):
    async with warehouse(payload=Parcel) as engine:
        erased, other = await engine.submit(Parcel("Ada")), await engine.submit(Parcel("Grace"))
        await engine.erase("Ada")
        assert [item.id for item in await take(engine, gesta)] == [other.id]
        state = (await erased.view()).state
        assert (state.status, state.reason) == ("failed", "subject_erased")


async def test_work_that_was_leased_elsewhere_can_be_seen_again(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick("C-3"))
        item = await take_one(engine, gesta)
        gesta.advance(10)
        assert await engine.external.fetch(FLOW, item.id, item.token) == item
        await pass_time(gesta, LEASE_SECONDS)
        with pytest.raises(LeaseLost):
            await engine.external.fetch(FLOW, item.id, item.token)


async def test_a_payload_that_was_erased_since_it_was_leased_is_not_shown(gesta):
    async with warehouse(payload=Parcel) as engine:
        request = await engine.submit(Parcel("Ada"))
        item = await take_one(engine, gesta)
        await engine.erase("Ada")
        with pytest.raises(Erased):
            await engine.external.fetch(FLOW, item.id, item.token)
        # Its holder may have executed it before: it was recorded as a refusal.
        assert await request.status() == "queued"
        await pass_time(gesta, LEASE_SECONDS + 1)
        state = (await request.view()).state
        assert (state.status, state.in_doubt) == ("unknown", True)


async def test_an_extended_lease_lasts_and_reports_a_cancel(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS - 1)
        lease = await engine.external.extend(FLOW, item.id, item.token)
        assert (lease.lease_until, lease.cancel_requested) == (
            gesta.runtime.now_ms() + 60_000,
            False,
        )
        assert await request.cancel() == "queued"
        await pass_time(gesta, LEASE_SECONDS - 1)
        lease = await engine.external.extend(FLOW, item.id, item.token, 10)
        assert lease.cancel_requested  # S4-31: the heartbeat's answer says so
        assert await request.status() == "queued"


async def test_a_lease_that_ran_out_cannot_be_extended(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS)
        with pytest.raises(LeaseLost) as caught:
            await engine.external.extend(FLOW, item.id, item.token)
        assert caught.value.request_id == item.id


@pytest.mark.parametrize("wrong", ["{token}x", "", "ä", "1.2.3", "{token}{token}{token}"])
async def test_a_forged_lease_token_opens_nothing(gesta, wrong):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        token = wrong.format(token=item.token)
        for call in (
            engine.external.fetch(FLOW, item.id, token),
            engine.external.extend(FLOW, item.id, token),
            engine.external.report(FLOW, item.id, token, RecordSent(attempts=1)),
        ):
            with pytest.raises(InvalidRequest) as caught:
                await call
            assert list(caught.value.fields) == ["token"]


async def test_a_token_is_good_for_its_own_request_and_tenant_only(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick(), tenant="acme")
        await engine.submit(Pick(), tenant="acme")
        one, other = await take(engine, gesta, tenant="acme")
        with pytest.raises(InvalidRequest):
            await engine.external.report(
                FLOW, other.id, one.token, RecordSent(attempts=1), tenant="acme"
            )
        for tenant in ("globex", "default", "not/one"):
            with pytest.raises(NotFound):
                await engine.external.report(
                    FLOW, one.id, one.token, RecordSent(attempts=1), tenant=tenant
                )
            with pytest.raises(NotFound):
                await engine.external.fetch(FLOW, one.id, one.token, tenant=tenant)


async def test_a_token_whose_numbers_were_changed_is_none(gesta):
    """Or a holder could speak about attempts that are not its own."""
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        lease, version, _, *rest = item.token.split(".")
        with pytest.raises(InvalidRequest):
            await engine.external.report(
                FLOW,
                item.id,
                ".".join([lease, version, "9", *rest]),
                RecordFailed(reason="x", attempts=9),
            )


async def test_work_that_reached_no_worker_is_released_without_an_attempt(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        items = await take(engine, gesta)
        await engine.external.give_back(items)
        again = await take_one(engine, gesta)
        assert (again.id, again.attempt) == (items[0].id, 1)
        await engine.external.give_back([again], tenant="globex")
        assert await take(engine, gesta) == []


async def test_a_caller_that_goes_away_while_a_take_is_under_way_leaves_the_work_to_others(
    gesta, ports
):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await let_run(gesta)
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
        item = await take_one(engine, gesta)
        assert (item.id, item.attempt) == (request.id, 1)


async def test_a_stop_ends_the_waits_of_callers(gesta):
    async with warehouse() as engine:
        waiting = spawn(engine.external.take(FLOW, wait_seconds=60), "gesta-test")
        await let_run(gesta)
    assert await waiting == []


async def test_doctor_says_which_worker_is_waited_for(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick(), tenant="acme")
        await pass_time(gesta, 120)

        async def why() -> str:
            return why_not_sent(await examine_request(engine.pipeline, await request.view()))

        assert f"an external worker of tenant acme: POST /v1/flows/{FLOW}/work" in await why()
        (queue,) = [
            one
            for one in diagnose(await examine(engine.pipeline, "acme"))
            if one.about.startswith("queue")
        ]
        assert (queue.level, queue.about) == ("warn", f"queue {FLOW}")
        assert "external workers execute this flow" in queue.action
        await take(engine, gesta, tenant="acme")
        assert "an external worker is executing it" in await why()
        assert f'namespace="{FLOW}"' in engine.metrics().decode()
        assert "acme" not in engine.metrics().decode()


async def test_people_hear_of_requests_that_were_accepted_under_another_declaration(gesta):
    async with warehouse() as engine:
        await let_run(gesta)
        request = await engine.submit(Pick())
        await let_run(gesta)
    provider = Provider()
    async with Engine("memory:warehouse", flows=[Flow(FLOW, Pick, provider.execute)]) as engine:
        await pass_time(gesta, 5)
        assert provider.calls == []
        explanation = why_not_sent(
            await examine_request(engine.pipeline, await engine.get(request.id))
        )
        assert "declared as a flow that external workers execute" in explanation


async def test_a_job_in_an_external_queue_is_a_pointer_like_any_other(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick(), tenant="acme")
        await let_run(gesta)
        (standing,) = await engine.pipeline.environment.stores.job_inspection.jobs("", 10)
        assert suspicious_fields(standing) == []
        job = standing.job
        foreign = Job(job.id, "globex", job.flow, job.request_id, job.dispatch_version)
        assert suspicious_fields(QueueStanding(foreign, "ready", 0)) == ["flow"]
