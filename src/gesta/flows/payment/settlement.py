"""payment.settlement: pays a closed set of captured transactions out, if the total is right.

Before the call, every transaction is read as it is now. Each must be a payment of the same gateway
and currency, with nothing open or unknown, and in no other settlement; what was captured and not
refunded must add up to the amount. Otherwise nothing is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec

from gesta.domain.ids import REQUEST_ID
from gesta.domain.money import MINOR_MAX, InvalidMoney, Money
from gesta.domain.outcome import Rejected, Retry
from gesta.domain.state import State
from gesta.domain.transaction.funds import funds_of
from gesta.errors import StoreError
from gesta.flows.attempt import Attempt
from gesta.flows.flow import Flow, Payload, Rendered
from gesta.flows.payment.card import NAME as CARD
from gesta.flows.payment.execution import ALARMS, REASONS, Execution
from gesta.flows.payment.gateway import Gateway
from gesta.flows.payment.transaction_flow import (
    DEFAULT,
    Code,
    Text,
    amount_errors,
    transaction_flow,
)
from gesta.outbound.http import AttemptEnded
from gesta.tenants.flow_records import TenantRecords

__all__ = ["NAME", "Settle", "flow"]

NAME: Final = "payment.settlement"
#: Transactions of one settlement.
TRANSACTIONS_MAX: Final = 1_000
#: The kind of record by which a transaction belongs to one settlement only.
_SETTLED: Final = "settled"
#: First operations by which money comes to the account at the gateway.
_COLLECTS: Final = frozenset({"authorization", "sale"})
_REASONS: Final = frozenset(
    """another_currency another_gateway not_captured settled_elsewhere total_mismatch
    transaction_missing""".split()
)


class Settle(Payload, frozen=True):
    """A payout of `amount`, the total of these transactions."""

    amount: Money
    #: Their ids. What was captured and not refunded must be `amount` and `fees` together.
    transactions: Annotated[
        tuple[str, ...], msgspec.Meta(min_length=1, max_length=TRANSACTIONS_MAX)
    ]
    gateway: Code = DEFAULT
    #: The flow of the transactions.
    flow: str = CARD
    #: What the gateway keeps.
    fees: Money | None = None
    description: Text = ""


def flow(gateways: Sequence[Gateway] | None = None, *, timeout_seconds: float = 30.0) -> Flow:
    """The flow. `gateways`: those that it can speak to; by default all that gesta has."""
    execution = Execution(
        gateways, lambda one: {"description": one.description}, timeout_seconds=timeout_seconds
    )

    async def render(one: Settle, attempt: Attempt) -> Rendered:
        await _check_total(one, attempt)
        return await execution.rendered(one, attempt)

    made = transaction_flow(
        NAME,
        Settle,
        execution,
        first=lambda _: "settlement",
        check=_check,
        example={
            "transactions": ["0198c0de-0000-7000-8000-000000000000"],
            "gateway": "stripe-eu",
        },
    )
    return replace(
        made, render=render, reasons=REASONS | _REASONS, alarms=ALARMS | {"total_mismatch"}
    )


async def _check(one: Any, *_: object) -> Mapping[str, str]:
    errors = amount_errors(one.amount)
    if one.fees is not None and (one.fees.currency != one.amount.currency or one.fees.minor < 0):
        errors["fees"] = f"an amount in {one.amount.currency}, not below zero"
    elif one.fees is not None and one.amount.minor + one.fees.minor >= MINOR_MAX:
        errors["fees"] = "amount and fees together are too large"
    if len(set(one.transactions)) != len(one.transactions):
        errors["transactions"] = "a transaction is listed twice"
    elif not all(REQUEST_ID.fullmatch(name) for name in one.transactions):
        errors["transactions"] = "ids of transactions: 36 characters, lower case"
    return errors


async def _check_total(one: Settle, attempt: Attempt) -> None:
    """End the attempt if the transactions do not match the settlement. Nothing was sent."""
    assert attempt.read is not None
    assert attempt.records is not None
    states = await attempt.read([(one.flow, name) for name in one.transactions])
    found = {state.id: state for state in states}
    for name in one.transactions:
        if (refusal := _refusal(one, found.get(name), name, test=attempt.test)) is not None:
            raise AttemptEnded(refusal)
    total = sum(funds_of(state).refundable for state in states)
    asked = one.amount.minor + (0 if one.fees is None else one.fees.minor)
    if total != asked:
        raise AttemptEnded(Rejected("total_mismatch", _mismatch(total, asked, one.amount.currency)))
    try:
        await _claim(one, attempt, attempt.records)
    except StoreError as error:
        raise AttemptEnded(Retry("vault_unavailable", str(error))) from None


def _mismatch(total: int, asked: int, currency: str) -> str:
    """Sums may be larger than any amount that can be moved."""
    try:
        captured, wanted = (Money.of_minor(minor, currency) for minor in (total, asked))
    except InvalidMoney:
        return f"more was captured than one settlement can pay out in {currency}"
    return f"{captured} was captured, and {wanted} is asked for"


async def _claim(one: Settle, attempt: Attempt, records: TenantRecords) -> None:
    """Make the transactions ours, or end the attempt.

    A settlement that ended without a payout gives its transactions up. If it is redriven at this
    very moment, its event is on record before it looks at its claims: so one of the two sees the
    other, and at most one pays out.
    """
    own, names = attempt.request_id.encode(), one.transactions
    known = await records.get_many([(_SETTLED, name) for name in names])
    holders: dict[str, str] = {}
    #: Version → the transactions to be claimed under it.
    free: dict[int, list[str]] = {}
    for name, record in zip(names, known, strict=True):
        if record is None:
            free.setdefault(1, []).append(name)
        elif record.value != own:
            holders[(record.value or b"").decode()] = name
            free.setdefault(record.version + 1, []).append(name)
    await _check_given_up(holders, attempt)
    for version, some in free.items():
        if not all(await records.put_many(_SETTLED, some, version, own)):
            # Another one claims at this very moment: read who.
            await _claim(one, attempt, records)
            return
    await _check_given_up(holders, attempt)


async def _check_given_up(holders: Mapping[str, str], attempt: Attempt) -> None:
    """End the attempt if a settlement that has claimed a transaction paid it out, or still may.

    `holders`: settlement → a transaction of it.
    """
    if not holders:
        return
    assert attempt.read is not None
    states = await attempt.read([(attempt.flow, holder) for holder in holders])
    given_up = {
        state.id for state in states if state.phase == "ended" and not funds_of(state).authorized
    }
    for holder, name in holders.items():
        if holder not in given_up:
            text = f"{name} belongs to another settlement"
            raise AttemptEnded(Rejected("settled_elsewhere", text))


def _refusal(one: Settle, state: State | None, name: str, *, test: bool) -> Rejected | None:
    if state is None:
        return Rejected("transaction_missing", f"there is no {one.flow} {name}")
    funds = funds_of(state)
    if funds.first not in _COLLECTS:
        return Rejected(
            "not_captured", f"{name} is a {funds.first}: the gateway owes nothing of it"
        )
    if state.test != test:
        mode = "a test request" if state.test else "no test request"
        return Rejected("not_captured", f"{name} is {mode}, and the settlement is the contrary")
    if state.phase in ("open", "unknown") or funds.capturable or not funds.refundable:
        return Rejected("not_captured", f"{name} is {state.status}")
    if funds.currency != one.amount.currency:
        return Rejected("another_currency", f"{name} is in {funds.currency}")
    if funds.gateway != one.gateway:
        return Rejected("another_gateway", f"{name} was captured by {funds.gateway}")
    return None
