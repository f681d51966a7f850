"""A job of a slow endpoint, and its form as 17 text fields.

Names, numbers and formats are those that .NET services with AsyncEndpoints write and read. A null
is an absent field; an adapter that has no absent fields writes an empty text.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, TypeVar

import msgspec

from gesta.domain.ids import REQUEST_ID

T = TypeVar("T")


class JobStatus(IntEnum):
    QUEUED = 100
    SCHEDULED = 200
    IN_PROGRESS = 300
    COMPLETED = 400
    FAILED = 500
    CANCELED = 600

    @property
    def text(self) -> str:
        """The name that HTTP clients see: `InProgress`."""
        return self.name.title().replace("_", "")


WAITING = frozenset({JobStatus.QUEUED, JobStatus.SCHEDULED})
TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED})
_Q, _S, _P, _C, _F, _X = JobStatus
#: Status → the statuses that may follow it. A claim also moves a job from Scheduled to InProgress.
#: A success is final.
TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    _Q: frozenset({_Q, _S, _P, _C, _F, _X}),
    _S: frozenset({_S, _Q, _P, _X}),
    _P: frozenset({_P, _S, _C, _F, _X}),
    _C: frozenset({_C}),
    _F: frozenset({_F, _Q, _S, _X}),
    _X: frozenset({_X}),
}
#: The id that .NET calls Guid.Empty.
EMPTY_ID = "00000000-0000-0000-0000-000000000000"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobError(msgspec.Struct, frozen=True):
    """Why a job failed: a code for programs and a sentence for people, never a stack."""

    code: str
    message: str


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are aware and in UTC; a store keeps microseconds."""

    id: str
    name: str
    created_at: datetime
    last_updated_at: datetime
    status: JobStatus = JobStatus.QUEUED
    headers: dict[str, list[str | None]] = {}
    route_params: dict[str, Any] = {}
    #: In the order of the URL; a name may come several times.
    query_params: list[tuple[str, list[str | None]]] = []
    payload: str = ""
    result: str | None = None
    error: JobError | None = None
    #: Attempts that have failed so far.
    retry_count: int = 0
    max_retries: int = 3
    retry_delay_until: datetime | None = None
    worker_id: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


#: Every field of a hash, in the order of the document.
FIELDS = (
    "Id",
    "Name",
    "Status",
    "Headers",
    "RouteParams",
    "QueryParams",
    "Payload",
    "Result",
    "Error",
    "RetryCount",
    "MaxRetries",
    "RetryDelayUntil",
    "WorkerId",
    "CreatedAt",
    "StartedAt",
    "CompletedAt",
    "LastUpdatedAt",
)
Fields = dict[str, str]


class _Pair(msgspec.Struct):
    """A KeyValuePair as .NET serialises it."""

    key: str
    value: list[str | None]


def job_at(now_ms: int, *, id: str, name: str, **more: Any) -> StoredJob:  # noqa: A002
    """A job that is created now."""
    now = moment(now_ms)
    return StoredJob(id=id, name=name, created_at=now, last_updated_at=now, **more)


def moment(epoch_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=epoch_ms)


def epoch_ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def is_id(text: object) -> bool:
    return isinstance(text, str) and REQUEST_ID.fullmatch(text) is not None


#: Values nested too deep, and times outside the years that Python has, are bad values, too.
_TOO_MUCH = (RecursionError, OverflowError)


def fields_of(job: StoredJob) -> Fields:
    """The fields that are not null. Raises ValueError for what cannot be read back."""
    try:
        return _fields_of(job)
    except _TOO_MUCH as error:
        raise ValueError(str(error)) from None


def job_of(fields: Mapping[str, str]) -> StoredJob:
    """The job in these fields; a writer may have left some out. Raises ValueError."""
    try:
        return _job_of(fields)
    except _TOO_MUCH as error:
        raise ValueError(str(error)) from None


def job_of_json(text: str) -> StoredJob:
    """A job that was stored as one JSON text, as before the hashes. Raises ValueError."""
    try:
        return _job_of(_fields_of_json(text))
    except _TOO_MUCH as error:
        raise ValueError(str(error)) from None


def _fields_of(job: StoredJob) -> Fields:
    # Checked here, because constructors are not.
    checked = msgspec.convert(msgspec.structs.asdict(job), StoredJob)
    pairs = [_Pair(key, values) for key, values in checked.query_params]
    found: dict[str, str | None] = {
        "Id": checked.id,
        "Name": checked.name,
        "Status": str(int(checked.status)),
        "Headers": _json(checked.headers),
        "RouteParams": _json(checked.route_params),
        "QueryParams": _json(pairs),
        "Payload": checked.payload,
        "Result": checked.result,
        "Error": None if checked.error is None else _json(checked.error),
        "RetryCount": str(checked.retry_count),
        "MaxRetries": str(checked.max_retries),
        "RetryDelayUntil": _iso(checked.retry_delay_until, "Z"),
        "WorkerId": checked.worker_id,
        "CreatedAt": _iso(checked.created_at),
        "StartedAt": _iso(checked.started_at),
        "CompletedAt": _iso(checked.completed_at),
        "LastUpdatedAt": _iso(checked.last_updated_at),
    }
    present = {name: value for name, value in found.items() if value is not None}
    for value in present.values():
        value.encode()
    return present


def _job_of(fields: Mapping[str, str]) -> StoredJob:
    if not is_id(fields.get("Id", "").lower()):
        raise ValueError("Id is not a GUID")
    created = _time(fields, "CreatedAt")
    updated = _time(fields, "LastUpdatedAt") or created
    if created is None or updated is None:
        raise ValueError("CreatedAt is missing")
    worker = fields.get("WorkerId") or None
    query = _part(fields, "QueryParams", list[dict[str, Any]], [])
    return StoredJob(
        id=fields["Id"].lower(),
        name=fields.get("Name", ""),
        status=JobStatus(int(fields.get("Status") or JobStatus.QUEUED)),
        headers=_part(fields, "Headers", dict[str, list[str | None]], {}),
        route_params=_part(fields, "RouteParams", dict[str, Any], {}),
        query_params=[_pair(one) for one in query],
        payload=fields.get("Payload", ""),
        result=fields.get("Result"),
        error=_error(fields.get("Error")),
        retry_count=int(fields.get("RetryCount") or 0),
        max_retries=int(fields.get("MaxRetries") or 0),
        retry_delay_until=_time(fields, "RetryDelayUntil"),
        worker_id=worker if worker is None else worker.lower(),
        created_at=created,
        started_at=_time(fields, "StartedAt"),
        completed_at=_time(fields, "CompletedAt"),
        last_updated_at=updated,
    )


def _fields_of_json(text: str) -> Fields:
    found = msgspec.json.decode(text, type=dict[str, Any])
    names = {name.lower(): name for name in FIELDS}
    fields: Fields = {}
    for key, value in found.items():
        name = names.get(key.lower())
        if name is None or value is None:
            continue
        fields[name] = value if isinstance(value, str) else _json(value)
    if fields.get("Status", "").isalpha():
        by_text = {one.text.lower(): one for one in JobStatus}
        fields["Status"] = str(int(by_text.get(fields["Status"].lower(), 0)))
    return fields


def error_text(code: str, message: str) -> str:
    """An error in the form of the field."""
    return _json(JobError(code, message))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _iso(at: datetime | None, zone: str = "+00:00") -> str | None:
    """.NET's format "O": seven digits of a second."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    return f"{at.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%S.%f'):0>26}0{zone}"


def _time(fields: Mapping[str, str], name: str) -> datetime | None:
    text = fields.get(name)
    if not text:
        return None
    at = datetime.fromisoformat(text)
    # .NET writes no zone for a time of unspecified kind; AsyncEndpoints means UTC.
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _part(fields: Mapping[str, str], name: str, kind: type[T], empty: T) -> T:
    text = fields.get(name)
    if not text:
        return empty
    found: T | None = msgspec.json.decode(text, type=kind | None)
    return empty if found is None else found


def _pair(found: Mapping[str, Any]) -> tuple[str, list[str | None]]:
    lower = {key.lower(): value for key, value in found.items()}
    return msgspec.convert(
        (lower.get("key"), lower.get("value") or []), tuple[str, list[str | None]]
    )


def _error(text: str | None) -> JobError | None:
    if not text:
        return None
    found = msgspec.json.decode(text, type=dict[str, Any])
    lower = {key.lower(): value for key, value in found.items()}
    return JobError(str(lower.get("code") or ""), str(lower.get("message") or ""))


#: How many jobs of one name are claimed in a row while jobs of other names wait.
IN_A_ROW = 3


def rotate(
    due: Mapping[str, Sequence[T]],
    turns: Mapping[str, int],
    limit: int,
    urgent: Collection[str] = (),
) -> tuple[list[T], list[str]]:
    """Which of the due jobs are claimed, and the names in the order of their last turn.

    Jobs of urgent names come before all others. Among the rest, and among those, the name that has
    waited longest for a turn is first. A turn is up to IN_A_ROW jobs.
    """
    chosen: list[T] = []
    served: list[str] = []
    for is_urgent in (True, False):
        band = (name for name in due if due[name] and (name in urgent) is is_urgent)
        line = sorted(band, key=lambda name: (turns.get(name, 0), name))
        left = {name: list(due[name]) for name in line}
        while line and len(chosen) < limit:
            name = line.pop(0)
            count = min(IN_A_ROW, limit - len(chosen))
            chosen += left[name][:count]
            left[name] = left[name][count:]
            served = [*(one for one in served if one != name), name]
            if left[name]:
                line.append(name)
    return chosen, served
