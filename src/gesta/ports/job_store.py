"""Port: the jobs of slow endpoints, which other services may also create and read.

Calls answer with results, never with exceptions: a failure has a code for programs and a sentence
for people. Only a cancellation is raised. All calls take many jobs and cost one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from gesta.domain.stored_job import JobError, StoredJob

T = TypeVar("T")
#: How long a claim lasts unless it is renewed.
LEASE_SECONDS = 60.0
#: How long a job is kept after its end.
KEEP_SECONDS = 7 * 86_400
#: The largest payload or result, in bytes.
TEXT_BYTES_MAX = 1_048_576


@dataclass(frozen=True)
class StoreFailure:
    """Why a call failed. `reason` distinguishes failures with the same code."""

    code: str
    message: str
    exception: BaseException | None = None
    reason: str = ""


@dataclass(frozen=True)
class MethodResult(Generic[T]):
    """A value, or why there is none."""

    value: T | None = None
    error: StoreFailure | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None

    @property
    def code(self) -> str:
        """The code of the failure; empty after a success."""
        return "" if self.error is None else self.error.code


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims. `names`: the kinds of jobs that this worker can execute."""

    worker_id: str
    names: tuple[str, ...] = ()
    #: The names whose due jobs come before all others.
    urgent: tuple[str, ...] = ()
    limit: int = 1
    lease_seconds: float = LEASE_SECONDS
    #: The jobs become requests, which count their own attempts and outlive the worker: if it dies,
    #: the claim costs no retry.
    adopts: bool = False


class Held(msgspec.Struct, frozen=True):
    """Proof of a claim. Without the right token no transition is made."""

    id: str
    worker_id: str
    token: str


@dataclass(frozen=True)
class ClaimedJob:
    job: StoredJob
    held: Held


class Completion(msgspec.Struct, frozen=True):
    held: Held
    result: str | None = None


class Failing(msgspec.Struct, frozen=True):
    """Permanently: retries that the job has left are not used."""

    held: Held
    error: JobError


class Postponement(msgspec.Struct, frozen=True):
    """Try again after `delay_seconds`. It counts as a retry; the last one fails the job."""

    held: Held
    error: JobError
    delay_seconds: float = 0.0


class Update(msgspec.Struct, frozen=True):
    """A job as it should be. It must have been read from the store: a job that has changed since is
    not overwritten. `held` is needed while a worker has it.
    """

    job: StoredJob | None
    held: Held | None = None


Pulse = Literal["held", "cancel", "lost"]
#: Canceled now, or the worker that has claimed it will be notified.
Cancelled = Literal["canceled", "requested"]


ReapedEnd = Literal["again", "failed", "canceled"]


@dataclass(frozen=True)
class Reaped:
    """A job whose worker is gone: `again`, `failed` after its last retry, or `canceled`."""

    id: str
    end: ReapedEnd


@dataclass(frozen=True)
class JobCounts:
    """How many jobs were ever created, including removed ones."""

    created: int = 0
    completed: int = 0
    failed: int = 0
    canceled: int = 0


class JobStore(Protocol):
    async def create(self, jobs: Sequence[StoredJob | None]) -> list[MethodResult[None]]:
        """Store and queue new jobs; an existing one is not touched (reason `DUPLICATE`)."""

    async def get(self, ids: Sequence[str]) -> list[MethodResult[StoredJob]]: ...

    async def update(self, updates: Sequence[Update]) -> list[MethodResult[None]]:
        """Overwrite jobs. Refused with JOB_UPDATE_FAILED if the new status is not allowed, another
        worker has claimed the job, or it has changed since it was read.
        """

    async def claim(self, claim: Claim) -> MethodResult[list[MethodResult[ClaimedJob]]]:
        """Up to `limit` due jobs, each for this worker alone; none: there is no work. Names take
        turns, the oldest job of each first.
        """

    async def claim_by_id(self, ids: Sequence[str], claim: Claim) -> list[MethodResult[ClaimedJob]]:
        """These jobs. Refused with ALREADY_ASSIGNED, WRONG_STATUS or RETRY_DELAY."""

    async def counts(self) -> JobCounts: ...


class JobClaims(Protocol):
    """What the worker that claimed a job does with it, and what happens if the worker is gone."""

    async def complete(self, ends: Sequence[Completion]) -> list[MethodResult[None]]: ...
    async def fail(self, ends: Sequence[Failing]) -> list[MethodResult[None]]: ...

    async def reschedule(self, ends: Sequence[Postponement]) -> list[MethodResult[None]]:
        """Success with the job in Failed, too, when it has no retry left."""

    async def release(self, held: Sequence[Held]) -> list[MethodResult[None]]:
        """Release jobs that were not started. This does not count as a retry."""

    async def heartbeat(
        self, held: Sequence[Held], lease_seconds: float = LEASE_SECONDS
    ) -> list[Pulse]:
        """Renew claims. cancel: still held, but the job is to be canceled."""

    async def cancel(self, ids: Sequence[str]) -> list[MethodResult[Cancelled]]: ...

    async def reap(self, limit: int = 100) -> list[Reaped]:
        """Bring back jobs whose claim expired; each counts as a retry. Any number of processes may
        call it at any time.
        """


class JobRows(Protocol):
    """All jobs of a store with their claims, for copying it. The stores that have this share the
    form of the rows.
    """

    async def rows(self, after: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        """(number, row) of jobs behind a number, in the order in which they were created."""

    async def names(self) -> list[tuple[Any, ...]]:
        """The last turn of each job name, and how many jobs were ever created."""

    async def fill(self, rows: Sequence[tuple[Any, ...]], names: Sequence[tuple[Any, ...]]) -> None:
        """Write both unchanged, replacing rows with the same ids and names."""


class Jobs(JobStore, JobClaims, Protocol):
    """Both."""


class TableRows(Protocol):
    """Jobs as rows. A code is `OK` or the name of the obstacle."""

    name: str

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        """OK, DUPLICATE or REFUSED."""

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        """Fields, NOT_FOUND or UNREADABLE."""

    async def update(self, rows: Sequence[tuple[Mapping[str, str], Held | None]]) -> list[str]:
        """OK, NOT_FOUND, WRONG_TYPE, CLAIMED, STALE, WRONG_STATUS."""

    async def cancel(self, ids: Sequence[str]) -> list[str]:
        """canceled, requested, NOT_FOUND, WRONG_STATUS."""

    async def counts(self) -> JobCounts: ...


class TableClaims(Protocol):
    """Claims of the rows, and what follows from a claim. Codes as in TableRows."""

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        """(id, fields) of each claimed job."""

    async def claim_by_id(
        self, ids: Sequence[str], claim: Claim, token: str
    ) -> list[tuple[str, Mapping[str, str] | str]]:
        """(id, fields), or (id, NOT_FOUND, WRONG_TYPE, ALREADY_ASSIGNED, WRONG_STATUS or
        RETRY_DELAY).
        """

    async def complete(self, ends: Sequence[Completion]) -> list[str]:
        """OK, NOT_FOUND, LOST. So do the next three."""

    async def fail(self, ends: Sequence[Failing]) -> list[str]: ...
    async def reschedule(self, ends: Sequence[Postponement]) -> list[str]: ...
    async def release(self, held: Sequence[Held]) -> list[str]: ...
    async def heartbeat(self, held: Sequence[Held], lease_seconds: float) -> list[Pulse]: ...
    async def reap(self, limit: int) -> list[Reaped]: ...


class JobTable(TableRows, TableClaims, Protocol):
    """What an adapter implements. `stores/job_results.py` makes `Jobs` of it."""
