"""The reports of external workers (recordSent, recordFailed, recordUnknown) as outcomes."""

from typing import Annotated, assert_never

import msgspec

from gesta.domain.events import Actor
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.money import Money
from gesta.domain.outcome import Done, Movement, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import LONGEST_WAIT_SECONDS
from gesta.domain.state import State
from gesta.domain.transaction.funds import funds_of
from gesta.worker.outcome_sanitizer import NAME_LENGTH_MAX, REASON_LENGTH_MAX

#: Texts are scrubbed and cut before they are stored; more than this is not even read.
TEXT_LENGTH_MAX = 4_000
ROLES_MAX = 50

Name = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_LENGTH_MAX)]
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_LENGTH_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_LENGTH_MAX)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_SECONDS)]


class Spoken(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    forbid_unknown_fields=True,
    kw_only=True,
    tag_field="type",
    omit_defaults=True,
):
    """The fields of every report. `attempts` is the worker's count; ours decides on retries."""

    attempts: Count
    correlation_id: Id | None = None
    causation_id: Id | None = None
    actor: Actor | None = None


class RecordSent(Spoken, frozen=True, kw_only=True, tag="recordSent"):
    """The effect happened."""

    provider_message_id: Name | None = None
    target_id: Name | None = None


class RecordCompleted(Spoken, frozen=True, kw_only=True, tag="recordCompleted"):
    """A task or an operation of a transaction was done.

    `amount` is exact, never a float. It must equal the requested amount.
    """

    provider_txn_id: Name | None = None
    amount: Money | None = None


class RecordFailed(Spoken, frozen=True, kw_only=True, tag="recordFailed"):
    """The effect definitely did not happen.

    `retryable`: it is leased again by the flow's policy, not before `retry_after_sec`.
    """

    reason: Reason
    retryable: bool = False
    last_error: Text | None = None
    retry_after_sec: Seconds | None = None


class RecordUnknown(Spoken, frozen=True, kw_only=True, tag="recordUnknown"):
    """The effect may have happened: the flow's `on_unknown` decides what follows."""

    reason: Reason
    last_error: Text | None = None
    retry_after_sec: Seconds | None = None


ExternalReport = RecordSent | RecordCompleted | RecordFailed | RecordUnknown


def outcome_of(report: ExternalReport, attempt: int) -> Outcome:
    """The report as an outcome of our attempt of this number.

    A worker may restart its count, or try several times under one lease. If its count differs from
    ours, both are recorded.
    """
    said = "" if report.attempts == attempt else f"the worker counts {report.attempts} attempts"
    match report:
        case RecordSent():
            return Done(report.provider_message_id or "", report.target_id or "", said)
        case RecordCompleted():
            amount = None if report.amount is None else report.amount.minor
            return Done(report.provider_txn_id or "", detail=said, movement=Movement(amount))
        case RecordFailed(retryable=True):
            return Retry(
                report.reason, _joined(report.last_error, said), report.retry_after_sec or 0.0
            )
        case RecordFailed():
            return Rejected(report.reason, _joined(report.last_error, said))
        case RecordUnknown():
            return Unknown(
                report.reason, _joined(report.last_error, said), report.retry_after_sec or 0.0
            )
        case _:
            assert_never(report)


def misfit(report: ExternalReport, state: State) -> dict[str, str]:
    """What is wrong with a report about this request: its kind, or its amount."""
    if lifecycle_of(state.flow).stream != "transaction":
        has_amount = isinstance(report, RecordCompleted) and report.amount is not None
        return {"amount": "this request moves no money"} if has_amount else {}
    if isinstance(report, RecordSent):
        return {"type": "report a transaction with recordCompleted"}
    if isinstance(report, RecordCompleted) and report.amount is not None:
        funds = funds_of(state)
        asked = funds.money(funds.pending)
        if report.amount != asked:
            return {"amount": f"amount_mismatch: {asked} was asked for, not {report.amount}"}
    return {}


def errors_of(report: ExternalReport) -> dict[str, str]:
    """What is wrong with a report beyond the types of its fields."""
    if report.actor is not None and (
        not 1 <= len(report.actor.user_id) <= KEY_LENGTH_MAX
        or len(report.actor.roles) > ROLES_MAX
        or any(len(role) > KEY_LENGTH_MAX for role in report.actor.roles)
    ):
        return {
            "actor": f"userId of 1 to {KEY_LENGTH_MAX} characters, and at most {ROLES_MAX} roles"
        }
    return {}


def _joined(*texts: str | None) -> str:
    return "; ".join(text for text in texts if text)
