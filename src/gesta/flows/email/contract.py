"""The job `email:send`, `{data, opts}`, and its names for the state of a request.

A job is validated strictly and becomes a Message and options of a request. `outboxId` is the
request, `requestId` the correlation, `companyId` the tenant (X-7, X-13). `attempt` and `enqueuedAt`
are checked and ignored: attempts are counted from events, and the engine knows when it accepted a
request (S2-5, S2-29).

The row of the e-mail log, the job's result and the statuses are derived from the request's view and
events. There is no second table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from gesta.domain.durations import iso
from gesta.domain.events import Event, Meta, Sent, SentLate
from gesta.domain.state import State
from gesta.errors import InvalidRequest
from gesta.flows.email.message import NAME, Message, Recipient
from gesta.flows.email.rules import (
    NOT_A_UUID,
    RECIPIENT_EMAIL,
    RECIPIENT_IDENTIFIER,
    UUID,
    errors_of,
)
from gesta.flows.validation import field_errors
from gesta.intake.job_contract import JobContract
from gesta.intake.submit_options import Options
from gesta.ports.foreign_jobs import ForeignJob

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.engine.request import Request

EMAIL_JOB_CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "QUEUE_NAME": "email:send",
        "DEFAULT_TTL": 86_400_000,
        "DEFAULT_PRIORITY": 5,
        "MAX_ATTEMPTS": 5,
        "BACKOFF_DELAYS": (1, 5, 30, 120, 600),
        "DLQ_TTL": 604_800_000,
    }
)
TTL_MS_MAX: Final = 86_400_000
REQUEST_ID_LENGTH_MAX: Final = 128
#: ISO 8601 with a date, a time and a zone. Python's parser accepts more than other languages do.
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


WireT = TypeVar("WireT", bound="_Wire")


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """An optional field may be null."""


class JobData(_Wire, frozen=True, kw_only=True):
    outbox_id: str
    company_id: str
    request_id: str
    to: str
    cc: list[str] | None = None
    bcc: list[str] | None = None
    subject: str
    html_ref: str
    reply_to: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    recipient: Recipient
    attempt: int
    enqueued_at: str


class JobOptions(_Wire, frozen=True, kw_only=True):
    job_id: str
    ttl: int = TTL_MS_MAX
    priority: int | None = None
    delay: int | None = None
    remove_on_complete: bool | None = None
    remove_on_fail: bool | None = None


class Asked(msgspec.Struct, frozen=True):
    """A job as message and options."""

    message: Message
    tenant: str
    correlation_id: str
    priority: int
    #: The request is due this much later.
    delay_ms: int
    #: Counted from when it is due.
    ttl_ms: int


def read_job(job: object) -> Asked:
    """Raises InvalidRequest with every error; unknown keys are errors (S2-24)."""
    if not isinstance(job, dict):
        raise InvalidRequest(NAME, {"job": "must be a JSON object with data and opts"})
    errors = {name: "unknown field" for name in job if name not in ("data", "opts")}
    errors |= {name: "missing" for name in ("data", "opts") if name not in job}
    data, data_errors = _read(JobData, job.get("data"), "data")
    opts, opts_errors = _read(JobOptions, job.get("opts"), "opts")
    if "data" in job:
        errors |= data_errors
    if "opts" in job:
        errors |= opts_errors
    if data is None or opts is None or errors:
        raise InvalidRequest(NAME, errors)
    message = _message(data)
    errors |= {f"data.{name}": error for name, error in errors_of(message).items()}
    errors |= _data_errors(data) | _opts_errors(opts, data)
    if errors:
        raise InvalidRequest(NAME, errors)
    delay_ms = opts.delay or 0
    priority = EMAIL_JOB_CONFIG["DEFAULT_PRIORITY"] if opts.priority is None else opts.priority
    # The engine counts the time to live from when a request is due, the job from when it was
    # enqueued.
    return Asked(
        message,
        data.company_id.strip().lower(),
        data.request_id,
        priority,
        delay_ms,
        opts.ttl - delay_ms,
    )


async def submit_job(engine: Engine, job: object) -> Request:
    """Accept a job.

    The same outboxId with the same content answers `duplicate`, with other content raises Conflict
    (S2-3).
    """
    asked = read_job(job)
    due = None
    if asked.delay_ms:
        due = datetime.fromtimestamp(engine.pipeline.runtime.now_ms() / 1000, UTC) + timedelta(
            milliseconds=asked.delay_ms
        )
    return await engine.submit(
        asked.message,
        tenant=asked.tenant,
        deliver_at=due,
        ttl=timedelta(milliseconds=asked.ttl_ms),
        priority=asked.priority,
        correlation_id=asked.correlation_id,
    )


def _read(kind: type[WireT], given: object, where: str) -> tuple[WireT | None, dict[str, str]]:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        return None, {where: "must be a JSON object"}
    try:
        return msgspec.convert(given, kind), {}
    except msgspec.ValidationError:
        errors = {f"{where}.{name}": error for name, error in field_errors(kind, given).items()}
    # The nested object has its own errors.
    inner = given.get("recipient") if kind is JobData else None
    if isinstance(inner, dict):
        errors.pop(f"{where}.recipient", None)
        errors |= {
            f"{where}.recipient.{name}": error
            for name, error in field_errors(Recipient, inner).items()
        }
    return None, errors


def _message(data: JobData) -> Message:
    return Message(
        data.to,
        data.subject,
        data.html_ref,
        cc=data.cc or [],
        bcc=data.bcc or [],
        reply_to=data.reply_to,
        headers=data.headers or {},
        tags=data.tags or [],
        recipient=data.recipient,
        outbox_id=data.outbox_id,
    )


def _data_errors(data: JobData) -> dict[str, str]:
    errors: dict[str, str] = {}
    if not UUID.fullmatch(data.company_id.lower()):
        errors["data.companyId"] = NOT_A_UUID
    if not 0 < len(data.request_id) <= REQUEST_ID_LENGTH_MAX or not data.request_id.isprintable():
        errors["data.requestId"] = f"1 to {REQUEST_ID_LENGTH_MAX} printable characters"
    if not 1 <= data.attempt <= EMAIL_JOB_CONFIG["MAX_ATTEMPTS"]:
        errors["data.attempt"] = f"must be from 1 to {EMAIL_JOB_CONFIG['MAX_ATTEMPTS']}"
    if not _is_time(data.enqueued_at):
        errors["data.enqueuedAt"] = (
            "must be a time in ISO 8601 with its zone, for instance 2026-01-31T12:00:00.000Z"
        )
    return errors


def _is_time(text: str) -> bool:
    if not _ISO.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _opts_errors(opts: JobOptions, data: JobData) -> dict[str, str]:
    errors: dict[str, str] = {}
    if opts.job_id.lower() != data.outbox_id.lower():
        errors["opts.jobId"] = "must be the outboxId"
    if not 0 < opts.ttl <= TTL_MS_MAX:
        errors["opts.ttl"] = f"milliseconds, from 1 to {TTL_MS_MAX}"
    if opts.priority is not None and not 1 <= opts.priority <= 10:
        errors["opts.priority"] = "a whole number from 1 (most urgent) to 10"
    if opts.delay is not None and not 0 <= opts.delay < max(opts.ttl, 1):
        errors["opts.delay"] = (
            "milliseconds, not negative and less than ttl: it would expire before it is due"
        )
    return errors


#: Options of BullMQ itself beside those of the contract. gesta decides about attempts and waits.
_BULLMQ_OPTIONS = frozenset(
    """attempts backoff lifo timestamp keepLogs stackTraceLimit sizeLimit deduplication de debounce
    repeat repeatJobKey prevMillis parent telemetry tm kl fpof cpof idof rdof
    failParentOnFailure continueParentOnFailure ignoreDependencyOnFailure
    removeDependencyOnFailure""".split()
)


def read_stored_job(
    data: Mapping[str, Any], job: ForeignJob, now_ms: int
) -> tuple[Message, Options]:
    """A job as BullMQ stores it. Raises InvalidRequest.

    Its id is BullMQ's own. BullMQ has waited for its delay, and its time to live is counted from
    when it was put (S2-2). How many finished jobs are kept is BullMQ's affair.
    """
    opts = {name: value for name, value in job.opts.items() if name not in _BULLMQ_OPTIONS}
    for name in ("removeOnComplete", "removeOnFail"):
        if not isinstance(opts.get(name), bool):
            opts.pop(name, None)
    # BullMQ's 0 is "none".
    if opts.get("priority") == 0:
        del opts["priority"]
    asked = read_job({"data": dict(data), "opts": opts | {"jobId": job.id}})
    age_ms = max(0, now_ms - job.timestamp_ms) if job.timestamp_ms else 0
    left_ms = asked.ttl_ms + asked.delay_ms - age_ms
    return asked.message, Options(
        asked.message.outbox_id,
        asked.tenant,
        # Too late already: it expires by the rules, and with a record.
        ttl=timedelta(milliseconds=max(1, left_ms)),
        priority=asked.priority,
        correlation_id=asked.correlation_id,
    )


def job_message(errors: Mapping[str, str]) -> str:
    """All errors of a job; rules V6 and V7 word for word."""
    return "; ".join(
        error if error in (RECIPIENT_EMAIL, RECIPIENT_IDENTIFIER) else f"{name}: {error}"
        for name, error in errors.items()
    )


MAX_ATTEMPTS_REACHED = "Max attempts reached"
LogStatus = Literal[
    "ENQUEUED", "RETRY_SCHEDULED", "SENT_ATTEMPT", "SENT", "FAILED", "EXPIRED", "CANCELLED"
]
_NOTE = re.compile(r"\b(durationMs|ccRefused|bccRefused|ccSuppressed|bccSuppressed)=(\d+)\b")
_ENDED: dict[str, LogStatus] = {
    "sent": "SENT",
    "failed": "FAILED",
    "expired": "EXPIRED",
    "cancelled": "CANCELLED",
}


class EmailLog(msgspec.Struct, frozen=True, rename="camel"):
    """A row of the e-mail log (R2-33). `ses_message_id` is the provider's id, also of other
    providers.
    """

    outbox_id: str
    company_id: str
    recipient_id: str | None
    ses_message_id: str | None
    status: LogStatus
    attempts: int
    duration_ms: int | None = None
    sent_at: str | None = None
    error_code: str | None = None
    error_reason: str | None = None
    #: How many copies the server refused, or the suppression list excluded.
    warnings: dict[str, int] = {}


class JobResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a job (R2-34)."""

    ses_message_id: str
    status: Literal["SENT"]
    processed_at: str
    duration_ms: int | None
    attempt: int


class AlreadySent(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a second delivery of a job that was sent (R2-27)."""

    status: Literal["ALREADY_SENT"]
    ses_message_id: str


def note(duration_ms: int, left_out: dict[str, int]) -> str:
    """The detail of a sent e-mail's event: counts only, no address."""
    return " ".join(
        [
            f"durationMs={duration_ms}",
            *(f"{name}={count}" for name, count in left_out.items() if count),
        ]
    )


def log_status(state: State) -> LogStatus:
    """A request's status by the contract's names. An unknown outcome is SENT_ATTEMPT."""
    if state.status in _ENDED:
        return _ENDED[state.status]
    if state.status == "unknown":
        return "SENT_ATTEMPT"
    return "RETRY_SCHEDULED" if state.attempts > state.attempts_before else "ENQUEUED"


def log_row(state: State, history: Sequence[tuple[str, Event | None, Meta]]) -> EmailLog:
    sent = _sent(history)
    notes = (
        {} if sent is None else {name: int(count) for name, count in _NOTE.findall(sent[0].detail)}
    )
    duration_ms = notes.pop("durationMs", None)
    is_over = state.status == "failed"
    return EmailLog(
        outbox_id=state.id,
        company_id=state.tenant,
        recipient_id=(sent[0].target_id or None) if sent else None,
        ses_message_id=(sent[0].provider_id or None) if sent else None,
        status=log_status(state),
        attempts=state.attempts,
        duration_ms=duration_ms,
        sent_at=iso(sent[1].occurred_at) if sent else None,
        error_code=state.reason.upper() if is_over and state.reason else None,
        error_reason=(
            MAX_ATTEMPTS_REACHED
            if state.reason == "max_attempts_exceeded"
            else state.detail or state.reason
        )
        if is_over
        else None,
        warnings=notes,
    )


def job_result(state: State, history: Sequence[tuple[str, Event | None, Meta]]) -> JobResult | None:
    """None while it was not sent."""
    row, sent = log_row(state, history), _sent(history)
    if row.status != "SENT" or sent is None:
        return None
    return JobResult(
        row.ses_message_id or "",
        "SENT",
        iso(sent[1].occurred_at),
        row.duration_ms,
        sent[0].attempts,
    )


def failure_text(state: State) -> str:
    """Why the e-mail of a job was not sent."""
    if state.status != "failed":
        return log_status(state)
    if state.reason == "max_attempts_exceeded":
        return MAX_ATTEMPTS_REACHED
    return f"{state.reason}: {state.detail}" if state.detail else state.reason


def already_sent(state: State) -> AlreadySent | None:
    """None when it was not sent."""
    return AlreadySent("ALREADY_SENT", state.provider_id) if state.status == "sent" else None


#: How a Node service's complete jobs are adopted.
JOB_CONTRACT = JobContract(
    id_field="outboxId",
    read=read_stored_job,
    message=job_message,
    result=job_result,
    repeated=already_sent,
    failure=failure_text,
)


async def email_log(engine: Engine, request_id: str, *, tenant: str = "default") -> EmailLog:
    """The row of a request; raises NotFound."""
    view = await engine.get(request_id, flow=NAME, tenant=tenant)
    return log_row(view.state, await engine.history(request_id, flow=NAME, tenant=tenant))


def _sent(history: Sequence[tuple[str, Event | None, Meta]]) -> tuple[Sent | SentLate, Meta] | None:
    found = [(event, meta) for _, event, meta in history if isinstance(event, Sent | SentLate)]
    return found[-1] if found else None
