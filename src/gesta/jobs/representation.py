"""A job as HTTP clients see it."""

from datetime import datetime
from typing import Literal, cast

import msgspec

from gesta.domain.state import State
from gesta.domain.stored_job import JobError, JobStatus, moment

#: `Unknown`: the outcome of the handler is unknown, and a person has to resolve the job.
StatusText = Literal[
    "Queued", "Scheduled", "InProgress", "Completed", "Failed", "Canceled", "Unknown"
]


class JobRepresentation(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    name: str
    status: StatusText
    retry_count: int
    max_retries: int
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    last_updated_at: datetime
    #: JSON as the handler returned it.
    result: msgspec.Raw
    error: JobError | None


def status_of(state: State) -> JobStatus:
    if state.status == "completed":
        return JobStatus.COMPLETED
    if state.status == "cancelled":
        return JobStatus.CANCELED
    if state.is_terminal:
        return JobStatus.FAILED
    if state.started is not None or state.waits_for_a_person:
        return JobStatus.IN_PROGRESS
    return JobStatus.SCHEDULED if state.attempts > state.attempts_before else JobStatus.QUEUED


def retries_of(state: State) -> int:
    """Attempts after the first one that have ended, or failed attempts while it goes on."""
    made = state.attempts - state.attempts_before
    is_over = state.is_terminal or state.waits_for_a_person
    return max(made - 1, 0) if is_over else made


def error_of(state: State) -> JobError | None:
    """Code and message for clients. They never see the text of an unexpected exception."""
    if state.status == "completed" or not state.reason:
        return None
    if state.reason in ("unexpected_error", "lease_lost", "timeout"):
        return JobError(state.reason, "The handler ended unexpectedly")
    return JobError(state.reason, state.detail)


def representation(state: State, result: bytes | None, max_retries: int) -> JobRepresentation:
    text = "Unknown" if state.waits_for_a_person else status_of(state).text
    return JobRepresentation(
        id=state.id,
        name=state.flow,
        status=cast("StatusText", text),
        retry_count=retries_of(state),
        max_retries=max_retries,
        created_at=moment(state.created_at),
        started_at=None if state.first_attempt_at is None else moment(state.first_attempt_at),
        completed_at=moment(state.updated_at) if state.is_terminal else None,
        last_updated_at=moment(state.updated_at),
        result=msgspec.Raw(result or b"null"),
        error=error_of(state),
    )
