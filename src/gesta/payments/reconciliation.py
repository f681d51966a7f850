"""Compares the ledger of a gateway with the recorded movements, in both directions. Pure.

A row is matched by the gateway's id of the movement, then by our own reference and the amount. Each
row and each movement ends in exactly one class (`Class`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from gesta.domain.money import Money
from gesta.domain.state import State
from gesta.domain.transaction.funds import Funds, funds_of
from gesta.flows.payment.gateway import LedgerRow

#: missing_local: the gateway moved money that we have not recorded. missing_provider: the reverse.
#: status: as missing_local, for a transaction that had ended without moving money. late: the row is
#: of another window than the movement. fee, duplicate, amount, currency: as the names say.
Class = Literal[
    "matched",
    "missing_local",
    "missing_provider",
    "amount",
    "currency",
    "status",
    "fee",
    "duplicate",
    "late",
]
#: Classes that need neither a correction nor a person.
FINE: frozenset[Class] = frozenset({"matched", "fee", "late"})
#: A movement may appear in the gateway's ledger this much later than on our record.
TOLERANCE_MS = 24 * 3_600_000
#: Kind of row → the operations that it can be about.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "charge": ("sale", "transfer", "capture", "posting"),
    "refund": ("refund", "reversal"),
    "payout": ("settlement",),
}
#: First operation → the operation that moves the money afterwards.
TAKING = {"authorization": "capture", "reservation": "posting"}


class Movement(msgspec.Struct, frozen=True):
    """A recorded movement of money."""

    flow: str
    request_id: str
    operation: str
    intent: int
    amount: Money
    at_ms: int
    payment_id: str = ""
    movement_id: str = ""

    @property
    def name(self) -> str:
        return f"{self.request_id}:{self.operation}:{self.intent}"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row or movement, and how it compares."""

    kind: Class
    #: The gateway's id of the row; empty: it has none.
    row: str = ""
    flow: str = ""
    request_id: str = ""
    operation: str = ""
    intent: int = 0
    #: The gateway's amount, and the recorded amount.
    found: Money | None = None
    recorded: Money | None = None
    payment_id: str = ""
    movement_id: str = ""
    #: An event was appended to the transaction, by this run or an earlier one.
    corrected: bool = False

    @property
    def name(self) -> str:
        """The same in every run: a correction is recorded once under it."""
        return f"{self.row or f'{self.operation}:{self.intent}'}:{self.kind}"


class Books(msgspec.Struct, frozen=True):
    """Our side: transactions by id, and their movements in the order of the record."""

    states: Mapping[str, State]
    movements: Sequence[Movement]
    tenant: str = "default"


def compare(rows: Iterable[LedgerRow], books: Books, from_ms: int, to_ms: int) -> list[Finding]:
    """Every row of the window, then every movement of the window that has no row."""
    by_id: dict[str, list[Movement]] = {}
    of_request: dict[str, list[Movement]] = {}
    owner: dict[str, str] = {}
    for one in books.movements:
        of_request.setdefault(one.request_id, []).append(one)
        if one.movement_id:
            by_id.setdefault(one.movement_id, []).append(one)
        if one.payment_id:
            owner[one.payment_id] = one.request_id
    for state in books.states.values():
        if payment_id := funds_of(state).payment_id:
            owner[payment_id] = state.id
    taken: set[str] = set()
    seen: set[str] = set()
    findings = []
    for row in sorted(rows, key=lambda row: (row.at_ms, row.id)):
        if row.id in seen:
            # Overlapping pages repeat rows.
            continue
        seen.add(row.id)
        if row.kind not in OPERATIONS:
            findings.append(_finding("fee", row))
            continue
        request_id = _named(row, books) or owner.get(row.payment_id, "")
        own = _movement_of(row, by_id, of_request.get(request_id, ()), taken)
        if own is not None and own.amount != _size(row.amount):
            # It may be the operation whose outcome is not on record yet.
            own = None if _is_awaited(row, books.states.get(own.request_id)) else own
        if own is not None:
            taken.add(own.name)
            findings.append(_compared(row, own, from_ms))
        else:
            findings.append(_missing(row, books.states.get(request_id), taken))
    return [*findings, *_without_row(books.movements, taken, from_ms, to_ms)]


def _named(row: LedgerRow, books: Books) -> str:
    """The transaction that our reference names; empty: none of this tenant."""
    reference = row.reference
    if reference is None or reference.tenant != books.tenant:
        return ""
    return reference.request_id


def _movement_of(
    row: LedgerRow,
    by_id: Mapping[str, Sequence[Movement]],
    of_request: Sequence[Movement],
    taken: set[str],
) -> Movement | None:
    # Several captures of one charge have the same id.
    named = [one for one in by_id.get(row.movement_id, ()) if one.name not in taken]
    fits = named or [
        one
        for one in of_request
        if one.operation in OPERATIONS[row.kind]
        and one.name not in taken
        and (not one.movement_id or not row.movement_id or one.movement_id == row.movement_id)
    ]
    same = [one for one in fits if one.amount == _size(row.amount)]
    return next(iter(same or fits), None)


def _is_awaited(row: LedgerRow, state: State | None) -> bool:
    """Whether a row is about the operation of a transaction that is open, unknown or failed."""
    if state is None or state.operation not in OPERATIONS[row.kind]:
        return False
    funds = funds_of(state)
    is_missing = f"{state.operation}:{state.intent}" not in funds.moved
    return is_missing and funds.money(funds.pending) == _size(row.amount)


def _compared(row: LedgerRow, own: Movement, from_ms: int) -> Finding:
    size = _size(row.amount)
    kind: Class = "matched"
    if size.currency != own.amount.currency:
        kind = "currency"
    elif size != own.amount:
        kind = "amount"
    elif own.at_ms < from_ms:
        kind = "late"
    return msgspec.structs.replace(
        _finding(kind, row),
        flow=own.flow,
        request_id=own.request_id,
        operation=own.operation,
        intent=own.intent,
        recorded=own.amount,
    )


def _missing(row: LedgerRow, state: State | None, taken: set[str]) -> Finding:
    """The gateway moved money that is not recorded."""
    if state is None:
        return _finding("missing_local", row)
    funds = funds_of(state)
    operation, intent = _operation(row, state, funds)
    kind: Class = "missing_local"
    if f"{state.id}:{operation}:{intent}" in taken or f"{operation}:{intent}" in funds.moved:
        # Every movement of this kind has its row already.
        kind = "duplicate"
    elif funds.currency != row.amount.currency:
        kind = "currency"
    elif state.phase == "ended":
        kind = "status"
    return msgspec.structs.replace(
        _finding(kind, row),
        flow=state.flow,
        request_id=state.id,
        operation=operation,
        intent=intent,
    )


def _operation(row: LedgerRow, state: State, funds: Funds) -> tuple[str, int]:
    """Which operation of the transaction a row is about."""
    fitting = OPERATIONS[row.kind]
    if state.operation in fitting and f"{state.operation}:{state.intent}" not in funds.moved:
        # The one that is open, unknown, or failed last.
        return state.operation, state.intent
    reference = row.reference
    if reference is not None and reference.operation in fitting:
        return reference.operation, reference.intent
    operation = TAKING.get(funds.first, funds.first) if row.kind == "charge" else fitting[0]
    return operation, max(1, funds.intents.get(operation, 0))


def _without_row(
    movements: Sequence[Movement], taken: set[str], from_ms: int, to_ms: int
) -> list[Finding]:
    operations = {name for names in OPERATIONS.values() for name in names}
    return [
        Finding(
            "missing_provider",
            flow=one.flow,
            request_id=one.request_id,
            operation=one.operation,
            intent=one.intent,
            recorded=one.amount,
            payment_id=one.payment_id,
            movement_id=one.movement_id,
        )
        for one in movements
        if one.operation in operations
        and one.name not in taken
        and one.amount.minor
        and from_ms <= one.at_ms < to_ms - TOLERANCE_MS
    ]


def _finding(kind: Class, row: LedgerRow) -> Finding:
    return Finding(
        kind,
        row.id,
        found=_size(row.amount),
        payment_id=row.payment_id,
        movement_id=row.movement_id,
    )


def _size(amount: Money) -> Money:
    """Ledgers write outgoing amounts as negative numbers; our records do not."""
    return Money.of_minor(abs(amount.minor), amount.currency)
