"""Seed 002's own words about a request, told from its view and events: the row of the e-mail log,
the job's result, the statuses.

There is no second table: what stands here is read from the one record, whenever it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from gesta.domain.events import Event, Meta, Sent, SentLate
from gesta.domain.state import State

if TYPE_CHECKING:
    from gesta.engine.engine import Engine

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
    """A row of the e-mail log (R2-33).

    `ses_message_id` is the provider's id, whoever the provider is.
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
    #: Copies that were left out: how many were refused by the server or are on the suppression
    #: list.
    warnings: dict[str, int] = {}


class JobResult(msgspec.Struct, frozen=True, rename="camel"):
    """What the job came to (R2-34)."""

    ses_message_id: str
    status: Literal["SENT"]
    processed_at: str
    duration_ms: int | None
    attempt: int


class AlreadySent(msgspec.Struct, frozen=True, rename="camel"):
    """What a second delivery of a job that is done answers with (R2-27)."""

    status: Literal["ALREADY_SENT"]
    ses_message_id: str


def note(duration_ms: int, left_out: dict[str, int]) -> str:
    """What a sent letter's event says beside the provider's id: counts only, nobody's address."""
    return " ".join(
        [
            f"durationMs={duration_ms}",
            *(f"{name}={count}" for name, count in left_out.items() if count),
        ]
    )


def log_status(state: State) -> LogStatus:
    """A request's status in seed 002's words. Sent or not, nobody knows: SENT_ATTEMPT."""
    if state.status in _ENDED:
        return _ENDED[state.status]
    if state.status == "unknown":
        return "SENT_ATTEMPT"
    return "RETRY_SCHEDULED" if state.attempts > state.attempts_before else "ENQUEUED"


def log_row(state: State, history: Sequence[tuple[str, Event | None, Meta]]) -> EmailLog:
    """The row of a request."""
    sent = _sent(history)
    notes = (
        {} if sent is None else {name: int(count) for name, count in _NOTE.findall(sent[0].detail)}
    )
    duration_ms = notes.pop("durationMs", None)
    is_over = state.status == "failed"
    return EmailLog(
        state.id,
        state.tenant,
        (sent[0].target_id or None) if sent else None,
        (sent[0].provider_id or None) if sent else None,
        log_status(state),
        state.attempts,
        duration_ms,
        _iso(sent[1].occurred_at) if sent else None,
        state.reason.upper() if is_over and state.reason else None,
        (
            MAX_ATTEMPTS_REACHED
            if state.reason == "max_attempts_exceeded"
            else state.detail or state.reason
        )
        if is_over
        else None,
        notes,
    )


def job_result(state: State, history: Sequence[tuple[str, Event | None, Meta]]) -> JobResult | None:
    """What the job came to; None while it was not sent."""
    row, sent = log_row(state, history), _sent(history)
    if row.status != "SENT" or sent is None:
        return None
    return JobResult(
        row.ses_message_id or "",
        "SENT",
        _iso(sent[1].occurred_at),
        row.duration_ms,
        sent[0].attempts,
    )


def already_sent(state: State) -> AlreadySent | None:
    """The answer to a delivery of something that was sent before; None when it was not."""
    return AlreadySent("ALREADY_SENT", state.provider_id) if state.status == "sent" else None


async def email_log(engine: Engine, request_id: str, *, tenant: str = "default") -> EmailLog:
    """The row of a request; raises NotFound."""
    from gesta.flows.email.contract import NAME

    view = await engine.get(request_id, flow=NAME, tenant=tenant)
    return log_row(view.state, await engine.history(request_id, flow=NAME, tenant=tenant))


def _sent(history: Sequence[tuple[str, Event | None, Meta]]) -> tuple[Sent | SentLate, Meta] | None:
    found = [(event, meta) for _, event, meta in history if isinstance(event, Sent | SentLate)]
    return found[-1] if found else None


def _iso(at_ms: int) -> str:
    return (
        datetime.fromtimestamp(at_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
