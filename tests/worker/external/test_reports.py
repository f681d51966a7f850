"""What becomes of a request when those who execute it report, in time, late, twice, or never."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gesta import Actor, Engine, InvalidRequest, RetryPolicy
from gesta.domain.codec import decode_meta
from gesta.errors import LeaseLost
from gesta.testing.plugin import Harness
from gesta.worker.external import ExternalReport, RecordFailed, RecordSent, RecordUnknown
from gesta.worker.external.work_item import Reported
from tests.worker.external.leased import (
    FLOW,
    LEASE_SECONDS,
    NOTICED_SECONDS,
    Parcel,
    Pick,
    take,
    take_one,
    warehouse,
)
from tests.world import fields, let_run, outcome_fields, pass_time

SENT = RecordSent(attempts=1)
_decode: Callable[[bytes], ExternalReport] = msgspec.json.Decoder(ExternalReport).decode


async def stored(engine: Engine, request_id: str, tenant: str = "default"):
    return await engine.pipeline.environment.stores.events.read(
        [(f"{FLOW}.request-{tenant}-{request_id}", 0)]
    )


async def types(engine: Engine, request_id: str) -> list[str]:
    return [event.type.split(".")[-2] for event in await stored(engine, request_id)]


def on_the_wire(text: bytes) -> ExternalReport:
    return _decode(text)


async def test_record_sent_with_all_its_fields(gesta):
    report = on_the_wire(
        b'{"type": "recordSent", "providerMessageId": "box-9", "targetId": "gate-4", "attempts": 1,'
        b' "correlationId": "run-5", "causationId": "shift-2", "actor": {"userId": "ada", "roles":'
        b' ["picker"]}}'
    )
    async with warehouse() as engine:
        await engine.submit(Pick(), tenant="acme")
        item = await take_one(engine, gesta, tenant="acme")
        answer = await engine.external.report(FLOW, item.id, item.token, report, tenant="acme")
        assert answer == Reported(FLOW, item.id, "completed", 1)
        event = (await stored(engine, item.id, "acme"))[-1]
        meta = decode_meta(event.meta)
        assert event.type == f"{FLOW}.Completed.v1"
        assert outcome_fields(event.data) == {
            "attempts": 1,
            "providerTxnId": "box-9",
            "targetId": "gate-4",
        }  # R1-4, R1-36
        assert (meta.correlation_id, meta.causation_id) == ("run-5", "shift-2")  # R1-4
        assert meta.actor == Actor("ada", ("picker",))  # R1-7
        assert (meta.tenant, meta.request_id) == ("acme", item.id)


async def test_record_failed_with_all_its_fields(gesta):
    report = on_the_wire(
        b'{"type": "recordFailed", "reason": "no_stock", "attempts": 1, "retryable": false,'
        b' "lastError": "shelf is empty", "correlationId": "run-5", "causationId": "shift-2",'
        b' "actor": {"userId": "ada"}}'
    )
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        answer = await engine.external.report(FLOW, item.id, item.token, report)
        assert answer == Reported(FLOW, item.id, "failed", 1, "no_stock")
        event = (await stored(engine, item.id))[-1]
        meta = decode_meta(event.meta)
        assert event.type == f"{FLOW}.Failed.v1"
        assert outcome_fields(event.data) == {
            "reason": "no_stock",
            "attempts": 1,
            "lastError": "shelf is empty",
        }  # R1-6
        assert (meta.correlation_id, meta.causation_id, meta.actor) == (
            "run-5",
            "shift-2",
            Actor("ada"),
        )  # R1-6, R1-7
        await let_run(gesta)
        assert await engine.pipeline.environment.stores.job_inspection.count(10) == 0


async def test_without_own_ids_a_report_follows_from_the_job_and_keeps_the_requests_correlation(
    gesta,
):
    async with warehouse() as engine:
        await engine.submit(Pick(), correlation_id="order-7")
        item = await take_one(engine, gesta)
        await engine.external.report(FLOW, item.id, item.token, SENT)
        meta = decode_meta((await stored(engine, item.id))[-1].meta)
        assert (meta.correlation_id, meta.causation_id, meta.actor) == (
            "order-7",
            f"{item.id}-1",
            None,
        )


async def test_a_retryable_failure_is_leased_again_by_the_flows_policy_under_the_same_key(
    gesta,
):
    async with warehouse(retry=RetryPolicy(attempts=2, base_seconds=10, cap_seconds=10)) as engine:
        await engine.submit(Pick())
        first = await take_one(engine, gesta)
        answer = await engine.external.report(
            FLOW, first.id, first.token, RecordFailed(reason="busy", retryable=True, attempts=1)
        )
        assert (answer.status, answer.attempts, answer.reason) == ("queued", 1, "busy")
        assert answer.next_attempt_at is not None
        assert await take(engine, gesta) == []
        await pass_time(gesta, 10)
        second = await take_one(engine, gesta)
        assert (second.attempt, second.key) == (2, first.key)
        assert second.token != first.token
        answer = await engine.external.report(
            FLOW, second.id, second.token, RecordFailed(reason="busy", retryable=True, attempts=2)
        )
        assert (answer.status, answer.reason) == ("failed", "max_attempts_exceeded")


async def test_a_reported_failure_may_delay_the_next_attempt(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        later = RecordFailed(reason="closed", retryable=True, attempts=1, retry_after_sec=120)
        answer = await engine.external.report(FLOW, item.id, item.token, later)
        assert answer.next_attempt_at == gesta.runtime.now_ms() + 120_000
        await pass_time(gesta, 119.5)
        assert await take(engine, gesta) == []
        await pass_time(gesta, 0.5)
        assert len(await take(engine, gesta)) == 1


@pytest.mark.parametrize(
    ("policy", "status", "again"), [("manual", "unknown", 0), ("resend", "unknown", 1)]
)
async def test_an_unknown_outcome_follows_the_flows_policy(gesta, policy, status, again):
    async with warehouse(on_unknown=policy) as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        answer = await engine.external.report(
            FLOW, item.id, item.token, RecordUnknown(reason="timeout", attempts=1)
        )
        assert (answer.status, answer.reason) == (status, "timeout")
        await pass_time(gesta, 20)
        handed = await take(engine, gesta)
        assert [(one.attempt, one.key) for one in handed] == [(2, item.key)] * again


async def test_a_count_that_differs_from_ours_is_on_record_and_ours_counts(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await engine.external.report(
            FLOW, item.id, item.token, RecordSent(attempts=4, provider_message_id="box-1")
        )
        event = (await stored(engine, item.id))[-1]
        assert fields(event.data)["attempts"] == 1
        assert fields(event.data)["detail"] == "the worker counts 4 attempts"


async def test_texts_are_scrubbed_and_tell_nothing_about_the_person(gesta):
    async with warehouse(payload=Parcel) as engine:
        await engine.submit(Parcel("Ada Lovelace"))
        item = await take_one(engine, gesta)
        last_error = (
            "Ada Lovelace does not live there, mail bob@example.com, token=abc123 " + "x" * 3_000
        )
        report = RecordFailed(reason="undeliverable", attempts=1, last_error=last_error)
        await engine.external.report(FLOW, item.id, item.token, report)
        assert b"live there" not in (await stored(engine, item.id))[-1].data
        text = (await engine.get(item.id)).state.detail
        assert "[hidden] does not live there" in text
        assert not any(secret in text for secret in ("Ada", "bob@", "abc123"))
        assert len(text) <= 500


async def test_a_text_that_cannot_be_compared_with_the_payload_is_not_kept(gesta):
    async with warehouse(payload=Parcel) as engine:
        await engine.submit(Parcel("Ada"))
        item = await take_one(engine, gesta)
        await engine.erase("Ada")
        report = RecordFailed(reason="undeliverable", attempts=1, last_error="Ada has moved")
        await engine.external.report(FLOW, item.id, item.token, report)
        assert "lastError" not in fields((await stored(engine, item.id))[-1].data)


@pytest.mark.parametrize(
    ("report", "field"),
    [
        (RecordSent(attempts=0), "attempts"),
        (RecordSent(attempts=1, provider_message_id="x" * 501), "providerMessageId"),
        (RecordFailed(attempts=1, reason=""), "reason"),
        (RecordFailed(attempts=1, reason="x" * 101), "reason"),
        (RecordFailed(attempts=1, reason="x", last_error="x" * 4_001), "lastError"),
        (RecordFailed(attempts=1, reason="x", retry_after_sec=-1), "retryAfterSec"),
        (RecordSent(attempts=1, correlation_id="\ud800"), "correlationId"),
        (RecordSent(attempts=1, actor=Actor("")), "actor"),
        (RecordSent(attempts=1, actor=Actor("a", ("x",) * 51)), "actor"),
        (RecordSent(attempts=1, actor=Actor("a", ("x" * 513,))), "actor"),
    ],
)
async def test_a_report_that_cannot_be_is_refused_with_the_field_and_the_lease_stays(
    gesta, report, field
):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        with pytest.raises(InvalidRequest) as caught:
            await engine.external.report(FLOW, item.id, item.token, report)
        assert list(caught.value.fields) == [field]
        assert (await engine.external.report(FLOW, item.id, item.token, SENT)).status == "completed"


@pytest.mark.parametrize(
    "report",
    [
        SENT,
        RecordFailed(reason="no_stock", attempts=1),
        RecordFailed(reason="busy", retryable=True, attempts=1),
        RecordUnknown(reason="lost", attempts=1),
    ],
    ids=["completed", "failed", "retryable", "unknown"],
)
async def test_the_same_report_twice_is_recognised_and_answered_alike(gesta, report):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        first = await engine.external.report(FLOW, item.id, item.token, report)
        before = await types(engine, item.id)
        gesta.advance(5)
        assert await engine.external.report(FLOW, item.id, item.token, report) == first
        assert await types(engine, item.id) == before  # R1-31


async def test_a_failure_that_contradicts_a_success_changes_nothing(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await engine.external.report(FLOW, item.id, item.token, SENT)
        with pytest.raises(LeaseLost) as caught:
            await engine.external.report(
                FLOW, item.id, item.token, RecordFailed(reason="oops", attempts=1)
            )
        assert (
            caught.value.state.status == "completed"
        )  # R1-32, S1-7: a late failure changes nothing
        assert await types(engine, item.id) == ["RequestCreated", "Completed"]


async def test_a_success_after_an_own_failure_is_recorded(gesta):
    """The worker was wrong about its failure; evidence of success counts."""
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await engine.external.report(
            FLOW, item.id, item.token, RecordFailed(reason="no_stock", attempts=1)
        )
        assert (await engine.external.report(FLOW, item.id, item.token, SENT)).status == "completed"
        assert await types(engine, item.id) == ["RequestCreated", "Failed", "CompletedLate"]


async def test_a_cancelled_request_that_was_done_all_the_same_is_sent(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        item = await take_one(engine, gesta)
        assert await request.cancel() == "queued"
        assert (await engine.external.report(FLOW, item.id, item.token, SENT)).status == "completed"


async def test_a_cancelled_request_that_failed_is_not_leased_again(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await request.cancel()
        report = RecordFailed(reason="stopped", retryable=True, attempts=1)
        assert (
            await engine.external.report(FLOW, item.id, item.token, report)
        ).status == "cancelled"
        await pass_time(gesta, 60)
        assert await take(engine, gesta) == []


async def test_without_a_report_the_request_is_unknown_until_a_person_decides(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS - 1)
        assert await request.status() == "queued"
        await pass_time(gesta, 1 + NOTICED_SECONDS)
        state = (await request.view()).state
        assert (state.status, state.reason, state.attempts) == ("unknown", "no_report", 1)
        assert state.waits_for_a_person
        await pass_time(gesta, 600, 5)
        assert await take(engine, gesta) == []


async def test_under_resend_unreported_work_is_leased_again_under_the_same_key(gesta):
    async with warehouse(on_unknown="resend") as engine:
        request = await engine.submit(Pick())
        first = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        second = await take_one(engine, gesta)
        assert (second.attempt, second.key) == (2, first.key)
        assert await types(engine, request.id) == ["RequestCreated", "OutcomeUnknown"]
        assert (
            await engine.external.report(FLOW, request.id, second.token, RecordSent(attempts=2))
        ).status == "completed"


async def test_unreported_work_is_unknown_when_its_attempts_are_used_up(gesta):
    async with warehouse(on_unknown="resend", retry=RetryPolicy(attempts=2)) as engine:
        request = await engine.submit(Pick())
        for _ in range(2):
            await take_one(engine, gesta)
            await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        state = (await request.view()).state
        assert (state.status, state.reason, state.attempts) == ("unknown", "no_report", 2)
        assert await take(engine, gesta) == []


async def test_a_success_that_comes_after_the_lease_is_recorded(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        answer = await engine.external.report(
            FLOW, item.id, item.token, RecordSent(attempts=1, provider_message_id="box-9")
        )
        assert answer.status == "completed"  # K-12, K-16: a late outcome is merged
        assert (await request.view()).state.provider_id == "box-9"


async def test_a_success_reported_after_a_person_resolved_the_request_is_recorded_as_late(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        await request.resolve("rejected", by="ada", evidence="shelf seen full")
        assert (await engine.external.report(FLOW, item.id, item.token, SENT)).status == "completed"
        assert (await types(engine, item.id))[-1] == "CompletedLate"


async def test_a_failure_that_comes_after_it_was_noticed_changes_nothing_and_hears_what_counts(
    gesta,
):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        before = await types(engine, item.id)
        with pytest.raises(LeaseLost) as caught:
            await engine.external.report(
                FLOW, item.id, item.token, RecordFailed(reason="no_stock", attempts=1)
            )
        assert (caught.value.state.status, caught.value.state.reason) == ("unknown", "no_report")
        assert await types(engine, item.id) == before
        assert f'gesta_late_outcomes_total{{flow="{FLOW}"}} 1.0' in engine.metrics().decode()


async def test_a_failure_that_comes_before_the_sweeper_noticed_is_still_valid(gesta, ports):
    """No other worker can have had the work, so what its holder says is the truth."""
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        ports.queue.fail("expired_leases", times=1_000)
        await pass_time(gesta, LEASE_SECONDS + 10)
        assert (
            await engine.external.report(
                FLOW, item.id, item.token, RecordFailed(reason="no_stock", attempts=1)
            )
        ).status == "failed"
        ports.queue.heal()
        await pass_time(gesta, 10)
        assert (await types(engine, item.id)) == ["RequestCreated", "Failed"]


async def two_hands(gesta: Harness, engine: Engine):
    """The same request in the hands of one who lost it and of one who has it."""
    await engine.submit(Pick())
    late = await take_one(engine, gesta)
    await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
    return late, await take_one(engine, gesta)


async def test_the_late_ones_success_counts_and_the_others_is_the_same_success(gesta):
    async with warehouse(on_unknown="resend") as engine:
        late, present = await two_hands(gesta, engine)
        assert (await engine.external.report(FLOW, late.id, late.token, SENT)).status == "completed"
        assert (
            await engine.external.report(FLOW, late.id, present.token, RecordSent(attempts=2))
        ).status == "completed"
        assert await types(engine, late.id) == ["RequestCreated", "OutcomeUnknown", "Completed"]
        await pass_time(gesta, LEASE_SECONDS + NOTICED_SECONDS)
        assert await engine.pipeline.environment.stores.job_inspection.count(10) == 0


async def test_the_late_ones_failure_does_not_take_the_work_from_the_other_worker(gesta):
    async with warehouse(on_unknown="resend") as engine:
        late, present = await two_hands(gesta, engine)
        with pytest.raises(LeaseLost):
            await engine.external.report(
                FLOW, late.id, late.token, RecordFailed(reason="no_stock", attempts=1)
            )
        with pytest.raises(LeaseLost):
            await engine.external.extend(FLOW, late.id, late.token)
        assert (
            await engine.external.extend(FLOW, late.id, present.token)
        ).cancel_requested is False
        assert (
            await engine.external.report(FLOW, late.id, present.token, RecordSent(attempts=2))
        ).status == "completed"


async def test_a_token_of_an_earlier_opening_speaks_of_that_one_only(gesta):
    async with warehouse() as engine:
        request = await engine.submit(Pick())
        old = await take_one(engine, gesta)
        await engine.external.report(
            FLOW, old.id, old.token, RecordFailed(reason="no_stock", attempts=1)
        )
        await let_run(gesta)
        await request.redrive()
        new = await take_one(engine, gesta)
        assert new.key != old.key
        with pytest.raises(LeaseLost):
            await engine.external.report(
                FLOW, old.id, old.token, RecordFailed(reason="other", attempts=2)
            )
        with pytest.raises(LeaseLost):
            await engine.external.fetch(FLOW, old.id, old.token)
        assert (
            await engine.external.report(FLOW, new.id, new.token, RecordSent(attempts=2))
        ).status == "completed"


async def test_a_token_is_good_for_its_tenant_flow_and_request_only(gesta):
    async with warehouse() as engine:
        await engine.submit(Pick())
        item = await take_one(engine, gesta)
        read = engine.external._lease_tokens.read
        assert read("default", FLOW, item.id, item.token) is not None
        assert read("acme", FLOW, item.id, item.token) is None
        assert read("default", "other.flow", item.id, item.token) is None
        assert read("default", FLOW, item.id[::-1], item.token) is None
