from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gesta import Done, Engine, Flow, Payload, Rejected, Retry, Unknown
from gesta.errors import Fenced, StoreError
from gesta.maintenance import sweeper as sweep
from gesta.ports.job_queue import Job
from gesta.testing.plugin import Harness
from tests.world import (
    FLOW,
    URL,
    WORKER_LOST,
    Gate,
    Note,
    Provider,
    append_raw,
    die,
    engine_of,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)


def moment(gesta: Harness, **later: float) -> datetime:
    return datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(**later)


async def lose_the_queue(engine: Engine) -> None:
    """The queue is emptied behind the engine's back, as by a flush of Redis."""
    queue = engine.pipeline.environment.stores.queue
    queue._rows.clear()  # type: ignore[attr-defined]
    queue._queues.clear()  # type: ignore[attr-defined]
    queue._leases.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [RuntimeError("no"), StoreError("no")])
async def test_a_chore_that_fails_keeps_no_other_from_being_done_and_is_tried_again(gesta, error):
    done = []

    async def fails() -> None:
        done.append("fails")
        raise error

    async def works() -> None:
        done.append("works")

    async with engine_of(Provider()) as engine:
        sweeper = engine.pipeline.sweep
        sweeper._chores = [sweep.Chore("first", 0.0, fails), sweep.Chore("second", 0.0, works)]
        await sweeper.step()
        assert done == ["fails", "works"]
        assert engine.pipeline.process.telemetry.metrics.chores_failed == {("first",): 1}
        await sweeper.step()
        # A failing chore pauses.
        assert done == ["fails", "works", "works"]
        await pass_time(gesta, sweep.FAILED_SECONDS)
        done.clear()
        await sweeper.step()
        assert "works" in done
        assert engine.pipeline.process.telemetry.metrics.chores_failed[("first",)] > 1


async def test_a_request_scheduled_for_later_is_executed_then_and_not_before(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        due = moment(gesta, days=3)
        await engine.submit(Note(), deliver_at=due)
        await gesta.settle()
    (attempt,) = provider.calls
    assert 0 <= attempt.at_ms - due.timestamp() * 1000 <= 1_000


async def test_a_request_expires_when_its_time_to_live_is_over(gesta):
    provider = Provider(Retry("busy", after_seconds=30))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note(), ttl=timedelta(seconds=40))
        await let_run(gesta)
        waiting = await engine.submit(
            Note(), ttl=timedelta(seconds=90), deliver_at=moment(gesta, seconds=10)
        )
        await let_run(gesta)
    # No worker runs while it expires.
    gesta.advance(200)
    async with engine_of(provider) as engine:
        await gesta.settle()
        for one in (request, waiting):
            assert await result(await engine.request(one.id)) == Rejected("expired")
        assert (
            await engine.pipeline.environment.stores.live_jobs(
                [f"{request.id}-1", f"{waiting.id}-1"]
            )
            == set()
        )
    assert len(provider.calls) == 1


async def test_the_time_to_live_of_a_scheduled_request_runs_from_its_delivery(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        request = await engine.submit(
            Note(), deliver_at=moment(gesta, hours=2), ttl=timedelta(minutes=1)
        )
        await gesta.settle()
        assert await request.status() == "completed"


async def test_a_running_attempt_is_not_expired_under_its_hands(gesta):
    gate = Gate()
    provider = Provider(gate)
    async with engine_of(provider) as engine:
        request = await engine.submit(Note(), ttl=timedelta(seconds=5))
        await let_run(gesta)
        await pass_time(gesta, 20)
        assert await request.status() == "queued"
        gate.opened.set()
        await let_run(gesta)
        assert await request.status() == "completed"


async def test_nothing_unknown_ever_expires(gesta):
    provider = Provider(TimeoutError())
    async with engine_of(provider, on_unknown="manual") as engine:
        request = await engine.submit(Note(), ttl=timedelta(seconds=5))
        await gesta.settle(days=400)
        assert await request.status() == "unknown"


async def test_a_redrive_between_look_and_expiry_is_not_undone(gesta, ports):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        request = await engine.submit(Note(), ttl=timedelta(seconds=5))
        await engine.pipeline.projector.step()
        gesta.advance(10)

        async def redriven_meanwhile(original, entries):
            ports.transactions.heal()
            await append_raw(engine, request.id, 1, "Failed.v1", b'{"reason":"no","attempts":1}')
            later = gesta.runtime.now_ms() + 1_000_000
            data = (
                b'{"change":"redrive","status":"queued","intent":2,"dueAt":1,"expiresAt":%d}'
                % later
            )
            await append_raw(engine, request.id, 2, "RequestUpdated.v1", data)
            return await original(entries)

        ports.transactions.replace("record", redriven_meanwhile)
        sweeping = asyncio.ensure_future(engine.pipeline.sweep.step())
        await pass_time(gesta, 1)
        await sweeping
        assert await types_of(engine, request.id) == ["RequestCreated", "Failed", "RequestUpdated"]


async def test_a_provider_is_asked_when_the_question_is_due(gesta):
    provider, ask = Provider(TimeoutError()), Provider(Unknown("cannot_tell"), Done(id="found"))
    async with engine_of(provider, on_unknown="reconcile", reconcile=ask) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        assert await result(request) == Done("found", detail="the provider has it")
        assert len(ask.calls) == 2
    assert ask.calls[0].at_ms - provider.calls[0].at_ms >= 5_000
    assert len(provider.calls) == 1


async def test_a_lost_job_is_put_again_from_the_stream_and_gives_the_same(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        requests = [await asking.submit(Note(str(n))) for n in range(3)]
        await asking.pipeline.projector.step()
        await lose_the_queue(asking)
    gesta.advance(61)
    async with engine_of(provider) as engine:
        await gesta.settle()
        await pass_time(gesta, 65)
        # R0-4: the job was only a pointer; S0-5: queued without a live job is found.
        assert {(await engine.get(one.id)).state.status for one in requests} == {"completed"}
    assert sorted(note.text for note in provider.payloads) == ["0", "1", "2"]


async def test_lost_jobs_are_found_on_every_page_also_behind_one_that_has_none(gesta, monkeypatch):
    monkeypatch.setattr(sweep, "LOST_BATCH", 2)
    monkeypatch.setattr(sweep, "BATCH", 1)
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        for n in range(4):
            await asking.submit(Note(f"later {n}"), deliver_at=moment(gesta, minutes=14))
        for n in range(3):
            await asking.submit(Note(f"now {n}"))
        await asking.pipeline.projector.step()
        await lose_the_queue(asking)
    gesta.advance(61)
    async with engine_of(provider):
        await pass_time(gesta, 65)
    assert sorted(note.text for note in provider.payloads) == ["now 0", "now 1", "now 2"]


async def test_a_job_put_again_is_possibly_executed_so_a_manual_flow_is_not_executed_blindly(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider, on_unknown="manual")], work=False) as asking:
        request = await asking.submit(Note())
        await asking.pipeline.projector.step()
        await lose_the_queue(asking)
    async with engine_of(provider, on_unknown="manual") as engine:
        await pass_time(gesta, 130, 0.5)
        assert await result(await engine.request(request.id)) == Unknown("lease_lost", WORKER_LOST)
    assert provider.calls == []


async def test_a_waiting_job_is_not_taken_for_a_lost_one(gesta):
    provider = Provider(Retry("busy", after_seconds=600))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 300, 1)
        assert await types_of(engine, request.id) == ["RequestCreated", "AttemptFailed"]
        assert len(provider.calls) == 1


async def test_a_running_job_is_not_taken_for_a_lost_one(gesta):
    gate = Gate()
    provider = Provider(gate)
    async with engine_of(provider, timeout_seconds=1_000) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 200, 0.5)
        assert len(provider.calls) == 1
        gate.opened.set()
        await let_run(gesta)
        assert await types_of(engine, request.id) == ["RequestCreated", "Completed"]


async def test_a_lost_job_of_a_request_that_has_moved_on_is_left_alone(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        request = await asking.submit(Note())
        await asking.pipeline.projector.step()
        await lose_the_queue(asking)
        await request.cancel()
    async with engine_of(provider) as engine:
        await pass_time(gesta, 130, 0.5)
        assert await result(await engine.request(request.id)) == Rejected("cancelled")
    assert provider.calls == []


@pytest.mark.slow
async def test_one_poison_request_does_not_stop_the_sweep(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        due = moment(gesta, hours=1)
        poisoned = await engine.submit(Note(), deliver_at=due)
        healthy = [await engine.submit(Note(), deliver_at=due) for _ in range(3)]
        await let_run(gesta)
        await append_raw(engine, poisoned.id, 1, "AttemptFailed.v1", b'{"attempt":"first"}')
        await gesta.settle(days=1)
        assert {await one.status() for one in healthy} == {"completed"}
    assert len(provider.calls) == 3


@pytest.mark.slow
async def test_the_sweep_goes_on_after_the_store_failed_in_any_of_its_calls(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        for port, verb in (
            (ports.read_model, "due"),
            (ports.read_model, "claim"),
            (ports.read_model, "get"),
            (ports.events, "read"),
            (ports.queue, "put"),
            (ports.read_model, "postpone"),
            (ports.read_model, "stale"),
        ):
            request = await engine.submit(Note(), deliver_at=moment(gesta, minutes=16))
            await pass_time(gesta, 15 * 60, 60)
            port.fail(verb, times=2)
            await pass_time(gesta, 130, 0.5)
            port.heal()
            assert await request.status() == "completed", verb
    assert len(provider.calls) == 7


async def test_a_put_whose_answer_was_lost_puts_no_second_job(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.submit(Note(), deliver_at=moment(gesta, minutes=16))
        await let_run(gesta)
        ports.queue.fail("put", answer_lost=True)
        await gesta.settle()
    assert len(provider.calls) == 1


async def test_expiry_of_many_goes_on_in_bounded_batches_until_all_are_done(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        for _ in range(450):
            await asking.submit(Note(), ttl=timedelta(seconds=1))
    gesta.advance(5)
    async with engine_of(provider) as engine:
        await gesta.settle()
        assert await engine.admin.counts() == {(FLOW, "expired"): 450}
    assert provider.calls == []


async def test_only_one_of_two_processes_sweeps_and_the_other_takes_over_when_it_dies(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as first:
        due = moment(gesta, hours=1)
        request = await first.submit(Note(), deliver_at=due)
        await let_run(gesta)
        await die(first)
    async with engine_of(provider) as second:
        await gesta.settle()
        assert await (await second.request(request.id)).status() == "completed"
    assert len(provider.calls) == 1


async def test_a_process_that_lost_the_role_shows_no_old_gauges(gesta):
    """It kept them for ever, so an alert on the maximum over all processes never ended."""
    async with engine_of(Provider(Rejected("no"))) as engine:
        await engine.submit(Note())
        await gesta.settle()
        gesta.advance(70)
        await let_run(gesta)
        assert f'gesta_dead_letters{{flow="{FLOW}"}} 1.0' in engine.metrics().decode()
        pipeline = engine.pipeline
        leases = pipeline.environment.stores.leases
        assert await leases.claim(sweep.ROLE, pipeline.owner, 0)
        assert await leases.claim(sweep.ROLE, "another process", 600)
        await pass_time(gesta, 5)
        assert "gesta_dead_letters" not in engine.metrics().decode()


@pytest.mark.parametrize("kind", ["execute", "reconcile"])
async def test_a_stray_pointer_to_a_finished_request_is_acked_without_a_call(gesta, kind):
    provider = Provider()
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        # S0-9: whatever was queued once more, the end on record decides.
        await engine.pipeline.environment.stores.queue.put(
            [Job(f"{request.id}-1", "default", FLOW, request.id, 1, kind)]
        )
        await let_run(gesta)
        assert await engine.pipeline.environment.stores.live_jobs([f"{request.id}-1"]) == set()
    assert len(provider.calls) == 1


async def test_a_scheduled_request_whose_job_was_lost_while_it_was_called_is_not_called_again(
    gesta,
):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual") as dying:
        request = await dying.submit(Note(), deliver_at=moment(gesta, hours=1))
        await pass_time(gesta, 3_601, 1.0)
        assert len(provider.calls) == 1
        await lose_the_queue(dying)
        await die(dying)
    async with engine_of(provider, on_unknown="manual") as engine:
        await pass_time(gesta, 300, 1.0)
        assert len(provider.calls) == 1
        assert (await (await engine.request(request.id)).view()).state.waits_for_a_person


async def test_a_scheduled_request_whose_job_was_lost_comes_to_its_end(gesta):
    provider = Provider(Gate())
    async with engine_of(provider) as dying:
        request = await dying.submit(
            Note(), deliver_at=moment(gesta, hours=1), ttl=timedelta(hours=1)
        )
        await pass_time(gesta, 3_601, 1.0)
        await lose_the_queue(dying)
        await die(dying)
    async with engine_of(provider) as engine:
        await pass_time(gesta, 200, 1.0)
        assert await (await engine.request(request.id)).status() == "completed"
        assert provider.keys[0] == provider.keys[1]


async def test_an_expiry_that_records_nothing_takes_no_job_away(gesta, ports):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as engine:
        request = await engine.submit(Note(), ttl=timedelta(seconds=5))
        await engine.pipeline.projector.step()
        gesta.advance(10)

        async def redriven_meanwhile(original, entries):
            ports.transactions.heal()
            await append_raw(engine, request.id, 1, "Failed.v1", b'{"reason":"no","attempts":1}')
            await append_raw(
                engine,
                request.id,
                2,
                "RequestUpdated.v1",
                b'{"change":"redrive","status":"queued","intent":2,"dueAt":1}',
            )
            await engine.pipeline.projector.step()
            return await original(entries)

        ports.transactions.replace("record", redriven_meanwhile)
        sweeping = asyncio.ensure_future(engine.pipeline.sweep.step())
        await pass_time(gesta, 1)
        await sweeping
        job = (await request.view()).state.job_id
        assert await engine.pipeline.environment.stores.live_jobs([job]) == {job}
    async with engine_of(provider):
        await let_run(gesta)
    assert provider.keys == [f"default:{request.id}:send:2"]


async def test_a_job_is_not_restored_for_a_request_whose_view_lags_behind_its_stream(gesta):
    """The projector puts the job of the new state.

    A restored one would count as possibly executed.
    """
    provider = Provider()
    flow = note_flow(provider, on_unknown="manual")
    async with Engine(URL, flows=[flow], work=False) as asking:
        request = await asking.submit(Note())
        await asking.pipeline.projector.step()
        await lose_the_queue(asking)
        await append_raw(asking, request.id, 1, "Failed.v1", b'{"reason":"no","attempts":1}')
        await append_raw(
            asking,
            request.id,
            2,
            "RequestUpdated.v1",
            b'{"change":"redrive","status":"queued","intent":2,"dueAt":1}',
        )
        gesta.advance(61)
        await asking.pipeline.sweep.step()
        assert await asking.pipeline.environment.stores.job_inspection.count(10) == 0
    async with Engine(URL, flows=[flow]) as engine:
        await let_run(gesta)
        assert await (await engine.request(request.id)).status() == "completed"


async def test_a_tenant_that_has_left_keeps_no_other_request_from_expiring(gesta, ports):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        await engine.submit(Note(), tenant="left", ttl=timedelta(seconds=5))
        request = await engine.submit(Note(), ttl=timedelta(seconds=6))
        await engine.pipeline.projector.step()
        gesta.advance(10)

        async def refuse_the_tenant(original, entries):
            if any("-left-" in entry.append.stream for entry in entries):
                raise Fenced("memory", "left", other="elsewhere", tenant="left")
            return await original(entries)

        ports.transactions.replace("record", refuse_the_tenant)
        await engine.pipeline.sweep.step()
        assert await request.status() == "expired"


async def test_a_provider_is_asked_although_the_time_to_live_is_over_by_then(gesta):
    provider, ask = Provider(Unknown("no_answer", after_seconds=3_600)), Provider(Done(id="found"))
    async with engine_of(provider, on_unknown="reconcile", reconcile=ask) as engine:
        request = await engine.submit(Note(), ttl=timedelta(minutes=10))
        await gesta.settle(days=1)
        assert await result(request) == Done("found", detail="the provider has it")
    assert ask.calls[0].at_ms - provider.calls[0].at_ms < 3_610_000


async def test_an_expired_request_of_an_undeclared_flow_is_not_looked_at_again_at_once(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as asking:
        await asking.submit(Note(), ttl=timedelta(seconds=5))
        await asking.pipeline.projector.step()
    gesta.advance(10)

    async def never(_payload, _attempt):
        raise AssertionError

    class Other(Payload, frozen=True):
        text: str = ""

    async with Engine(URL, flows=[Flow("test.other", Other, never)], work=False) as engine:
        await engine.pipeline.sweep.step()
        index = engine.pipeline.environment.stores.sweep_index
        assert (await index.due(gesta.runtime.now_ms(), 10))[0] == []


async def test_the_sweeper_forgets_token_buckets_that_are_full(gesta):
    async with engine_of(Provider()) as engine:
        buckets = engine.pipeline.environment.stores.token_buckets
        await buckets.close([(("default", "a limit"), 1_000)])
        await pass_time(gesta, 65, 0.5)
        assert await buckets.forget(10) == 0


async def test_a_chore_that_fails_is_not_tried_again_before_its_period():
    tries = []

    async def fail() -> None:
        tries.append(1)
        raise StoreError("out of reach")

    chore = sweep.Chore("fails", 60.0, fail)
    errors = [await chore.do(now) for now in (0.0, 59.0, 60.0)]
    assert [type(error) for error in errors] == [StoreError, type(None), StoreError]
    assert len(tries) == 2
