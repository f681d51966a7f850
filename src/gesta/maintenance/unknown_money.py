"""How much money transactions with an unknown outcome may have moved, over all tenants."""

from collections.abc import Iterable
from decimal import Decimal

from gesta.flows.flow import Flow
from gesta.ports.read_model import SweepIndex
from gesta.runtime.metrics import UnknownMoney

#: Transactions of one flow that are added up: the oldest.
LIMIT = 1_000


async def unknown_money(
    flows: Iterable[Flow], sweep_index: SweepIndex, now_ms: int
) -> dict[tuple[str, str], UnknownMoney]:
    """(flow, currency) → its unknown transactions, without those of test requests."""
    found: dict[tuple[str, str], UnknownMoney] = {}
    for flow in flows:
        amount_of = flow.lifecycle.in_doubt
        if amount_of is None:
            continue
        for state in await sweep_index.unknown(flow.name, LIMIT):
            money = amount_of(state)
            if money is None or state.test:
                continue
            before = found.get((flow.name, money.currency), UnknownMoney())
            found[flow.name, money.currency] = UnknownMoney(
                before.count + 1,
                before.amount + Decimal(money.amount),
                max(before.oldest_seconds, (now_ms - state.attempted_from) / 1_000),
            )
    return found
