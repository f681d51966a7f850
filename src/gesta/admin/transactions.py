"""Transactions as the API shows them."""

from gesta.api_types.transactions import (
    FindingRepresentation,
    ReconciliationRepresentation,
    TransactionRepresentation,
)
from gesta.domain.durations import iso
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.domain.transaction.funds import funds_of
from gesta.errors import NotFound
from gesta.payments.reconcile import Report


def transaction_representation(state: State) -> TransactionRepresentation:
    """The amounts. Raises NotFound for a request that moves no money."""
    if lifecycle_of(state.flow).stream != "transaction" or not funds_of(state).currency:
        raise NotFound("transaction", state.id, f"; it is a request of {state.flow}")
    funds = funds_of(state)
    is_unknown = state.phase == "unknown"
    return TransactionRepresentation(
        id=state.id,
        flow=state.flow,
        status=state.status,
        operation=state.operation,
        gateway=funds.gateway or None,
        provider_id=funds.payment_id or None,
        requested=funds.money(funds.requested),
        authorized=funds.money(funds.authorized),
        captured=funds.money(funds.captured),
        refunded=funds.money(funds.refunded),
        released=funds.money(funds.released),
        capturable=funds.money(funds.capturable),
        refundable=funds.money(funds.refundable),
        unknown=funds.money(funds.pending) if is_unknown else None,
        unknown_since=iso(state.attempted_from) if is_unknown else None,
        reason=state.reason or None,
        capture_before=None if funds.capture_before is None else iso(funds.capture_before),
        balances={account: funds.money(minor) for account, minor in funds.balances.items()},
    )


def reconciliation_representation(report: Report) -> ReconciliationRepresentation:
    findings = [
        FindingRepresentation(
            kind=one.kind,
            row=one.row,
            request_id=one.request_id,
            flow=one.flow,
            operation=one.operation,
            intent=one.intent,
            found=one.found,
            recorded=one.recorded,
            corrected=one.corrected,
        )
        for one in report.findings
    ]
    return ReconciliationRepresentation(
        gateway=report.gateway,
        since=iso(report.from_ms),
        until=iso(report.to_ms),
        rows=report.rows,
        counts=report.counts,
        findings=findings,
        corrections=report.corrections,
    )
