from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gesta import Done, Engine, Rejected, Request, Retry, RetryPolicy
from gesta.domain import events as e
from gesta.domain.codec import encode, event_types
from gesta.domain.commands import RecordReceipt
from gesta.domain.lifecycle import Lifecycle
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.errors import Fenced, StoreError, StoreFull
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Job
from gesta.ports.read_model import View
from gesta.projector.projector import POSITION_SECONDS
from gesta.testing.plugin import Harness
from tests.world import (
    FLOW,
    URL,
    Note,
    Provider,
    append_raw,
    die,
    engine_of,
    let_run,
    note_flow,
    pass_time,
)


async def live_jobs(engine: Engine, request_id: str, versions: range = range(1, 10)) -> set[str]:
    return await engine.pipeline.environment.stores.live_jobs(
        [f"{request_id}-{version}" for version in versions]
    )


async def views_of(engine: Engine) -> list[View]:
    return await engine.find(limit=1_000)


Life = list[tuple[e.Event, dict[str, object]]]
RECEIPTS: Life = [
    (e.Delivered("r-1", reported_at=11), {"status": "sent", "delivered_at": 11}),
    (
        e.Bounced("r-2", "mailbox_full", reported_at=12),
        {"status": "sent", "bounced_at": 12, "bounce": "mailbox_full"},
    ),
    (
        e.Complained("r-3", "spam", reported_at=13),
        {"status": "sent", "complained_at": 13, "complaint": "spam"},
    ),
]


def lives(lifecycle: Lifecycle) -> list[Life]:
    """Lives of requests in which every kind of event comes: each with what the view says after
    it.
    """
    (operation,) = lifecycle.operations.values()
    receipts = RECEIPTS if RecordReceipt in lifecycle.decisions else []
    return [
        [
            (e.AttemptStarted(1, "k"), {"status": "queued", "started": 1, "attempts": 0}),
            (
                e.AttemptFailed(1, "busy", next_attempt_at=7),
                {"status": "queued", "started": None, "attempts": 1, "due_at": 7},
            ),
            (
                e.OutcomeUnknown(2, "timeout", "manual"),
                {"status": "unknown", "attempts": 2, "in_doubt": True, "reason": "timeout"},
            ),
            (
                e.OutcomeResolved("rejected", "ann", "looked"),
                {"status": "failed", "in_doubt": False, "reason": "rejected"},
            ),
            (
                e.Updated("redrive", "queued", 2, due_at=8),
                {"status": "queued", "intent": 2, "due_at": 8, "dispatch_version": 6},
            ),
            (
                operation.done(3, "p-1", "t-1"),
                {
                    "status": operation.status,
                    "attempts": 3,
                    "provider_id": "p-1",
                    "target_id": "t-1",
                },
            ),
            *receipts,
        ],
        [
            (
                e.Failed("bad_address", 1, last_error="404"),
                {"status": "failed", "reason": "bad_address", "detail": "404"},
            ),
            (
                operation.done_late(1, "p-2"),
                {"status": operation.status, "provider_id": "p-2", "reason": ""},
            ),
        ],
        [(e.Expired(0), {"status": "expired"})],
        [(e.Cancelled(0, "duplicate"), {"status": "cancelled", "reason": "duplicate"})],
    ]


@pytest.mark.parametrize("flow", [FLOW, "notification.note"])
async def test_every_kind_of_event_reaches_the_view(gesta, flow):
    name_of, lifecycle = event_types(flow).name_of, lifecycle_of(flow)
    async with Engine(URL, flows=[note_flow(Provider(), name=flow)], work=False) as engine:

        async def shown(request: Request) -> State:
            await engine.pipeline.projector.step()
            (view,) = [view for view in await views_of(engine) if view.state.id == request.id]
            return view.state

        for life in lives(lifecycle):
            request = await engine.submit(Note())
            assert (await shown(request)).status == "queued"
            for version, (event, expected) in enumerate(life, 1):
                await append_raw(
                    engine,
                    request.id,
                    version,
                    name_of[type(event)].removeprefix(f"{flow}."),
                    encode(event),
                    flow=flow,
                )
                state = await shown(request)
                # R1-18
                assert {name: getattr(state, name) for name in expected} == expected, event
                assert state.version == version + 1
    assert {e.Created, *(type(event) for life in lives(lifecycle) for event, _ in life)} == {
        *lifecycle.event_names
    }  # R1-18


async def test_the_view_of_a_request_that_is_worked_on_goes_along_with_each_of_its_events(gesta):
    provider = Provider(Retry("busy"), TimeoutError(), Rejected("no"), Done(id="p-1", target="t-1"))
    async with engine_of(provider) as engine:
        seen: list[tuple[int, str]] = []
        engine.pipeline.projector.listen(
            lambda views: seen.extend([(view.state.version, view.state.status) for view in views])
        )
        request = await engine.submit(Note())
        await gesta.settle()
        await request.redrive()
        await gesta.settle()
        # Created, AttemptFailed, OutcomeUnknown, Failed, Updated, Completed.
        assert seen == [
            (1, "queued"),
            (2, "queued"),
            (3, "unknown"),
            (4, "failed"),
            (5, "queued"),
            (6, "completed"),
        ]
        (view,) = await views_of(engine)
        state = view.state
        # R1-50: the snapshot is right.
        assert (state.id, state.status, state.version, state.attempts) == (
            request.id,
            "completed",
            6,
            4,
        )
        assert (state.provider_id, state.target_id, view.payload) == (
            "p-1",
            "t-1",
            b'{"text":"hello"}',
        )


async def test_the_indexes_follow_the_status(gesta):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        first, second = await engine.submit(Note("1")), await engine.submit(Note("2"))
        await gesta.settle()
        # R1-50: an id is under one status only, and the counts are of those.
        assert [view.state.id for view in await engine.find(status="failed")] == [first.id]
        assert [view.state.id for view in await engine.find(status="completed")] == [second.id]
        assert await engine.find(status="queued") == []
        assert await engine.admin.counts() == {(FLOW, "failed"): 1, (FLOW, "completed"): 1}
        assert [view.state.id for view in await views_of(engine)] == [second.id, first.id]


async def test_a_created_request_is_dispatched_once_as_a_bare_pointer(gesta, ports):
    put: list[Job] = []

    async def project(original, views, jobs, quarantined, moves, free_slots):
        put.extend(jobs)
        return await original(views, jobs, quarantined, moves, free_slots)

    provider = Provider(Retry("busy"), Retry("busy"))
    async with engine_of(provider) as engine:
        ports.transactions.replace("project", project)
        request = await engine.submit(Note("a secret text"))
        await gesta.settle()
        assert await request.status() == "completed"
        assert len(provider.calls) == 3
    # R1-19, R1-20: one dispatch for one opening; a planned retry is none.
    assert put == [Job(f"{request.id}-1", "default", FLOW, request.id, 1, "execute", 0, 5)]
    assert b"secret" not in msgspec.json.encode(put)  # R1-20


async def test_a_job_has_no_field_that_could_carry_data(gesta):
    types = {field.name: field.type for field in msgspec.structs.fields(Job)}
    assert set(types) == {
        "id",
        "tenant",
        "flow",
        "request_id",
        "dispatch_version",
        "kind",
        "due_ms",
        "priority",
        "possibly_executed",
    }  # S1-28
    with pytest.raises(TypeError):
        Job("j", "t", FLOW, "r", 1, payload=b"secret")  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            msgspec.to_builtins(Job("j", "t", FLOW, "r", 1)) | {"kind": "xoxb-a-token"}, Job
        )  # S1-28


async def test_a_redrive_is_a_transition_to_queued_and_dispatched_again(gesta):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await request.redrive()
        await gesta.settle()
        assert await request.status() == "completed"
    assert len(provider.calls) == 2  # R1-19


async def test_an_update_that_opens_nothing_is_not_dispatched(gesta):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await request.purge()
        await gesta.settle()
        assert await live_jobs(engine, request.id) == set()  # R1-19
    assert len(provider.calls) == 1


async def test_a_request_opened_and_closed_in_one_batch_gets_no_job(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        request = await asking.submit(Note())
        await request.cancel()
    async with engine_of(provider) as engine:
        await gesta.settle()
        assert await live_jobs(engine, request.id) == set()
    assert provider.calls == []


async def test_a_request_due_later_than_a_queue_may_hold_is_not_dispatched_yet(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        soon = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC)
        near = await engine.submit(Note(), deliver_at=soon + timedelta(minutes=15))
        far = await engine.submit(Note(), deliver_at=soon + timedelta(minutes=15, seconds=1))
        await let_run(gesta)
        assert await live_jobs(engine, near.id) == {f"{near.id}-1"}
        assert await live_jobs(engine, far.id) == set()


async def test_an_event_appended_before_the_crash_is_projected_after_it_into_one_job(gesta):
    provider = Provider()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as dying:
        request = await dying.submit(Note())
        assert await live_jobs(dying, request.id) == set()
        await die(dying)
    async with engine_of(provider) as engine:
        await gesta.settle()
        assert await request_status(engine, request.id) == "completed"
    assert len(provider.calls) == 1  # K-1


async def request_status(engine: Engine, request_id: str) -> str:
    return (await engine.get(request_id)).state.status


async def test_a_batch_projected_twice_makes_one_job(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        # The commit stands, its answer is lost: the projector reads its checkpoint again.
        ports.transactions.fail("project", answer_lost=True)
        request = await engine.submit(Note())
        await pass_time(gesta, 3)
        assert await request.status() == "completed"
    assert len(provider.calls) == 1  # R1-50: dispatched once


async def test_two_projectors_at_once_make_one_job(gesta):
    provider = Provider()
    async with engine_of(provider) as first, engine_of(provider) as second:
        await let_run(gesta)
        # The second one believes that the role is its own, as after a long pause.
        request = await first.submit(Note())
        await asyncio.gather(first.pipeline.projector.step(), second.pipeline.projector.step())
        await gesta.settle()
        assert await request_status(second, request.id) == "completed"
    assert len(provider.calls) == 1


async def test_an_event_of_an_unknown_type_is_skipped_and_the_rest_goes_on(gesta):
    gate_closed = RetryPolicy(base_seconds=1_000)
    provider = Provider(Retry("busy", after_seconds=100))
    async with engine_of(provider, retry=gate_closed) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        await append_raw(engine, request.id, 2, "RequestPainted.v1", b'{"colour":"green"}')
        await append_raw(engine, request.id, 3, "Completed.v2", b'{"newer":"contract"}')
        await gesta.settle()
        state = (await engine.get(request.id)).state
        assert (state.status, state.version) == ("completed", 5)  # S1-17
        assert await engine.admin.quarantined() == []
        assert await engine.admin.unseen() == 0


@pytest.mark.parametrize(
    ("data", "meta"),
    [
        (b"{", None),
        (b'{"attempts":"many"}', None),
        (b'{"attempts":1}', b"{"),
        (b'{"attempts":1}', b"[]"),
    ],
)
async def test_a_poison_event_is_quarantined_and_logged_and_the_rest_continues(gesta, data, meta):
    provider = Provider(Retry("busy", after_seconds=100))
    async with engine_of(provider) as engine:
        poisoned = await engine.submit(Note())
        await let_run(gesta)
        await append_raw(engine, poisoned.id, 2, "Completed.v1", data, meta)
        healthy = await engine.submit(Note())
        await gesta.settle()
        # S1-17: quarantined, counted, and the log is read on behind it.
        (quarantined,) = [one for one in await engine.admin.quarantined() if one.what == "event"]
        assert (quarantined.stream, quarantined.version) == (
            f"{FLOW}.request-default-{poisoned.id}",
            3,
        )
        assert (
            engine.pipeline.telemetry.registry.get_sample_value(
                "gesta_quarantined_total", {"what": "event"}
            )
            == 1
        )
        assert await healthy.status() == "completed"
        assert await engine.admin.unseen() == 0


async def test_a_poison_event_is_logged_once_during_a_store_outage(gesta, ports):
    async with engine_of(Provider(Retry("busy", after_seconds=100))) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        ports.transactions.fail("project", StoreError("gone"), times=5)
        await append_raw(engine, request.id, 2, "Completed.v1", b"{")
        await pass_time(gesta, 20)
        assert (
            engine.pipeline.telemetry.registry.get_sample_value(
                "gesta_quarantined_total", {"what": "event"}
            )
            == 1
        )


async def test_a_store_that_fails_while_a_gap_is_filled_parks_nothing(gesta, ports):
    provider = Provider(Rejected("no"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await die(engine)
    # Another process redrives, and the view of the request is older than it should be.
    async with Engine(URL, flows=[note_flow(provider)], work=False) as asking:
        views = ports.read_model._port
        key = (FLOW, "default", request.id)
        views._rows[key] = View(
            msgspec.structs.replace(views._rows[key].state, version=1), views._rows[key].payload
        )
        await (await asking.request(request.id)).redrive()
    async with engine_of(provider) as engine:
        ports.events.fail("read", StoreError("out of reach"))
        await pass_time(gesta, 6)
        assert await engine.admin.quarantined() == []
        assert await request_status(engine, request.id) == "completed"


async def test_the_projector_goes_on_after_the_store_failed_in_any_of_its_calls(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        for port, verb in (
            (ports.events, "follow"),
            (ports.read_model, "checkpoints"),
            (ports.read_model, "claim"),
            (ports.transactions, "project"),
        ):
            port.fail(verb)
            request = await engine.submit(Note())
            await pass_time(gesta, 4)
            assert await request.status() == "completed", verb
    assert len(provider.calls) == 4


async def test_a_projector_that_crashes_is_started_again(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        ports.events.fail("follow", RuntimeError("a bug"))
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert await request.status() == "completed"


async def test_a_rebuild_gives_the_same_views_and_sends_nothing_again(gesta):
    provider = Provider(Rejected("no"), TimeoutError())
    async with engine_of(provider, on_unknown="manual") as engine:
        for _ in range(4):
            await engine.submit(Note())
        await gesta.settle()
    async with Engine(URL, flows=[note_flow(provider)], work=False) as engine:
        before, counts = await views_of(engine), await engine.admin.counts()
        assert await engine.admin.rebuild() == 8
        assert await views_of(engine) == before
        assert await engine.admin.counts() == counts
    async with engine_of(provider) as engine:
        await gesta.settle()
        # S1-31: what was counted before is not counted again.
        assert (
            engine.pipeline.telemetry.registry.get_sample_value(
                "executor_attempts_total", {"namespace": FLOW}
            )
            is None
        )
    assert len(provider.calls) == 4


async def test_a_rebuild_puts_no_job_not_even_for_what_was_opened_last(
    gesta: Harness, ports
) -> None:
    put: list[Job] = []

    async def project(original, views, jobs, quarantined, moves, free_slots):
        is_written = await original(views, jobs, quarantined, moves, free_slots)
        put.extend(jobs if is_written else [])
        return is_written

    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        for _ in range(3):
            await engine.submit(Note())
        await engine.pipeline.projector.step()
        late = await engine.submit(Note())
        ports.transactions.replace("project", project)
        assert await engine.admin.rebuild() == 3
        assert put == []
        # What had not been projected before the rebuild is dispatched after it, by the projector.
        await engine.pipeline.projector.step()
        await engine.pipeline.projector.step()
        assert [job.request_id for job in put] == [late.id]


async def test_lost_checkpoints_put_no_job_of_what_may_have_been_executed(gesta, ports):
    put: list[Job] = []

    async def project(original, views, jobs, quarantined, moves, free_slots):
        put.extend(jobs)
        return await original(views, jobs, quarantined, moves, free_slots)

    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        await engine.submit(Note())
        await engine.pipeline.projector.step()
    gesta._databases[URL].read_model._checkpoints.clear()
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        ports.transactions.replace("project", project)
        late = await engine.submit(Note())
        await engine.pipeline.projector.step()
        await engine.pipeline.projector.step()
        assert len(await views_of(engine)) == 2
        # The sweeper finds the earlier request and treats it as possibly executed.
        assert [job.request_id for job in put] == [late.id]


async def test_a_rebuild_keeps_the_list_of_quarantined_events(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        poisoned = await engine.submit(Note())
        await append_raw(engine, poisoned.id, 1, "Completed.v1", b"{")
        await engine.submit(Note())
        await engine.pipeline.projector.step()
        before = await engine.admin.quarantined()
        assert [one.version for one in before] == [2]
        await engine.admin.rebuild()
        (after,) = await engine.admin.quarantined()
        assert (after.stream, after.version) == (before[0].stream, 2)


class Slots:
    """A fake of EagerDispatch that notes how each offer ended."""

    def __init__(self) -> None:
        self.lost: list[bool] = []

    def make(self, jobs):
        return FreeSlots("token", {FLOW: len(jobs)}, 10.0, durable=False)

    def answered(self, _slots, *, is_lost):
        self.lost.append(is_lost)


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (None, False),
        (Fenced("the store", "filling", other="another"), False),
        (StoreFull("the store", "disk full"), False),
        (StoreError("no answer"), True),
    ],
)
async def test_free_slots_are_uncertain_only_if_the_answer_of_the_store_was_lost(
    gesta, error, is_lost
):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        projector, slots = engine.pipeline.projector, Slots()
        projector.eager_dispatch = slots
        with (
            pytest.raises(StoreError) if error else nullcontext(),
            projector.eager([Job("j", "default", FLOW, "r", 1)]),
        ):
            if error is not None:
                raise error
    assert slots.lost == [is_lost]


async def test_a_request_that_waits_for_its_retry_is_not_sent_earlier_by_a_rebuild(
    gesta: Harness,
) -> None:
    provider = Provider(Retry("busy", after_seconds=300))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        due_ms = gesta.runtime.now_ms() + 300_000
        await die(engine)
    async with Engine(URL, flows=[note_flow(provider)], work=False) as engine:
        await engine.admin.rebuild()
    async with engine_of(provider) as engine:
        await gesta.settle()
        assert await request_status(engine, request.id) == "completed"
    assert provider.calls[1].at_ms >= due_ms
    assert len(provider.calls) == 2


async def test_a_rebuild_that_dies_after_its_swap_leaves_no_view_behind_in_an_idle_process(
    gesta, monkeypatch
):
    async def dies() -> int:
        raise StoreError("the answer was lost")

    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        await (await engine.submit(Note())).outcome()
        monkeypatch.setattr(engine.pipeline.rebuild._projector, "catch_up", dies)
        with pytest.raises(StoreError):
            await engine.admin.rebuild()
        assert [view.state.status for view in await engine.find()] == ["queued"]
        await pass_time(gesta, 2 * POSITION_SECONDS)
        assert [view.state.status for view in await engine.find()] == ["completed"]
