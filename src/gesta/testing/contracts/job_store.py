"""What every job store promises: results with codes, one claim for each job, nothing lost."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from gesta.domain.stored_job import JobError, JobStatus, StoredJob, job_at, moment
from gesta.errors import Fenced
from gesta.ports.job_store import (
    Claim,
    ClaimedJob,
    Completion,
    Failing,
    Held,
    MethodResult,
    Postponement,
    Update,
)
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.fences import FILLING, LEFT, FencedContract
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import fresh_id, fresh_name
from gesta.testing.contracts.suite import Contract

T = TypeVar("T")
WORKER, OTHER = "0a0a0a0a-0000-4000-8000-000000000001", "0a0a0a0a-0000-4000-8000-000000000002"
BROKEN = JobError("BROKEN", "it broke")


def fresh_stored_job(harness: Harness, name: str | None = None, **more: Any) -> StoredJob:
    now = harness.runtime.now_ms()
    return job_at(now, id=fresh_id(), name=name or fresh_name("job"), **more)


async def create(harness: Harness, name: str | None = None, **more: Any) -> StoredJob:
    job = fresh_stored_job(harness, name, **more)
    assert [one.code for one in await harness.job_store.create([job])] == [""]
    return job


async def read(harness: Harness, job_id: str) -> StoredJob:
    (result,) = await harness.job_store.get([job_id])
    assert result.value is not None, result
    return result.value


async def claim(
    harness: Harness, *names: str, limit: int = 1, worker: str = WORKER, lease: float = 60
) -> list[ClaimedJob]:
    result = await harness.job_store.claim(
        Claim(worker_id=worker, names=names, limit=limit, lease_seconds=lease)
    )
    assert result.value is not None, result
    return [_value(one) for one in result.value]


async def claim_one(harness: Harness, name: str, worker: str = WORKER) -> ClaimedJob:
    return _only(await claim(harness, name, worker=worker))


def _value(result: MethodResult[ClaimedJob]) -> ClaimedJob:
    assert result.value is not None, result
    return result.value


def _only(found: list[T]) -> T:
    assert len(found) == 1, found
    return found[0]


def _code(results: list[MethodResult[Any]]) -> str:
    (result,) = results
    return result.code


class JobStoreContract(Contract):
    needs = frozenset({"job_store"})

    async def test_a_job_is_read_as_it_was_created(self, harness: Harness) -> None:
        at = datetime(2026, 3, 29, 1, 59, 59, 123456, tzinfo=UTC)
        job = fresh_stored_job(
            harness,
            status=JobStatus.IN_PROGRESS,
            headers={"accept": ["a", None, "b"], "x": []},
            route_params={"n": 7, "f": 1.5, "t": True, "none": None, "deep": {"a": [1, "ü"]}},
            query_params=[("b", ["2", "1"]), ("a", [None]), ("b", [])],
            payload='{"text": "Grüße \\u0000 😀"}',
            result='{"ok": true}',
            error=JobError("CODE", 'a "quoted" text'),
            retry_count=2,
            max_retries=5,
            retry_delay_until=at,
            worker_id=WORKER,
            started_at=at,
            completed_at=at,
        )
        assert _code(await harness.job_store.create([job])) == ""
        # R4-5, S4-20, S4-21: types, order, duplicates and UTC are kept.
        assert await read(harness, job.id) == job

    async def test_nulls_and_empty_collections_are_read_back(self, harness: Harness) -> None:
        job = await create(harness)
        found = await read(harness, job.id)
        # R4-4, S4-19: null is null.
        assert found == job
        nulls = (found.result, found.error, found.retry_delay_until, found.worker_id)
        assert (*nulls, found.started_at, found.completed_at) == (None,) * 6  # R4-4
        assert (found.headers, found.route_params, found.query_params) == ({}, {}, [])  # R4-4

    async def test_a_job_without_content_or_id_is_refused(self, harness: Harness) -> None:
        empty = replace(fresh_stored_job(harness), id="00000000-0000-0000-0000-000000000000")
        no_guid = replace(empty, id="7")
        null, no_id, bad_id = await harness.job_store.create([None, empty, no_guid])
        assert null.error is not None
        assert no_id.error is not None
        assert (null.code, null.error.message) == ("INVALID_JOB", "Job cannot be null")  # R4-6
        assert no_id.code == "INVALID_JOB_ID"  # R4-6
        assert no_id.error.message == "Job ID cannot be empty"  # R4-6
        assert bad_id.code == "INVALID_JOB_ID"
        codes = [one.code for one in await harness.job_store.get([empty.id, "", "7", fresh_id()])]
        assert codes == ["INVALID_JOB_ID"] * 3 + ["JOB_NOT_FOUND"]  # R4-10

    async def test_an_existing_job_is_not_overwritten(self, harness: Harness) -> None:
        job = await create(harness, payload="first")
        other = replace(job, payload="second", name="another")
        (result,) = await harness.job_store.create([other])
        assert result.error is not None
        assert result.code == "JOB_CREATE_FAILED"  # R4-7
        assert result.error.message == f"Job with ID {job.id} already exists"  # R4-7
        assert result.error.reason == "DUPLICATE"  # S4-24
        assert await read(harness, job.id) == job
        assert len(await claim(harness, job.name, "another", limit=9)) == 1

    async def test_of_creators_that_race_for_an_id_one_succeeds(self, harness: Harness) -> None:
        first = fresh_stored_job(harness)
        jobs = [replace(first, payload=str(n)) for n in range(8)]
        results = await race(*(harness.job_store.create([one]) for one in jobs))
        codes = [_code(one) for one in results]
        assert sorted(codes) == [""] + ["JOB_CREATE_FAILED"] * 7  # S4-6
        assert await read(harness, first.id) == jobs[codes.index("")]

    async def test_a_payload_that_is_too_large_is_refused(self, harness: Harness) -> None:
        job = fresh_stored_job(harness, payload="x" * 1_048_577)
        (result,) = await harness.job_store.create([job])
        assert result.error is not None
        assert result.code == "JOB_CREATE_FAILED"
        assert result.error.message == f"Failed to create job with ID {job.id}"  # R4-7
        assert _code(await harness.job_store.get([job.id])) == "JOB_NOT_FOUND"

    async def test_an_unknown_job_is_not_found(self, harness: Harness) -> None:
        job_id = fresh_id()
        (result,) = await harness.job_store.get([job_id])
        assert result.error is not None
        assert result.code == "JOB_NOT_FOUND"  # R4-10
        assert result.error.message == f"Job with ID {job_id} not found"  # R4-10
        job = replace(fresh_stored_job(harness), id=job_id)
        assert _code(await harness.job_store.update([Update(job)])) == "JOB_NOT_FOUND"  # R4-11
        assert _code(await harness.job_store.cancel([job_id])) == "JOB_NOT_FOUND"
        answer = await harness.job_store.claim_by_id([job_id], Claim(worker_id=WORKER))
        assert _code(answer) == "JOB_NOT_FOUND"  # S4-14
        held = Held(job_id, WORKER, fresh_id())
        assert _code(await harness.job_store.complete([Completion(held)])) == "JOB_NOT_FOUND"

    async def test_a_claim_gives_the_whole_job_to_one_worker(self, harness: Harness) -> None:
        job = await create(harness, payload="p", headers={"a": ["b"]}, retry_count=1)
        harness.runtime.advance(5)
        claimed = await claim_one(harness, job.name)
        now = moment(harness.runtime.now_ms())
        # R4-15, S4-1: built by name, with the new values.
        assert claimed.job == replace(
            job,
            status=JobStatus.IN_PROGRESS,
            worker_id=WORKER,
            started_at=now,
            last_updated_at=now,
        )
        assert await read(harness, job.id) == claimed.job
        assert await claim(harness, job.name, worker=OTHER) == []  # R4-15: out of the queue

    async def test_no_work_is_an_empty_success(self, harness: Harness) -> None:
        result = await harness.job_store.claim(Claim(worker_id=WORKER, names=(fresh_name(),)))
        assert result.is_success  # S4-14
        assert result.value == []

    async def test_a_claim_by_id_says_why_it_is_refused(self, harness: Harness) -> None:
        later = moment(harness.runtime.now_ms() + 1)
        delayed = await create(harness, status=JobStatus.SCHEDULED, retry_delay_until=later)
        taken, done = await create(harness), await create(harness, status=JobStatus.COMPLETED)
        await claim_one(harness, taken.name)
        answers = await harness.job_store.claim_by_id(
            [delayed.id, taken.id, done.id], Claim(worker_id=OTHER)
        )
        codes = [one.code for one in answers]
        assert codes == ["RETRY_DELAY", "ALREADY_ASSIGNED", "WRONG_STATUS"]  # R4-14, S4-2
        harness.runtime.advance(0.001)
        (answer,) = await harness.job_store.claim_by_id([delayed.id], Claim(worker_id=OTHER))
        assert _value(answer).job.status is JobStatus.IN_PROGRESS

    async def test_a_scheduled_job_is_claimed_when_it_is_due_and_not_before(
        self, harness: Harness
    ) -> None:
        due = moment(harness.runtime.now_ms() + 60_000)
        job = await create(harness, status=JobStatus.SCHEDULED, retry_delay_until=due)
        assert await claim(harness, job.name) == []  # S4-2
        harness.runtime.advance(60)
        claimed = await claim_one(harness, job.name)  # S4-4: it was queued when it was created
        assert claimed.job.retry_delay_until is None  # S4-28
        assert (await read(harness, job.id)).retry_delay_until is None

    async def test_an_updated_job_is_queued_as_its_status_says(self, harness: Harness) -> None:
        name, now = fresh_name(), harness.runtime.now_ms()
        job = await create(harness, name, status=JobStatus.FAILED)
        later = moment(now + 30_000)
        scheduled = replace(job, status=JobStatus.SCHEDULED, retry_delay_until=later)
        assert _code(await harness.job_store.update([Update(scheduled)])) == ""
        assert await claim(harness, name) == []
        harness.runtime.advance(30)
        claimed = await claim_one(harness, name)  # R4-12, S4-3
        assert claimed.job.id == job.id

    async def test_an_update_refreshes_the_time_and_takes_the_job_out_of_the_queue(
        self, harness: Harness
    ) -> None:
        job = await create(harness)
        harness.runtime.advance(7)
        canceled = replace(job, status=JobStatus.CANCELED)
        assert _code(await harness.job_store.update([Update(canceled)])) == ""
        found = await read(harness, job.id)
        assert found.last_updated_at == job.last_updated_at + timedelta(seconds=7)  # R4-11
        assert await claim(harness, job.name) == []  # R4-11

    async def test_update_refuses_null_and_an_empty_id(self, harness: Harness) -> None:
        empty = replace(fresh_stored_job(harness), id="00000000-0000-0000-0000-000000000000")
        null, no_id = await harness.job_store.update([Update(None), Update(empty)])
        assert (null.code, no_id.code) == ("INVALID_JOB", "INVALID_JOB_ID")  # R4-11

    async def test_a_stale_copy_does_not_overwrite_a_claim(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = await claim_one(harness, job.name)
        (result,) = await harness.job_store.update([Update(replace(job, payload="stale"))])
        assert result.error is not None
        assert (result.code, result.error.reason) == ("JOB_UPDATE_FAILED", "CLAIMED")  # S4-7
        assert await read(harness, job.id) == claimed.job
        own = Update(replace(claimed.job, payload="own"), claimed.held)
        assert _code(await harness.job_store.update([own])) == ""
        assert (await read(harness, job.id)).payload == "own"

    async def test_of_two_updates_of_one_copy_the_second_is_refused(self, harness: Harness) -> None:
        job = await create(harness)
        both = [Update(replace(job, payload=text)) for text in ("one", "two")]
        first, second = await harness.job_store.update(both)
        assert first.is_success
        assert second.error is not None
        assert (second.code, second.error.reason) == ("JOB_UPDATE_FAILED", "STALE")  # S4-7
        assert (await read(harness, job.id)).payload == "one"

    async def test_a_status_that_may_not_follow_is_refused(self, harness: Harness) -> None:
        job = await create(harness, status=JobStatus.COMPLETED)
        (result,) = await harness.job_store.update([Update(replace(job, status=JobStatus.QUEUED))])
        assert result.error is not None
        assert (result.code, result.error.reason) == ("JOB_UPDATE_FAILED", "WRONG_STATUS")  # S4-7

    async def test_a_waiting_job_with_a_forgotten_worker_is_claimed(self, harness: Harness) -> None:
        job = await create(harness, worker_id=OTHER)
        assert (await claim_one(harness, job.name)).job.worker_id == WORKER  # S4-13

    async def test_many_jobs_are_claimed_at_once_the_oldest_first(self, harness: Harness) -> None:
        name = fresh_name()
        jobs = [fresh_stored_job(harness, name) for _ in range(40)]
        # Created in this order, with ids in another.
        jobs = [replace(job, id=job.id[::-1].replace("-", "")) for job in jobs]
        jobs = [replace(job, id=_as_id(job.id)) for job in jobs]
        assert {one.code for one in await harness.job_store.create(jobs)} == {""}
        claimed = await claim(harness, name, limit=30)
        assert [one.job.id for one in claimed] == [job.id for job in jobs[:30]]  # S4-12
        assert len(await claim(harness, name, limit=30)) == 10

    async def test_names_take_turns_of_three(self, harness: Harness) -> None:
        many, few = fresh_name("a"), fresh_name("b")
        await harness.job_store.create([fresh_stored_job(harness, many) for _ in range(12)])
        await harness.job_store.create([fresh_stored_job(harness, few) for _ in range(4)])
        claimed = await claim(harness, many, few, limit=9)
        names = ["a" if one.job.name == many else "b" for one in claimed]
        assert names == list("aaabbbaaa")  # S4-30
        # By one at a time the other name is next.
        next_one = _only(await claim(harness, many, few))
        assert next_one.job.name == few  # S4-30

    async def test_jobs_of_urgent_names_come_first(self, harness: Harness) -> None:
        calm, urgent = fresh_name("a"), fresh_name("b")
        await harness.job_store.create([fresh_stored_job(harness, calm) for _ in range(6)])
        await harness.job_store.create([fresh_stored_job(harness, urgent) for _ in range(5)])
        answer = await harness.job_store.claim(
            Claim(worker_id=WORKER, names=(calm, urgent), urgent=(urgent,), limit=7)
        )
        assert answer.value is not None
        names = ["a" if _value(one).job.name == calm else "b" for one in answer.value]
        # S4-12: a band of its own; within it the times when they are due decide.
        assert names == list("bbbbbaa")

    async def test_jobs_of_names_that_the_worker_does_not_know_stay(self, harness: Harness) -> None:
        foreign, own = await create(harness), await create(harness)
        claimed = await claim(harness, own.name, limit=9)
        assert [one.job.id for one in claimed] == [own.id]
        assert (await read(harness, foreign.id)).status is JobStatus.QUEUED

    async def test_workers_that_race_claim_each_job_once(self, harness: Harness) -> None:
        name = fresh_name()
        jobs = [fresh_stored_job(harness, name) for _ in range(60)]
        await harness.job_store.create(jobs)
        rounds = await race(*(claim(harness, name, limit=5) for _ in range(16)))
        claimed = [one.job.id for some in rounds for one in some]
        assert sorted(claimed) == sorted(job.id for job in jobs)  # R4-18, S4-11

    async def test_completed_jobs_have_their_result(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = await claim_one(harness, job.name)
        harness.runtime.advance(3)
        end = Completion(claimed.held, '{"total": 3}')
        assert _code(await harness.job_store.complete([end])) == ""
        found = await read(harness, job.id)
        assert (found.status, found.result, found.error) == (400, '{"total": 3}', None)
        assert found.completed_at == moment(harness.runtime.now_ms())
        assert found.started_at == claimed.job.started_at
        # S4-7: a second end is refused.
        assert _code(await harness.job_store.complete([end])) == "JOB_NOT_CLAIMED"

    async def test_a_result_that_is_too_large_leaves_the_job_claimed(
        self, harness: Harness
    ) -> None:
        job = await create(harness)
        claimed = await claim_one(harness, job.name)
        end = Completion(claimed.held, "x" * 1_048_577)
        assert _code(await harness.job_store.complete([end])) == "JOB_STORE_ERROR"
        assert await read(harness, job.id) == claimed.job

    async def test_failed_jobs_have_their_error(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = await claim_one(harness, job.name)
        assert _code(await harness.job_store.fail([Failing(claimed.held, BROKEN)])) == ""
        found = await read(harness, job.id)
        assert (found.status, found.error) == (500, BROKEN)
        assert found.completed_at is not None
        assert await claim(harness, job.name) == []

    async def test_a_rescheduled_job_comes_back_until_its_retries_are_used(
        self, harness: Harness
    ) -> None:
        job = await create(harness, max_retries=1)
        claimed = await claim_one(harness, job.name)
        again = Postponement(claimed.held, BROKEN, 10)
        assert _code(await harness.job_store.reschedule([again])) == ""
        found = await read(harness, job.id)
        assert (found.status, found.retry_count, found.worker_id) == (200, 1, None)
        assert found.retry_delay_until == moment(harness.runtime.now_ms() + 10_000)
        assert await claim(harness, job.name) == []
        harness.runtime.advance(10)
        claimed = await claim_one(harness, job.name, OTHER)
        assert _code(await harness.job_store.reschedule([Postponement(claimed.held, BROKEN)])) == ""
        found = await read(harness, job.id)
        assert (found.status, found.error, found.retry_count) == (500, BROKEN, 1)

    async def test_a_released_job_is_claimed_next_and_loses_no_retry(
        self, harness: Harness
    ) -> None:
        name = fresh_name()
        first, second = await create(harness, name), await create(harness, name)
        claimed = await claim_one(harness, name)
        assert _code(await harness.job_store.release([claimed.held])) == ""
        found = await read(harness, first.id)
        assert (found.retry_count, found.worker_id) == (0, None)  # S4-31
        ids = [one.job.id for one in await claim(harness, name, limit=2)]
        assert sorted(ids) == sorted([first.id, second.id])

    async def test_a_transition_needs_the_newest_claim(self, harness: Harness) -> None:
        job = await create(harness)
        old = await claim_one(harness, job.name)
        await harness.job_store.release([old.held])
        new = await claim_one(harness, job.name)
        store = harness.job_store
        # S4-7: the same worker, an older token.
        assert _code(await store.complete([Completion(old.held)])) == "JOB_NOT_CLAIMED"
        assert _code(await store.fail([Failing(old.held, BROKEN)])) == "JOB_NOT_CLAIMED"
        answer = await store.reschedule([Postponement(old.held, BROKEN)])
        assert _code(answer) == "JOB_NOT_CLAIMED"
        assert _code(await store.release([old.held])) == "JOB_NOT_CLAIMED"
        assert await store.heartbeat([old.held, new.held]) == ["lost", "held"]
        thief = Held(job.id, OTHER, new.held.token)
        assert _code(await store.complete([Completion(thief)])) == "JOB_NOT_CLAIMED"
        assert await read(harness, job.id) == new.job

    async def test_a_claim_that_expired_is_taken_back(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = _only(await claim(harness, job.name, lease=30))
        harness.runtime.advance(29.999)
        assert await harness.job_store.reap() == []
        harness.runtime.advance(0.001)
        reaped = _only(await harness.job_store.reap())
        assert (reaped.id, reaped.end) == (job.id, "again")  # S4-8
        found = await read(harness, job.id)
        # S4-8, S4-9: it counts as a retry, and the start stays on record.
        assert (found.retry_count, found.worker_id) == (1, None)
        assert found.started_at == claimed.job.started_at
        assert (await claim_one(harness, job.name, OTHER)).job.id == job.id

    async def test_a_lost_claim_of_an_adopted_job_costs_no_retry(self, harness: Harness) -> None:
        job = await create(harness, max_retries=0)
        for worker in (WORKER, OTHER):
            answer = await harness.job_store.claim(
                Claim(worker_id=worker, names=(job.name,), lease_seconds=30, adopts=True)
            )
            assert answer.value is not None
            assert _value(_only(answer.value)).job.id == job.id
            harness.runtime.advance(30)
            assert _only(await harness.job_store.reap()).end == "again"
            found = await read(harness, job.id)
            assert (found.status, found.retry_count, found.worker_id) == (200, 0, None)

    async def test_a_heartbeat_keeps_the_claim(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = _only(await claim(harness, job.name, lease=30))
        for _ in range(5):
            harness.runtime.advance(20)
            assert await harness.job_store.heartbeat([claimed.held], 30) == ["held"]  # S4-9
            assert await harness.job_store.reap() == []

    async def test_the_last_lost_worker_fails_the_job_with_a_readable_error(
        self, harness: Harness
    ) -> None:
        job = await create(harness, max_retries=0)
        await claim(harness, job.name, lease=30)
        harness.runtime.advance(30)
        reaped = _only(await harness.job_store.reap())
        found = await read(harness, job.id)
        assert (reaped.end, found.status) == ("failed", 500)
        assert found.error is not None
        assert found.error.code == "WORKER_LOST"  # S4-9
        assert found.completed_at is not None  # S4-9

    async def test_reapers_that_race_bring_a_job_back_once(self, harness: Harness) -> None:
        name = fresh_name()
        await harness.job_store.create([fresh_stored_job(harness, name) for _ in range(9)])
        await claim(harness, name, limit=9, lease=1)
        harness.runtime.advance(1)
        reaped = await race(*(harness.job_store.reap(4) for _ in range(6)))
        ids = [one.id for some in reaped for one in some]
        assert len(ids) == len(set(ids)) <= 9  # S4-8
        while more := await harness.job_store.reap(4):
            ids += [one.id for one in more]
        assert len(ids) == len(set(ids)) == 9

    async def test_a_waiting_job_is_canceled_at_once(self, harness: Harness) -> None:
        job = await create(harness)
        (answer,) = await harness.job_store.cancel([job.id])
        assert answer.value == "canceled"
        assert (await read(harness, job.id)).status == 600
        assert await claim(harness, job.name) == []
        (answer,) = await harness.job_store.cancel([job.id])
        assert answer.value == "canceled"

    async def test_the_worker_of_a_canceled_job_hears_of_it(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = await claim_one(harness, job.name)
        (answer,) = await harness.job_store.cancel([job.id])
        assert answer.value == "requested"
        assert await harness.job_store.heartbeat([claimed.held]) == ["cancel"]  # S4-31
        await harness.job_store.reschedule([Postponement(claimed.held, BROKEN)])
        assert (await read(harness, job.id)).status == 600

    async def test_a_success_stays_although_it_was_to_be_canceled(self, harness: Harness) -> None:
        job = await create(harness)
        claimed = await claim_one(harness, job.name)
        await harness.job_store.cancel([job.id])
        assert _code(await harness.job_store.complete([Completion(claimed.held, "1")])) == ""
        assert _code(await harness.job_store.cancel([job.id])) == "WRONG_STATUS"
        assert (await read(harness, job.id)).status == 400

    async def test_counts_outlive_the_jobs(self, harness: Harness) -> None:
        before = await harness.job_store.counts()
        done, failed = await create(harness), await create(harness)
        canceled = await create(harness)
        for job in (done, failed):
            claimed = await claim_one(harness, job.name)
            if job is done:
                await harness.job_store.complete([Completion(claimed.held)])
            else:
                await harness.job_store.fail([Failing(claimed.held, BROKEN)])
        await harness.job_store.cancel([canceled.id])
        after = await harness.job_store.counts()
        assert after.created - before.created == 3
        assert after.completed - before.completed == 1  # S4-23
        assert after.failed - before.failed == 1
        assert after.canceled - before.canceled == 1


class JobRowsContract(FencedContract):
    needs = frozenset({"job_store", "job_rows", "fences"})

    async def test_jobs_are_copied_with_their_claims_and_counts(self, harness: Harness) -> None:
        name = fresh_name()
        jobs = [await create(harness, name, payload=str(n)) for n in range(3)]
        claimed = await claim_one(harness, name)
        names = [one for one in await harness.job_rows.names() if one[0] == name]
        after, rows = 0, []
        while page := await harness.job_rows.rows(after, 2):
            after = page[-1][0]
            rows += [row for _, row in page if row[0] in {job.id for job in jobs}]
        assert [row[0] for row in rows] == [job.id for job in jobs]
        counts = await harness.job_store.counts()
        await harness.job_store.complete([Completion(claimed.held)])
        await harness.job_store.cancel([jobs[2].id])
        # As they were: this claim holds again, and what is counted is what was counted.
        await harness.job_rows.fill(rows, names)
        assert await harness.job_store.counts() == counts
        assert await harness.job_store.heartbeat([claimed.held]) == ["held"]
        assert await read(harness, claimed.held.id) == claimed.job
        waiting = [one.job.id for one in await claim(harness, name, limit=9)]
        assert waiting == [job.id for job in jobs[1:]]

    async def test_a_store_that_was_left_changes_no_job(self, harness: Harness) -> None:
        job, waiting = await create(harness), await create(harness)
        claimed = await claim_one(harness, job.name)
        await harness.fences.put_up(LEFT)
        store = harness.job_store
        answers: list[MethodResult[Any]] = [
            *await store.create([fresh_stored_job(harness)]),
            *await store.update([Update(waiting)]),
            await store.claim(Claim(worker_id=WORKER, names=(waiting.name,))),
            *await store.complete([Completion(claimed.held)]),
            *await store.cancel([waiting.id]),
        ]
        errors = [one.error and one.error.exception for one in answers]
        assert [type(one) for one in errors] == [Fenced] * 5
        assert await read(harness, job.id) == claimed.job
        with pytest.raises(Fenced):
            await harness.job_rows.fill([row for _, row in await harness.job_rows.rows(0, 1)], [])

    async def test_a_store_that_is_being_filled_gives_no_job_to_a_worker(
        self, harness: Harness
    ) -> None:
        job = await create(harness)
        rows = [row for _, row in await harness.job_rows.rows(0, 10_000) if row[0] == job.id]
        await harness.fences.put_up(FILLING)
        await harness.job_rows.fill(rows, [])
        answer = await harness.job_store.claim(Claim(worker_id=WORKER, names=(job.name,)))
        assert answer.code == "JOB_CLAIM_ERROR"
        await harness.fences.take_down(FILLING)
        assert (await claim_one(harness, job.name)).job.id == job.id


def _as_id(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class JobStoreAfterRestartContract(Contract):
    needs = frozenset({"job_store", "durable"})

    async def test_jobs_and_claims_are_there_again(self, harness: Harness) -> None:
        waiting, held = await create(harness), await create(harness)
        claimed = await claim_one(harness, held.name)
        await reopen(harness)
        assert await read(harness, waiting.id) == waiting
        assert await harness.job_store.heartbeat([claimed.held]) == ["held"]
        assert (await claim_one(harness, waiting.name)).job.id == waiting.id
