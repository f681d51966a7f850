"""The ledger: the postings of all transactions, checked and added up.

Each movement is posted with the event that records it (domain/transaction/postings.py), so the
ledger is read from the same events and cannot disagree with them. `errors_of` recomputes what the
postings of one transaction must be from its amounts.
"""

from collections import Counter
from collections.abc import AsyncIterator

from gesta.domain.state import State
from gesta.domain.transaction.funds import funds_of
from gesta.domain.transaction.postings import BANK, GATEWAY, HELD, PAYEE, PAYER


def errors_of(state: State) -> list[str]:
    """The errors in the amounts and postings of a transaction; empty: none."""
    funds = funds_of(state)
    if not funds.currency:
        return []
    balances = funds.balances
    errors = []
    if sum(balances.values()) != 0:
        errors.append(f"its postings sum to {sum(balances.values())}, not to 0")
    if not 0 <= funds.captured + funds.released <= funds.authorized:
        errors.append("more was captured and released than was authorized")
    if not 0 <= funds.refunded <= funds.captured:
        errors.append("more was refunded than was captured")
    is_transfer = funds.first in ("transfer", "reservation")
    is_settlement = funds.first == "settlement"
    end = PAYEE if is_transfer else BANK if is_settlement else GATEWAY
    start = GATEWAY if is_settlement else PAYER
    expected = Counter({HELD: funds.capturable, end: funds.refundable, start: -funds.authorized})
    expected[start] += funds.released + funds.refunded
    if any(balances.get(account, 0) != minor for account, minor in expected.items()):
        errors.append("its postings do not match its amounts")
    return errors


async def unbalanced(states: AsyncIterator[State]) -> dict[str, list[str]]:
    """Transaction → its error, for transactions with errors."""
    return {state.id: errors async for state in states if (errors := errors_of(state))}
