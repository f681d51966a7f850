"""What callers and log readers see of the job store: results, messages, levels."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gesta.domain.stored_job import JobStatus, job_at
from gesta.errors import StoreError
from gesta.ports.job_store import Claim, Update
from gesta.runtime.clock import ManualRuntime
from gesta.stores.job_results import JobResults
from gesta.stores.memory.stored_jobs import MemoryStoredJobs

ID = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"


class Broken(MemoryStoredJobs):
    async def create(self, rows):
        raise StoreError("the disk is on fire")

    async def get(self, ids):
        raise StoreError("the disk is on fire")

    async def update(self, rows):
        raise StoreError("the disk is on fire")

    async def claim(self, claim, token):
        raise StoreError("the disk is on fire")


class Refuses(MemoryStoredJobs):
    async def create(self, rows):
        return ["REFUSED" for _ in rows]


class Garbles(MemoryStoredJobs):
    async def get(self, ids):
        return [{"Id": one, "Status": "many"} for one in ids]

    async def claim(self, claim, token):
        return [(one, {"Id": one, "CreatedAt": ""}) for one, _ in await super().claim(claim, token)]


class Slow(MemoryStoredJobs):
    async def get(self, ids):
        await asyncio.sleep(3600)
        return []


class Swallows(MemoryStoredJobs):
    """As redis-py does when the answer arrives with the cancellation."""

    async def get(self, ids):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return ["NOT_FOUND"]
        return []


def job(**more):
    return job_at(1_800_000_000_000, id=ID, name="reports.build", **more)


def results(kind):
    runtime = ManualRuntime()
    return JobResults(kind(runtime), runtime)


@pytest.fixture(autouse=True)
def every_level(caplog):
    """Whatever level a test before this one has set."""
    caplog.set_level(logging.DEBUG, "gesta")


def lines(caplog):
    return [(one.levelname, one.getMessage()) for one in caplog.records]


async def test_unexpected_errors_are_results_with_message_and_exception(caplog):
    store = results(Broken)
    (created,), (read,) = await store.create([job()]), await store.get([ID])
    (updated,) = await store.update([Update(job())])
    for result, doing in ((created, "creating"), (read, "retrieving"), (updated, "updating")):
        assert result.code == "JOB_STORE_ERROR"  # R4-9
        text = f"Unexpected error {doing} job: the disk is on fire"
        assert result.error.message == text  # R4-20
        assert isinstance(result.error.exception, StoreError)  # R4-9, R4-17
    assert [level for level, _ in lines(caplog)] == ["ERROR"] * 3  # R4-20
    assert all(ID in text for _, text in lines(caplog))  # R4-20


async def test_a_script_error_is_a_claim_error():
    result = await results(Broken).claim(Claim(worker_id=OTHER, names=("reports.build",)))
    assert result.code == "JOB_CLAIM_ERROR"  # R4-16
    assert result.error.message == "Could not claim job due to script error"  # R4-16


async def test_a_write_that_is_refused_is_a_failed_create():
    (result,) = await results(Refuses).create([job()])
    assert result.code == "JOB_CREATE_FAILED"
    assert result.error.message == f"Failed to create job with ID {ID}"  # R4-7


async def test_a_hash_that_cannot_be_read_is_a_deserialization_error():
    (result,) = await results(Garbles).get([ID])
    assert result.code == "DESERIALIZATION_ERROR"  # R4-10
    assert result.error.message == f"Failed to convert hash to job with ID {ID}"


async def test_a_claimed_job_that_cannot_be_read_fails_and_is_not_leased_again():
    store = results(Garbles)
    await store.create([job()])
    answer = await store.claim(Claim(worker_id=OTHER, names=("reports.build",)))
    (result,) = answer.value
    assert result.code == "JOB_CONSTRUCTION_ERROR"  # R4-16
    assert result.error.message.startswith("Error constructing job object: ")
    assert store.table.stored[ID].status == 500  # S4-1: it does not stay in progress


@pytest.mark.parametrize("kind", [Slow, Swallows])
async def test_a_cancellation_is_raised_and_logged_as_debug(kind, caplog):
    caplog.set_level(logging.DEBUG)
    task = asyncio.ensure_future(results(kind).get([ID]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):  # R4-9, S4-17
        await task
    assert lines(caplog) == [("DEBUG", f"Job get operation cancelled: ['{ID}']")]  # R4-20


async def test_log_levels_and_ids(caplog):
    caplog.set_level(logging.DEBUG)
    store = results(MemoryStoredJobs)
    await store.create([None])
    await store.create([job()])
    await store.create([job()])
    await store.update([Update(job(status=JobStatus.CANCELED))])
    await store.get([OTHER, ""])
    assert lines(caplog) == [
        ("WARNING", "Attempted to create null job"),  # R4-20
        ("INFO", f"Created job {ID} with name reports.build"),  # R4-8, R4-20
        ("INFO", f"Job with ID {ID} already exists"),  # S4-24
        ("DEBUG", f"Updated job {ID}"),  # R4-20
        ("WARNING", f"Job with ID {OTHER} not found"),  # R4-20
        ("WARNING", "Attempted to retrieve job '': Job ID cannot be empty"),
    ]


async def test_time_comes_from_the_runtime():
    store = results(MemoryStoredJobs)
    runtime = store._runtime
    await store.create([job()])
    runtime.advance(12)
    answer = await store.claim(Claim(worker_id=OTHER, names=("reports.build",)))
    started = answer.value[0].value.job.started_at
    assert round(started.timestamp() * 1000) == runtime.now_ms()  # R4-17


@pytest.mark.parametrize(
    "bad",
    [
        {"route_params": {"x": float("nan")}},
        {"payload": "\ud800"},
        {"headers": {"a": "no list"}},
        {"retry_count": "three"},
    ],
)
async def test_a_job_that_cannot_be_stored_is_refused_and_nothing_is_stored(bad):
    store = results(MemoryStoredJobs)
    (result,) = await store.create([job(**bad)])
    if result.is_success:
        # JSON has no NaN; it is stored as null.
        assert (await store.get([ID]))[0].is_success
    else:
        assert result.code == "JOB_STORE_ERROR"
        assert store.table.stored == {}
