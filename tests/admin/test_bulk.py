"""Bulk decisions: one filter, many requests, one audit entry."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from gesta import Actor, Engine, Payload, Rejected, Retry, Unknown
from gesta.api_types.bulk import Bulk, BulkAction, BulkProgress
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import BulkFinished, InvalidRequest, NotFound, StoreError
from tests.world import FLOW, URL, Note, Provider, engine_of, let_run, note_flow

ADA = Actor("ada", ("operator",))
OTHER = "test.other"


class Mail(Payload, frozen=True):
    template: str


async def reports(engine: Engine, **asked: Any) -> list[BulkProgress]:
    return [one async for one in engine.admin.bulk(Bulk(**asked), actor=ADA)]


async def resumed(
    engine: Engine, run: int | None, action: BulkAction, **options: Any
) -> list[BulkProgress]:
    assert run is not None
    return [one async for one in engine.admin.resume_bulk(run, action, actor=ADA, **options)]


async def stopped_run(engine: Engine, **asked: Any) -> int:
    """The number of a run that was stopped before its first change."""
    run = engine.admin.bulk(Bulk(**asked), actor=ADA)
    first = await anext(run)
    await run.aclose()
    assert first.id is not None
    return first.id


async def failed_requests(engine: Engine, gesta: Any, count: int) -> list[str]:
    sent = [await engine.submit(Note(str(number)), key=str(number)) for number in range(count)]
    await gesta.settle()
    return [one.id for one in sent]


async def statuses(engine: Engine) -> list[str]:
    return sorted(view.state.status for view in await engine.find(limit=200))


async def test_a_dry_run_counts_and_samples_and_changes_nothing(gesta):
    provider = Provider(*[Rejected("closed")] * 12)
    async with engine_of(provider) as engine:
        ids = await failed_requests(engine, gesta, 12)
        (report,) = await reports(engine, action="redrive", flow=FLOW, dry_run=True)
        assert (report.matched, report.done, report.finished, report.id) == (12, 0, True, None)
        assert [one.id for one in report.sample] == ids[::-1][:10]
        assert report.sample[0].reason == "closed"
        await gesta.settle()
        assert await statuses(engine) == ["failed"] * 12
        assert await engine.admin.audit() == []


async def test_redrive_by_filter_executes_the_chosen_requests_again(gesta):
    provider = Provider(*[Rejected("closed")] * 3, *[Rejected("refused")] * 2)
    async with engine_of(provider) as engine:
        await failed_requests(engine, gesta, 5)
        last = (await reports(engine, action="redrive", reason="closed"))[-1]
        assert (last.matched, last.done, last.refused, last.finished) == (3, 3, 0, True)
        await gesta.settle()
        assert await statuses(engine) == ["completed"] * 3 + ["failed"] * 2


async def test_dead_letters_are_failed_requests_that_are_neither_purged_nor_too_old(gesta):
    provider = Provider(*[Rejected("closed")] * 3)
    async with engine_of(provider) as engine:
        (first, *_) = await failed_requests(engine, gesta, 3)
        (found,) = await reports(engine, action="redrive", dead_letters=True, dry_run=True)
        assert found.matched == 3
        await (await engine.request(first)).purge()
        await gesta.settle()
        (found,) = await reports(engine, action="redrive", dead_letters=True, dry_run=True)
        assert found.matched == 2
        last = (await reports(engine, action="purge", dead_letters=True))[-1]
        assert (last.matched, last.done, last.refused) == (2, 2, 0)
        (_, entry) = await engine.admin.audit()
        assert entry.details == {"filter": {"deadLetters": True}, "matched": 2}
        assert await engine.admin.dead_letters() == []
        assert await statuses(engine) == ["failed"] * 3


async def test_a_dead_letter_that_is_kept_no_longer_is_not_redriven(gesta):
    async with engine_of(Provider(Rejected("closed"))) as engine:
        await failed_requests(engine, gesta, 1)
        gesta.advance(15 * 86_400)
        (found,) = await reports(engine, action="redrive", dead_letters=True, dry_run=True)
        assert found.matched == 0


async def test_the_audit_log_names_actor_filter_and_counts_of_a_run(gesta):
    provider = Provider(*[Rejected("closed")] * 3)
    async with engine_of(provider) as engine:
        (first, *_) = await failed_requests(engine, gesta, 3)
        since = datetime(2027, 1, 1, tzinfo=UTC)
        run = await reports(engine, action="redrive", flow=FLOW, status="failed", since=since)
        (ended, entry) = await engine.admin.audit()
        assert (ended.what, ended.about, ended.by) == ("bulk_finished", "redrive", "ada")
        assert ended.details == {"run": entry.version, "done": 3, "refused": 0}
        assert (entry.what, entry.about, entry.by) == ("bulk_started", "redrive", "ada")
        assert entry.details == {
            "filter": {"flow": FLOW, "status": "failed", "since": "2027-01-01T00:00:00+00:00"},
            "matched": 3,
        }
        assert {one.id for one in run} == {entry.version}
        actors = [meta.actor for _, _, meta in await engine.history(first) if meta.actor]
        assert actors == [Actor("ada", ("operator", f"bulk:{entry.version}"))]


async def test_the_rate_limits_how_many_requests_a_second_are_changed(gesta):
    provider = Provider(*[Rejected("closed")] * 40)
    async with engine_of(provider) as engine:
        await failed_requests(engine, gesta, 40)
        run = engine.admin.bulk(Bulk(action="redrive", flow=FLOW, rate=20.0))
        began = gesta.runtime.monotonic()
        times = [
            (gesta.runtime.monotonic() - began, progress.done)
            async for progress in passing_time(gesta, run)
        ]
        assert times[-1][1] == 40
        assert all(done <= 20 * seconds + 2.01 for seconds, done in times), times


async def passing_time(gesta: Any, run: Any) -> Any:
    """The reports of a run; the clock moves whenever the run waits for it."""
    while True:
        step = asyncio.ensure_future(anext(run, None))
        await let_run(gesta)
        while not step.done():
            gesta.advance(0.01)
            await let_run(gesta)
        if (progress := step.result()) is None:
            return
        yield progress
        gesta.advance(0.01)


async def test_a_stopped_run_is_resumed_without_changing_a_request_twice(gesta):
    provider = Provider(*[Rejected("closed")] * 12)
    async with engine_of(provider) as engine:
        await failed_requests(engine, gesta, 6)
        gesta.advance(1)
        run = engine.admin.bulk(Bulk(action="redrive", flow=FLOW, rate=10.0), actor=ADA)
        done = 0
        async for progress in passing_time(gesta, run):
            done = progress.done
            if done == 2:
                break
        await run.aclose()
        # The two redriven requests fail again and must not be redriven a second time.
        await gesta.settle()
        assert len(provider.calls) == 8
        rest = await resumed(engine, progress.id, "redrive", rate=1_000.0)
        # With the two that the first part changed.
        assert (rest[0].matched, rest[0].done) == (6, 2)
        assert (rest[-1].matched, rest[-1].done, rest[-1].id) == (6, 6, progress.id)
        await gesta.settle()
        assert len(provider.calls) == 12
        audit = [(one.what, one.details) for one in await engine.admin.audit()]
        assert audit == [
            ("bulk_finished", {"run": progress.id, "done": 6, "refused": 0}),
            ("bulk_stopped", {"run": progress.id, "done": 2}),
            ("bulk_started", {"filter": {"flow": FLOW}, "matched": 6}),
        ]
        with pytest.raises(BulkFinished, match="6 requests changed, 0 refused"):
            await resumed(engine, progress.id, "redrive")


async def test_decisions_that_are_written_while_a_run_is_cancelled_are_counted(gesta):
    async with engine_of(Provider(*[Rejected("closed")] * 4)) as engine:
        await failed_requests(engine, gesta, 4)
        gesta.advance(1)
        first: list[BulkProgress] = []

        async def redrive() -> None:
            run = engine.admin.bulk(Bulk(action="redrive", flow=FLOW, rate=40.0), actor=ADA)
            first.append(await anext(run))
            await anext(run)

        running = asyncio.ensure_future(redrive())
        while not any(task.get_name() == "gesta-bulk" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await gesta.settle()
        (stopped, _) = await engine.admin.audit()
        assert (stopped.what, stopped.details) == ("bulk_stopped", {"run": first[0].id, "done": 4})
        rest = await resumed(engine, first[0].id, "redrive")
        assert (rest[-1].matched, rest[-1].done) == (4, 4)


async def test_resuming_an_entry_that_is_no_bulk_run_is_refused(gesta):
    async with engine_of(Provider()) as engine:
        await engine.admin.pause(flow=FLOW, tenant="default")
        for run_id in (0, 1, 7):
            with pytest.raises(NotFound):
                await anext(engine.admin.resume_bulk(run_id, "redrive"))


@pytest.mark.parametrize("action", ["purge", "cancel", "retry", "resolve", "explode"])
async def test_a_redrive_resumed_as_another_action_changes_nothing(gesta, action):
    provider = Provider(*[Rejected("closed")] * 2)
    async with engine_of(provider) as engine:
        await failed_requests(engine, gesta, 2)
        run = await stopped_run(engine, action="redrive", flow=FLOW)
        with pytest.raises(InvalidRequest) as refused:
            await resumed(engine, run, action)
        assert set(refused.value.fields) == {"action"}
        await gesta.settle()
        assert await statuses(engine) == ["failed"] * 2


async def test_a_run_over_more_than_dead_letters_is_not_resumed_as_one_over_dead_letters(gesta):
    async with engine_of(Provider(Rejected("closed"))) as engine:
        await failed_requests(engine, gesta, 1)
        run = await stopped_run(engine, action="redrive", flow=FLOW)
        with pytest.raises(InvalidRequest) as refused:
            await resumed(engine, run, "redrive", dead_letters=True)
        assert set(refused.value.fields) == {"deadLetters"}
        run = await stopped_run(engine, action="redrive", dead_letters=True)
        assert (await resumed(engine, run, "redrive", dead_letters=True))[-1].done == 1


async def test_a_run_of_one_tenant_is_not_resumed_for_another(gesta):
    async with engine_of(Provider(Rejected("closed"))) as engine:
        await failed_requests(engine, gesta, 1)
        run = await stopped_run(engine, action="redrive", flow=FLOW)
        with pytest.raises(NotFound):
            await resumed(engine, run, "redrive", tenant="acme")
        with pytest.raises(InvalidRequest) as refused:
            await resumed(engine, run, "redrive", tenant="a b")
        assert set(refused.value.fields) == {"tenant"}


async def test_a_finished_cancellation_that_is_resumed_leaves_redriven_requests_alone(gesta):
    async with engine_of(Provider()) as engine:
        await engine.admin.pause(flow=FLOW)
        request = await engine.submit(Note("1"), key="1")
        await let_run(gesta)
        run = (await reports(engine, action="cancel", flow=FLOW))[-1]
        gesta.advance(1)
        assert await request.redrive() == "queued"
        await let_run(gesta)
        with pytest.raises(BulkFinished) as refused:
            await resumed(engine, run.id, "cancel")
        assert refused.value.run_id == run.id
        assert await statuses(engine) == ["queued"]


async def test_a_request_is_changed_once_though_its_run_is_resumed_while_it_runs(gesta):
    """The second run read the request before the first redrove it and it failed again."""
    provider = Provider(*[Rejected("closed")] * 4)
    async with engine_of(provider) as engine:
        await failed_requests(engine, gesta, 2)
        gesta.advance(1)
        first = engine.admin.bulk(Bulk(action="redrive", flow=FLOW, rate=10.0), actor=ADA)
        second = None
        async for progress in passing_time(gesta, first):
            if second is None:
                gesta.advance(0.01)
                second = engine.admin.resume_bulk(progress.id or 0, "redrive", rate=10.0)
                assert (await anext(second)).matched == 2
                # It has the page with both requests and has decided about the first one.
                assert (await anext(second)).done == 1
                await gesta.settle()
        assert second is not None
        last = [one async for one in passing_time(gesta, second)][-1]
        await gesta.settle()
        assert (progress.done, last.done, last.refused) == (1, 1, 1)
        assert len(provider.calls) == 4


async def test_a_finding_about_one_attempt_is_not_recorded_for_a_later_one(gesta):
    """Between page and decision, a person resolved the request; the next attempt is unknown."""
    provider = Provider(*[Unknown("timeout")] * 4)
    async with engine_of(provider, on_unknown="manual") as engine:
        newer = (await failed_requests(engine, gesta, 2))[1]
        asked = Bulk(action="resolve", flow=FLOW, outcome="not_executed", evidence="log", rate=10.0)
        run = engine.admin.bulk(asked, actor=ADA)
        await anext(run)
        decided = await anext(run)
        assert decided.done == 1
        older = next(view.state.id for view in await engine.find(limit=9) if view.state.id != newer)
        await (await engine.request(older)).resolve("not_executed", by="bo", evidence="call")
        await gesta.settle()
        rest = [one async for one in passing_time(gesta, run)]
        assert (rest[-1].done, rest[-1].refused) == (1, 1)
        assert [one.code for report in rest for one in report.refusals] == ["changed"]


async def test_a_store_failure_ends_the_run_and_the_run_can_be_resumed(gesta, ports):
    provider = Provider(*[Rejected("closed")] * 3)
    async with engine_of(provider) as engine:
        await failed_requests(engine, gesta, 3)
        run = engine.admin.bulk(Bulk(action="redrive", flow=FLOW))
        first = await anext(run)
        ports.read_model.fail("find")
        with pytest.raises(StoreError):
            await anext(run)
        assert (await resumed(engine, first.id, "redrive"))[-1].done == 3


async def test_cancel_by_filter_cancels_what_waits(gesta):
    async with engine_of(Provider()) as engine:
        await engine.admin.pause(flow=FLOW)
        for number in range(3):
            await engine.submit(Note(str(number)), key=str(number))
        await let_run(gesta)
        last = (await reports(engine, action="cancel", flow=FLOW))[-1]
        assert (last.matched, last.done) == (3, 3)
        assert await statuses(engine) == ["cancelled"] * 3


async def test_retry_by_filter_makes_waiting_attempts_due_now(gesta):
    provider = Provider(*[Retry("busy", after_seconds=500.0)] * 2)
    async with engine_of(provider, retry=RetryPolicy(cap_seconds=1_000.0)) as engine:
        for number in range(2):
            await engine.submit(Note(str(number)), key=str(number))
        await let_run(gesta)
        assert len(provider.calls) == 2
        last = (await reports(engine, action="retry", reason="busy"))[-1]
        assert (last.matched, last.done) == (2, 2)
        await let_run(gesta)
        assert await statuses(engine) == ["completed"] * 2


async def test_resolve_by_filter_puts_one_outcome_and_evidence_on_every_request(gesta):
    provider = Provider(*[Unknown("timeout")] * 2)
    async with engine_of(provider, on_unknown="manual") as engine:
        (first, _) = await failed_requests(engine, gesta, 2)
        last = (
            await reports(engine, action="resolve", flow=FLOW, outcome="succeeded", evidence="log")
        )[-1]
        assert (last.matched, last.done) == (2, 2)
        assert await statuses(engine) == ["completed"] * 2
        (resolved,) = [
            event for name, event, _ in await engine.history(first) if "OutcomeResolved" in name
        ]
        assert (resolved.by, resolved.evidence) == ("ada", "log")  # type: ignore[union-attr]


async def test_template_and_target_choose_requests(gesta):
    provider = Provider(*[Rejected("closed")] * 2)
    flow = note_flow(provider)
    mail = type(flow)("test.mail", Mail, provider.execute, flow.rules)
    async with Engine(URL, flows=[flow, mail]) as engine:
        for code in ("welcome", "goodbye"):
            await engine.submit(Mail(code), key=code)
        await gesta.settle()
        (found,) = await reports(engine, action="redrive", template="welcome", dry_run=True)
        assert found.matched == 1
        (found,) = await reports(engine, action="redrive", target="C1", dry_run=True)
        assert found.matched == 0


async def test_a_refused_request_is_reported_and_the_others_are_changed(gesta):
    provider = Provider(*[Rejected("closed")] * 2)
    flow = note_flow(provider)
    mail = type(flow)("test.mail", Mail, provider.execute, flow.rules)
    async with Engine(URL, flows=[flow, mail]) as engine:
        undeclared = await engine.submit(Mail("welcome"), key="mail")
        await failed_requests(engine, gesta, 1)
    async with engine_of(provider) as engine:
        run = await reports(engine, action="redrive", reason="closed")
        assert (run[-1].done, run[-1].refused) == (1, 1)
        (refusal,) = [one for report in run for one in report.refusals]
        assert (refusal.id, refusal.code) == (undeclared.id, "unknown_flow")


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"action": "redrive"}, {"filter"}),
        ({"action": "purge", "flow": FLOW}, {"deadLetters"}),
        ({"action": "redrive", "flow": "no.such"}, {"flow"}),
        ({"action": "redrive", "status": "queued"}, {"status"}),
        (
            {"action": "cancel", "flow": FLOW, "outcome": "failed", "again": True},
            {"outcome", "again"},
        ),
        ({"action": "resolve", "flow": FLOW}, {"outcome", "evidence"}),
        (
            {"action": "retry", "flow": FLOW, "rate": 0.0, "ttl_seconds": 5.0},
            {"rate", "ttlSeconds"},
        ),
        ({"action": "explode", "flow": FLOW, "since": datetime(2027, 1, 1)}, {"action", "since"}),
    ],
)
async def test_wrong_input_is_refused_with_all_field_errors_at_once(gesta, asked, fields):
    async with engine_of(Provider()) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await reports(engine, **asked)
        assert set(refused.value.fields) == fields
        assert await engine.admin.audit() == []


async def test_a_class_of_statuses_stands_for_each_of_them(gesta):
    """Alerts and metrics say `http_4xx`; a person filters by what they say."""
    reasons = ("http_404", "http_422", "http_4xx", "http_503", "busy")
    async with engine_of(Provider(*map(Rejected, reasons))) as engine:
        await failed_requests(engine, gesta, len(reasons))
        for asked, count in (("http_4xx", 3), ("http_5xx", 1), ("http_404", 1), ("http_", 0)):
            (report,) = await reports(engine, action="redrive", reason=asked, dry_run=True)
            page = await engine.admin.dead_letter_page(reason=asked)
            assert (report.matched, len(page.items)) == (count, count)
