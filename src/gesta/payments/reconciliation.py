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
from gesta.flows.payment.gateway import LedgerRow, RowKind

#: missing_local: the gateway moved money that we have not recorded. missing_provider: the reverse.
#: status: as missing_local, for a transaction that had ended without moving money; or the gateway
#: moved money back by itself. late: the row is of another window than the movement. fee, duplicate,
#: amount, currency: as the names say.
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
#: The clocks of a gateway and of a process differ by less than this.
SKEW_MS = 15 * 60_000
#: Kind of row → the operations that it can be about.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "charge": ("sale", "transfer", "capture", "posting"),
    "refund": ("refund", "reversal"),
    "payout": ("settlement",),
}
#: Rows of money that the gateway moves back by itself. No operation of ours does that.
MOVED_BACK: frozenset[RowKind] = frozenset({"dispute", "return"})
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
    #: The gateway moved the money back by itself: a person decides what follows.
    moved_back: bool = False
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
    owner = _owners(books)
    # Overlapping pages repeat rows.
    unique = {row.id: row for row in rows}
    listed = sorted(unique.values(), key=lambda row: (row.at_ms, row.id))
    request_of = {row.id: _named(row, books) or owner.get(row.payment_id, "") for row in listed}
    found = _matched([row for row in listed if row.kind in OPERATIONS], request_of, books)
    taken = {one.name for one in found.values()}
    findings = []
    for row in listed:
        if row.kind in MOVED_BACK:
            findings.append(_moved_back(row, books.states.get(request_of[row.id])))
        elif row.kind not in OPERATIONS:
            findings.append(_finding("fee", row))
        elif row.id in found:
            findings.append(_compared(row, found[row.id], from_ms))
        else:
            findings.append(_missing(row, books.states.get(request_of[row.id]), taken))
    return [*findings, *_without_row(books.movements, taken, from_ms, to_ms)]


def _owners(books: Books) -> dict[str, str]:
    """The gateway's id of a payment → its transaction."""
    owner = {one.payment_id: one.request_id for one in books.movements if one.payment_id}
    for state in books.states.values():
        if payment_id := funds_of(state).payment_id:
            owner[payment_id] = state.id
    return owner


def _matched(
    rows: Sequence[LedgerRow], request_of: Mapping[str, str], books: Books
) -> dict[str, Movement]:
    """Row → its movement, for those that have one.

    Certain matches go first, so that no row takes the movement of another: by the gateway's id and
    the amount (several captures of a charge have the same id), then by the transaction and the
    amount. What is left is matched without the amount, which then differs.
    """
    by_id: dict[str, list[Movement]] = {}
    of_request: dict[str, list[Movement]] = {}
    for one in books.movements:
        of_request.setdefault(one.request_id, []).append(one)
        if one.movement_id:
            by_id.setdefault(one.movement_id, []).append(one)
    found: dict[str, Movement] = {}
    taken: set[str] = set()
    for has_amount in (True, False):
        for has_id in (True, False):
            # Rows with an id fit fewer movements than those without, so they choose first.
            for row in sorted(rows, key=lambda row: not row.movement_id):
                if row.id in found:
                    continue
                own = by_id.get(row.movement_id) if has_id else of_request.get(request_of[row.id])
                fits = [one for one in own or () if one.name not in taken and _fits(row, one)]
                fits.sort(key=lambda one: not one.movement_id)
                if has_amount:
                    fits = [one for one in fits if one.amount == _size(row.amount)]
                if fits and _is_awaited(row, books.states.get(fits[0].request_id)):
                    # The row is about the operation whose outcome is not on record yet, unless a
                    # movement of the same amount was recorded after the gateway made the row.
                    earliest = row.at_ms - SKEW_MS
                    fits = [one for one in fits if has_amount and one.at_ms >= earliest]
                if fits:
                    found[row.id] = fits[0]
                    taken.add(fits[0].name)
    return found


def _fits(row: LedgerRow, one: Movement) -> bool:
    """Whether a row can be about a movement, whatever the amounts are."""
    if one.movement_id and row.movement_id:
        return one.movement_id == row.movement_id
    return one.operation in OPERATIONS[row.kind]


def _named(row: LedgerRow, books: Books) -> str:
    """The transaction that our reference names; empty: none of this tenant."""
    reference = row.reference
    if reference is None or reference.tenant != books.tenant:
        return ""
    return reference.request_id


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


def _moved_back(row: LedgerRow, state: State | None) -> Finding:
    """A dispute, or a charge, refund or payout that failed after it had succeeded."""
    finding = msgspec.structs.replace(_finding("status", row), moved_back=True)
    if state is None:
        return finding
    finding = msgspec.structs.replace(finding, flow=state.flow, request_id=state.id)
    if row.reference is None:
        return finding
    operation, intent = row.reference.operation, row.reference.intent
    return msgspec.structs.replace(finding, operation=operation, intent=intent)


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
