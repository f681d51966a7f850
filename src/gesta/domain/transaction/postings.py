"""Double entry: each movement of money posts legs that sum to zero.

A leg is an account and a signed amount in the smallest unit of the transaction's currency. A
correction is a new posting, never an edit.
"""

from collections.abc import Iterable, Mapping

#: Where the payer's money is before anything happens, and while it is reserved.
PAYER, HELD = "payer", "payer_held"
#: Captured money that the gateway owes us, and our bank account after a payout.
GATEWAY, BANK = "gateway", "bank"
#: Who receives a transfer.
PAYEE = "payee"

Leg = tuple[str, int]

#: Kind of movement → the account that gives and the account that gets.
ROUTES: Mapping[str, tuple[str, str]] = {
    "authorization": (PAYER, HELD),
    "capture": (HELD, GATEWAY),
    "sale": (PAYER, GATEWAY),
    "reservation": (PAYER, HELD),
    "posting": (HELD, PAYEE),
    "transfer": (PAYER, PAYEE),
    "settlement": (GATEWAY, BANK),
    "release": (HELD, PAYER),
}


def legs(kind: str, amount: int) -> tuple[Leg, ...]:
    """The posting of a movement. Nothing moved: no legs."""
    if amount == 0:
        return ()
    giver, taker = ROUTES[kind]
    return ((giver, -amount), (taker, amount))


def undo(kind: str, amount: int) -> tuple[Leg, ...]:
    """The posting that returns money along the route by which it came."""
    return tuple((account, -minor) for account, minor in legs(kind, amount))


def posted(balances: Mapping[str, int], posting: Iterable[Leg]) -> dict[str, int]:
    """The balances after a posting. Raises ValueError if its legs do not sum to zero."""
    after, total = dict(balances), 0
    for account, minor in posting:
        after[account] = after.get(account, 0) + minor
        total += minor
    if total:
        raise ValueError(f"the legs of a posting sum to {total}, not 0")
    if 0 in after.values():
        return {account: minor for account, minor in after.items() if minor}
    return after
