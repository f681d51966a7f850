"""Rows of stored jobs in the SQL stores, and what each operation makes of one.

The functions are pure: an adapter reads rows under a lock, applies them and writes the result.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from gesta.domain.stored_job import (
    TERMINAL,
    TRANSITIONS,
    WAITING,
    Fields,
    JobStatus,
    error_text,
    fields_of,
    job_of,
    moment,
)
from gesta.ports.job_store import KEEP_SECONDS, Claim, Completion, Failing, Held, Postponement
from gesta.stores.job_codes import ADOPTED, CONFISCATED_SECONDS, WORKER_LOST


class JobRow(NamedTuple):
    """The columns of a row, in the order in which the statements list them."""

    id: str
    name: str
    status: int
    worker_id: str | None
    claim: str | None
    lease_until: int | None
    is_canceled: bool
    due_ms: int
    delay_us: int | None
    started_us: int | None
    updated_us: int
    expires_ms: int | None
    body: bytes

    @property
    def fields(self) -> Fields:
        return msgspec.json.decode(self.body, type=Fields)


WIDTH = len(JobRow._fields)
#: What is counted of each name, in the order of the columns.
COUNTED = ("created", "completed", "failed", "canceled")
#: Ended jobs that one call removes at most.
FORGET = 1_000

#: What an operation answers, and the row to write; None: nothing changes.
Change = tuple[str, JobRow | None]
Decide = Callable[[JobRow, int], Change]

_SEPARATE = (
    "Id",
    "Name",
    "Status",
    "WorkerId",
    "RetryDelayUntil",
    "StartedAt",
    "LastUpdatedAt",
)


def row_of(fields: Mapping[str, str], now_ms: int) -> JobRow:
    """A new row."""
    job = job_of(fields)
    delay = _us(job.retry_delay_until)
    return JobRow(
        id=job.id,
        name=job.name,
        status=int(job.status),
        worker_id=job.worker_id,
        claim=None,
        lease_until=now_ms + CONFISCATED_SECONDS * 1000
        if job.status is JobStatus.IN_PROGRESS
        else None,
        is_canceled=False,
        due_ms=now_ms if delay is None else delay // 1000,
        delay_us=delay,
        started_us=_us(job.started_at),
        updated_us=_us(job.last_updated_at) or 0,
        expires_ms=_expiry(now_ms) if job.status in TERMINAL else None,
        body=_body(fields),
    )


def fields_of_row(row: JobRow) -> Fields:
    """The 17 fields, without those that are null."""
    separate = msgspec.structs.replace(
        job_of({**row.fields, "Id": row.id}),
        name=row.name,
        status=JobStatus(row.status),
        worker_id=row.worker_id,
        retry_delay_until=_time(row.delay_us),
        started_at=_time(row.started_us),
        last_updated_at=_time(row.updated_us),
    )
    return fields_of(separate)


def is_gone(row: JobRow, now_ms: int) -> bool:
    return row.expires_ms is not None and row.expires_ms <= now_ms


def claimed(row: JobRow, claim: Claim, token: str, now_ms: int) -> JobRow:
    at = _stamp(row, now_ms)
    return row._replace(
        status=int(JobStatus.IN_PROGRESS),
        worker_id=claim.worker_id,
        claim=claim_text(claim.worker_id, token),
        lease_until=now_ms + round(claim.lease_seconds * 1000),
        is_canceled=False,
        delay_us=None,
        started_us=at,
        updated_us=at,
    )


def claim_text(worker_id: str, token: str) -> str:
    return f"{worker_id} {token}"


def claim_by_id(claim: Claim, token: str) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        if row.status == JobStatus.IN_PROGRESS:
            return "ALREADY_ASSIGNED", None
        if row.status not in WAITING:
            return "WRONG_STATUS", None
        if row.delay_us is not None and row.delay_us > now_ms * 1000:
            return "RETRY_DELAY", None
        return "OK", claimed(row, claim, token, now_ms)

    return decide


def update(fields: Mapping[str, str], held: Held | None) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        new = row_of(fields, now_ms)
        is_busy = row.status == JobStatus.IN_PROGRESS
        if is_busy and not _holds(row, held) and (row.claim is not None or held is not None):
            return "CLAIMED", None
        if row.updated_us != new.updated_us:
            return "STALE", None
        if JobStatus(new.status) not in TRANSITIONS[JobStatus(row.status)]:
            return "WRONG_STATUS", None
        if is_busy and new.status == JobStatus.IN_PROGRESS:
            kept = {"claim": row.claim, "lease_until": row.lease_until}
            new = new._replace(**kept, is_canceled=row.is_canceled)  # type: ignore[arg-type]
        return "OK", new._replace(updated_us=_stamp(row, now_ms))

    return decide


def complete(end: Completion) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        return _finished(row, now_ms, JobStatus.COMPLETED, {"Result": end.result, "Error": None})

    return _fenced(end.held, decide)


def fail(end: Failing) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        error = error_text(end.error.code, end.error.message)
        return _finished(row, now_ms, JobStatus.FAILED, {"Error": error})

    return _fenced(end.held, decide)


def reschedule(end: Postponement) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        error = {"Error": error_text(end.error.code, end.error.message)}
        if row.is_canceled:
            return _finished(row, now_ms, JobStatus.CANCELED, error)
        retries = _retries(row)
        if retries is None:
            return _finished(row, now_ms, JobStatus.FAILED, error)
        due_ms = now_ms + round(end.delay_seconds * 1000)
        return _again(row, now_ms, due_ms, error | retries, delay_us=due_ms * 1000)

    return _fenced(end.held, decide)


def release(held: Held) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        if row.is_canceled:
            return _finished(row, now_ms, JobStatus.CANCELED, {})
        # Ahead of the jobs that came after it was claimed.
        due_ms = now_ms if row.started_us is None else row.started_us // 1000
        return _again(row, now_ms, due_ms, {})

    return _fenced(held, decide)


def heartbeat(held: Held, lease_seconds: float) -> Decide:
    def decide(row: JobRow, now_ms: int) -> Change:
        until = now_ms + round(lease_seconds * 1000)
        return "cancel" if row.is_canceled else "held", row._replace(lease_until=until)

    fenced = _fenced(held, decide)

    def beat(row: JobRow, now_ms: int) -> Change:
        code, new = fenced(row, now_ms)
        return "lost" if new is None else code, new

    return beat


def cancel(row: JobRow, now_ms: int) -> Change:
    status = JobStatus(row.status)
    if status is JobStatus.CANCELED:
        return "canceled", None
    if status is JobStatus.IN_PROGRESS and row.claim is not None:
        return "requested", row._replace(is_canceled=True)
    if status in WAITING or status is JobStatus.FAILED:
        return "canceled", _finished(row, now_ms, JobStatus.CANCELED, {})[1]
    return "WRONG_STATUS", None


def reap(row: JobRow, now_ms: int) -> Change:
    if row.is_canceled:
        return "canceled", _finished(row, now_ms, JobStatus.CANCELED, {})[1]
    if row.claim is not None and f" {ADOPTED}" in row.claim:
        return "again", _again(row, now_ms, now_ms, {})[1]
    retries = _retries(row)
    if retries is None:
        error = {"Error": error_text(*WORKER_LOST)}
        return "failed", _finished(row, now_ms, JobStatus.FAILED, error)[1]
    return "again", _again(row, now_ms, now_ms, retries)[1]


def created(
    rows: Sequence[JobRow], written: Iterable[str]
) -> tuple[list[str], dict[str, Counter[str]]]:
    """OK or DUPLICATE for each, and how many of each name are new. `written`: ids of new rows."""
    new = Counter(written)
    codes: list[str] = []
    names: dict[str, Counter[str]] = {}
    for row in rows:
        is_new = new[row.id] > 0
        # The same id again in the same call is a duplicate.
        new[row.id] = 0
        codes.append("OK" if is_new else "DUPLICATE")
        if is_new:
            names.setdefault(row.name, Counter())["created"] += 1
    return codes, names


def applied(
    rows: Iterable[JobRow], changes: Sequence[tuple[str, Decide]], now_ms: int
) -> tuple[list[str], list[tuple[JobRow, JobRow]]]:
    """The answer to each change, one after the other, and the rows before and after."""
    found = {row.id: row for row in rows if not is_gone(row, now_ms)}
    codes, made = [], []
    for job_id, decide in changes:
        row = found.get(job_id)
        if row is None:
            codes.append("NOT_FOUND")
            continue
        code, new = decide(row, now_ms)
        codes.append(code)
        if new is not None:
            made.append((row, new))
            found[job_id] = new
    return codes, made


def found_fields(
    rows: Iterable[JobRow], ids: Sequence[str], now_ms: int
) -> list[Mapping[str, str] | str]:
    """The fields of each id, or NOT_FOUND."""
    found = {row.id: fields_of_row(row) for row in rows if not is_gone(row, now_ms)}
    return [found.get(one, "NOT_FOUND") for one in ids]


def ended(changes: Iterable[tuple[JobRow, JobRow]]) -> dict[str, Counter[str]]:
    """How many jobs of each name ended, and how: name → completed, failed, canceled."""
    counts: dict[str, Counter[str]] = {}
    for before, after in changes:
        status = JobStatus(after.status)
        if status in TERMINAL and before.status != after.status:
            counts.setdefault(after.name, Counter())[status.name.lower()] += 1
    return counts


def _fenced(held: Held, decide: Decide) -> Decide:
    def fenced(row: JobRow, now_ms: int) -> Change:
        return decide(row, now_ms) if _holds(row, held) else ("LOST", None)

    return fenced


def _holds(row: JobRow, held: Held | None) -> bool:
    return (
        held is not None
        and row.status == JobStatus.IN_PROGRESS
        and row.claim == claim_text(held.worker_id, held.token)
    )


def _finished(
    row: JobRow, now_ms: int, status: JobStatus, changed: Mapping[str, str | None]
) -> Change:
    at = _stamp(row, now_ms)
    fields = _changed(row, {**changed, "CompletedAt": _iso(at)})
    return "OK", row._replace(
        status=int(status),
        claim=None,
        lease_until=None,
        is_canceled=False,
        updated_us=at,
        expires_ms=_expiry(now_ms),
        body=_body(fields),
    )


def _again(
    row: JobRow,
    now_ms: int,
    due_ms: int,
    changed: Mapping[str, str | None],
    delay_us: int | None = None,
) -> Change:
    return "OK", row._replace(
        status=int(JobStatus.SCHEDULED),
        worker_id=None,
        claim=None,
        lease_until=None,
        due_ms=due_ms,
        delay_us=delay_us,
        updated_us=_stamp(row, now_ms),
        body=_body(_changed(row, changed)),
    )


def _retries(row: JobRow) -> dict[str, str | None] | None:
    """One more failed attempt; None: the job has no retry left."""
    fields = row.fields
    count = int(fields.get("RetryCount") or 0) + 1
    return None if count > int(fields.get("MaxRetries") or 0) else {"RetryCount": str(count)}


def _changed(row: JobRow, changed: Mapping[str, str | None]) -> Fields:
    both = {**row.fields, **changed}
    return {name: value for name, value in both.items() if value is not None}


def _body(fields: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(
        {name: value for name, value in fields.items() if name not in _SEPARATE}
    )


def _stamp(row: JobRow, now_ms: int) -> int:
    """Now, and always later than the last change, which makes it a version."""
    return max(now_ms * 1000, row.updated_us + 1)


def _expiry(now_ms: int) -> int:
    return now_ms + KEEP_SECONDS * 1000


def _us(at: Any) -> int | None:
    return None if at is None else (at - moment(0)) // timedelta(microseconds=1)


def _time(us: int | None) -> Any:
    return None if us is None else moment(0) + timedelta(microseconds=us)


def _iso(us: int) -> str:
    return f"{_time(us).strftime('%Y-%m-%dT%H:%M:%S.%f')}0+00:00"
