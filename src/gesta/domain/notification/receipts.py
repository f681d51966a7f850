"""Delivery receipts: what a provider reports about a message that it accepted.

They are facts beside the status, and evidence that the message was sent.
"""

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import RecordReceipt
from gesta.domain.operation import Operation
from gesta.domain.operation.decide import done
from gesta.domain.outcome import Done
from gesta.domain.state import State

#: An e-mail has eleven recipients at most, and few receipts for each.
REPORTS_MAX = 50


def decide_receipt(
    state: State, command: RecordReceipt, _: object, operation: Operation
) -> list[e.Event]:
    """The receipt, and the success if that is not yet recorded. A repeated receipt is ignored."""
    if command.report in state.reports or len(state.reports) >= REPORTS_MAX:
        return []
    receipt = _receipt(command)
    detail = f"the provider reported on it: {command.kind}"
    if state.phase == "unknown":
        resolved = e.OutcomeResolved(
            "executed", "provider", detail, command.provider_id, operation=operation.name
        )
        return [resolved, receipt]
    # An attempt without a recorded end is running, or was lost.
    attempt = state.attempts if state.is_terminal or state.in_doubt else state.attempts + 1
    outcome = Done(command.provider_id, detail=detail)
    return [*done(state, outcome, attempt, operation), receipt]


def _receipt(command: RecordReceipt) -> e.Event:
    report, provider_id, at = command.report, command.provider_id, command.reported_at
    match command.kind:
        case "delivered":
            return e.Delivered(report, provider_id, at)
        case "bounced":
            return e.Bounced(report, command.reason, command.permanent, provider_id, at)
        case "complained":
            return e.Complained(report, command.reason, provider_id, at)


def fold_receipt(
    state: State, event: e.Delivered | e.Bounced | e.Complained, version: int, at: int
) -> State:
    """The first receipt of each kind stays: a message to several people has several."""
    state = replace(state, version=version, updated_at=at, reports=(*state.reports, event.report))
    moment = event.reported_at or at
    match event:
        case e.Delivered() if state.delivered_at is None:
            return replace(state, delivered_at=moment)
        case e.Bounced() if state.bounced_at is None:
            return replace(state, bounced_at=moment, bounce=event.reason)
        case e.Complained() if state.complained_at is None:
            return replace(state, complained_at=moment, complaint=event.reason)
        case _:
            return state
