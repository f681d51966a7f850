"""The job store over the table of an adapter: checks, results with codes, and log lines.

Implements gesta.ports.job_store.Jobs. A cancellation is raised, never made a result.
"""

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from gesta.domain.ids import id_text
from gesta.domain.stored_job import EMPTY_ID, Fields, JobError, StoredJob, fields_of, is_id, job_of
from gesta.ports.job_store import (
    LEASE_SECONDS,
    TEXT_BYTES_MAX,
    Cancelled,
    Claim,
    ClaimedJob,
    Completion,
    Failing,
    Held,
    JobCounts,
    JobTable,
    MethodResult,
    Postponement,
    Pulse,
    Reaped,
    StoreFailure,
    Update,
)
from gesta.runtime.clock import Runtime, is_cancelled
from gesta.stores.job_codes import ADOPTED

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("gesta.jobs")

_NULL = StoreFailure("INVALID_JOB", "Job cannot be null")
_NO_ID = StoreFailure("INVALID_JOB_ID", "Job ID cannot be empty")
_CLAIM_REFUSED = {
    "ALREADY_ASSIGNED": "Job with ID {id} is assigned to a worker",
    "WRONG_STATUS": "Job with ID {id} is neither queued nor scheduled",
    "RETRY_DELAY": "Job with ID {id} waits for its retry",
}
_UPDATE_REFUSED = {
    "CLAIMED": "Job with ID {id} is claimed by another worker",
    "STALE": "Job with ID {id} has changed since it was read; read it again",
    "WRONG_STATUS": "Job with ID {id} cannot go to this status",
}


class JobResults:
    def __init__(self, table: JobTable, runtime: Runtime) -> None:
        self.table, self._runtime = table, runtime

    async def create(self, jobs: Sequence[StoredJob | None]) -> list[MethodResult[None]]:
        def refused(job: StoredJob) -> StoreFailure | None:
            if is_too_large(job.payload) or is_too_large(job.result):
                text = f"Failed to create job with ID {job.id}"
                return StoreFailure("JOB_CREATE_FAILED", text, reason="TOO_LARGE")
            return None

        rows = [self._row("create", job, refused) for job in jobs]
        good = [row for row in rows if isinstance(row, dict)]
        try:
            codes = iter(await _asked(self.table.create, good))
        except CancelledError:
            _log.debug("Job create operation cancelled: %s", [row["Id"] for row in good])
            raise
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            return [
                _failed(row) if isinstance(row, StoreFailure) else _failure("creating", row, error)
                for row in rows
            ]
        return [
            _failed(row) if isinstance(row, StoreFailure) else _created(row, next(codes))
            for row in rows
        ]

    async def get(self, ids: Sequence[str]) -> list[MethodResult[StoredJob]]:
        good = [one for one in ids if _id_error(one) is None]
        try:
            found = iter(await _asked(self.table.get, good))
        except CancelledError:
            _log.debug("Job get operation cancelled: %s", good)
            raise
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            return [_bad_id("retrieve", one) or _failure("retrieving", one, error) for one in ids]
        return [_bad_id("retrieve", one) or _read(one, next(found)) for one in ids]

    async def update(self, updates: Sequence[Update]) -> list[MethodResult[None]]:
        rows = [self._row("update", one.job, lambda _: None) for one in updates]
        good = [
            (row, one.held) for row, one in zip(rows, updates, strict=True) if isinstance(row, dict)
        ]
        try:
            codes = iter(await _asked(self.table.update, good))
        except CancelledError:
            _log.debug("Job update operation cancelled: %s", [row["Id"] for row, _ in good])
            raise
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            return [
                _failed(row) if isinstance(row, StoreFailure) else _failure("updating", row, error)
                for row in rows
            ]
        return [
            _failed(row) if isinstance(row, StoreFailure) else _updated(row["Id"], next(codes))
            for row in rows
        ]

    async def claim(self, claim: Claim) -> MethodResult[list[MethodResult[ClaimedJob]]]:
        token = self._token(claim)
        if not claim.names or claim.limit < 1:
            return MethodResult([])
        try:
            found = await self.table.claim(claim, token)
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            return MethodResult(error=_claim_error(claim, error))
        results = [_claimed(one, answer, claim, token) for one, answer in found]
        await self._fail_unreadable([one for one, _ in found], results, claim, token)
        return MethodResult(results)

    async def claim_by_id(self, ids: Sequence[str], claim: Claim) -> list[MethodResult[ClaimedJob]]:
        token = self._token(claim)
        good = [one for one in ids if _id_error(one) is None]
        try:
            found = iter(await self.table.claim_by_id(good, claim, token) if good else [])
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            failure = _claim_error(claim, error)
            return [_bad_id("claim", one) or _failed(failure) for one in ids]
        results = [_bad_id("claim", one) or _claimed(*next(found), claim, token) for one in ids]
        await self._fail_unreadable(ids, results, claim, token)
        return results

    async def complete(self, ends: Sequence[Completion]) -> list[MethodResult[None]]:
        small = [one for one in ends if not is_too_large(one.result)]
        answers = iter(await self._held("completing", small, self.table.complete))
        return [
            _failed(_too_large(one.held.id)) if is_too_large(one.result) else next(answers)
            for one in ends
        ]

    async def fail(self, ends: Sequence[Failing]) -> list[MethodResult[None]]:
        return await self._held("failing", ends, self.table.fail)

    async def reschedule(self, ends: Sequence[Postponement]) -> list[MethodResult[None]]:
        return await self._held("rescheduling", ends, self.table.reschedule)

    async def release(self, held: Sequence[Held]) -> list[MethodResult[None]]:
        return await self._held("releasing", held, self.table.release)

    async def heartbeat(
        self, held: Sequence[Held], lease_seconds: float = LEASE_SECONDS
    ) -> list[Pulse]:
        """Raises StoreError: a claim of which nothing is known is neither held nor lost."""
        return await self.table.heartbeat(held, lease_seconds) if held else []

    async def cancel(self, ids: Sequence[str]) -> list[MethodResult[Cancelled]]:
        good = [one for one in ids if _id_error(one) is None]
        try:
            codes = iter(await _asked(self.table.cancel, good))
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            return [_bad_id("cancel", one) or _failure("canceling", one, error) for one in ids]
        return [_bad_id("cancel", one) or _cancelled(one, next(codes)) for one in ids]

    async def reap(self, limit: int = 100) -> list[Reaped]:
        found = await self.table.reap(limit)
        for one in found:
            _log.warning("Job %s lost its worker: %s", one.id, one.end)
        return found

    async def counts(self) -> JobCounts:
        return await self.table.counts()

    async def _fail_unreadable(
        self,
        ids: Sequence[str],
        results: Sequence[MethodResult[ClaimedJob]],
        claim: Claim,
        token: str,
    ) -> None:
        """A job that no worker can read would come back until its retries are used up."""
        bad = [
            Failing(Held(one, claim.worker_id, token), JobError(result.code, "Job cannot be read"))
            for one, result in zip(ids, results, strict=True)
            if result.code == "JOB_CONSTRUCTION_ERROR"
        ]
        await self.fail(bad)

    def _token(self, claim: Claim) -> str:
        return (ADOPTED if claim.adopts else "") + id_text(self._runtime.random_bytes(16))

    def _row(
        self, act: str, job: StoredJob | None, refused: Callable[[StoredJob], StoreFailure | None]
    ) -> Fields | StoreFailure:
        """The fields of a valid job, or what is wrong with it."""
        if job is None:
            _log.warning("Attempted to %s null job", act)
            return _NULL
        failure = _id_error(job.id)
        if failure is None:
            failure = refused(job)
        if failure is None:
            try:
                return fields_of(job)
            except (ValueError, TypeError) as error:
                doing = "creating" if act == "create" else "updating"
                text = f"Unexpected error {doing} job: {error}"
                failure = StoreFailure("JOB_STORE_ERROR", text, error, "UNSTORABLE")
        _log.warning("Attempted to %s job %s: %s", act, job.id, failure.message)
        return failure

    async def _held(
        self, doing: str, ends: Sequence[T], act: Callable[[list[T]], Awaitable[list[str]]]
    ) -> list[MethodResult[None]]:
        ids = [held_by(one).id for one in ends]
        try:
            codes = await _asked(act, ends)
        except Exception as error:  # noqa: BLE001 -- a result, by contract
            return [_failure(doing, one, error) for one in ids]
        return [_settled(one, code) for one, code in zip(ids, codes, strict=True)]


async def _asked(act: Callable[[list[T]], Awaitable[list[R]]], items: Sequence[T]) -> list[R]:
    """Nothing is asked about nothing. A client library may swallow a cancellation; it is raised."""
    answer = await act(list(items)) if items else []
    if is_cancelled():
        raise CancelledError
    return answer


def held_by(end: object) -> Held:
    held = end if isinstance(end, Held) else getattr(end, "held")  # noqa: B009 -- any end has it
    assert isinstance(held, Held)
    return held


def is_too_large(text: str | None) -> bool:
    return text is not None and len(text.encode(errors="replace")) > TEXT_BYTES_MAX


def _too_large(job_id: str) -> StoreFailure:
    text = f"The result of job with ID {job_id} is larger than {TEXT_BYTES_MAX:,} bytes"
    return StoreFailure("JOB_STORE_ERROR", text, reason="TOO_LARGE")


def _id_error(job_id: object) -> StoreFailure | None:
    if not job_id or job_id == EMPTY_ID:
        return _NO_ID
    if not is_id(job_id):
        return StoreFailure("INVALID_JOB_ID", "Job ID must be a GUID in lower case with dashes")
    return None


def _bad_id(act: str, job_id: object) -> MethodResult[Any] | None:
    failure = _id_error(job_id)
    if failure is None:
        return None
    _log.warning("Attempted to %s job %.64r: %s", act, job_id, failure.message)
    return _failed(failure)


def _failed(failure: StoreFailure) -> MethodResult[Any]:
    return MethodResult(error=failure)


def _failure(doing: str, job: str | Mapping[str, str], error: Exception) -> MethodResult[Any]:
    job_id = job if isinstance(job, str) else job["Id"]
    text = f"Unexpected error {doing} job: {error}"
    _log.error("Job %s: %s", job_id, text, exc_info=error)
    return _failed(StoreFailure("JOB_STORE_ERROR", text, error))


def _absent(job_id: str) -> MethodResult[Any]:
    text = f"Job with ID {job_id} not found"
    _log.warning(text)
    return _failed(StoreFailure("JOB_NOT_FOUND", text))


def _created(row: Mapping[str, str], code: str) -> MethodResult[None]:
    job_id = row["Id"]
    if code == "OK":
        _log.info("Created job %s with name %s", job_id, row["Name"])
        return MethodResult()
    text = f"Job with ID {job_id} already exists"
    if code != "DUPLICATE":
        text = f"Failed to create job with ID {job_id}"
        _log.error(text)
    else:
        # A repeated submit is no error.
        _log.info(text)
    return _failed(StoreFailure("JOB_CREATE_FAILED", text, reason=code))


def _read(job_id: str, found: Mapping[str, str] | str) -> MethodResult[StoredJob]:
    if found == "NOT_FOUND":
        return _absent(job_id)
    try:
        return MethodResult(job_of(_readable(found)))
    except ValueError as error:
        text = f"Failed to convert hash to job with ID {job_id}"
        _log.error("%s: %s", text, error)
        return _failed(StoreFailure("DESERIALIZATION_ERROR", text, error))


def _readable(found: Mapping[str, str] | str) -> Mapping[str, str]:
    if isinstance(found, str):
        raise ValueError(found.lower())  # noqa: TRY004 -- a value, by its content
    return found


def _updated(job_id: str, code: str) -> MethodResult[None]:
    if code == "OK":
        _log.debug("Updated job %s", job_id)
        return MethodResult()
    if code == "NOT_FOUND":
        return _absent(job_id)
    if code == "WRONG_TYPE":
        return _failure("updating", job_id, ValueError(f"{job_id} is not a hash"))
    text = _UPDATE_REFUSED[code].format(id=job_id)
    _log.warning(text)
    return _failed(StoreFailure("JOB_UPDATE_FAILED", text, reason=code))


def _claim_error(claim: Claim, error: Exception) -> StoreFailure:
    text = "Could not claim job due to script error"
    _log.error("Worker %s: %s: %s", claim.worker_id, text, error, exc_info=error)
    return StoreFailure("JOB_CLAIM_ERROR", text, error)


def _claimed(
    job_id: str, found: Mapping[str, str] | str, claim: Claim, token: str
) -> MethodResult[ClaimedJob]:
    if found == "NOT_FOUND":
        return _absent(job_id)
    if isinstance(found, str) and found in _CLAIM_REFUSED:
        return _failed(StoreFailure(found, _CLAIM_REFUSED[found].format(id=job_id)))
    try:
        job = job_of(_readable(found))
        return MethodResult(ClaimedJob(job, Held(job_id, claim.worker_id, token)))
    except ValueError as error:
        text = f"Error constructing job object: {error}"
        _log.error("Job %s: %s", job_id, text)
        return _failed(StoreFailure("JOB_CONSTRUCTION_ERROR", text, error))


def _settled(job_id: str, code: str) -> MethodResult[None]:
    if code == "OK":
        return MethodResult()
    if code == "NOT_FOUND":
        return _absent(job_id)
    text = f"Job with ID {job_id} is not claimed by this worker"
    _log.warning(text)
    return _failed(StoreFailure("JOB_NOT_CLAIMED", text, reason=code))


def _cancelled(job_id: str, code: str) -> MethodResult[Cancelled]:
    if code == "NOT_FOUND":
        return _absent(job_id)
    if code == "WRONG_STATUS":
        text = f"Job with ID {job_id} has ended or another service executes it"
        return _failed(StoreFailure("WRONG_STATUS", text))
    return MethodResult("canceled" if code == "canceled" else "requested")
