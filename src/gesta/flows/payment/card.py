"""payment.card: card payments through a gateway: sale, or authorize and later capture.

`card.Authorize(Money("49.90", "EUR"), source="pm_1", gateway="stripe-eu")` reserves the amount;
`card.Sale(...)` takes it at once. `source` is the gateway's name of the card, never its number.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec

from gesta.domain.money import Money
from gesta.flows.flow import Flow, Payload
from gesta.flows.payment.execution import Execution
from gesta.flows.payment.gateway import Gateway
from gesta.flows.payment.transaction_flow import (
    DEFAULT,
    Code,
    Text,
    amount_errors,
    transaction_flow,
)

__all__ = ["NAME", "Authorize", "Payment", "Sale", "flow"]

NAME: Final = "payment.card"
_CARD_NUMBER = re.compile(r"(?:\d[ -]?){12,18}\d")
_FIRST = {"authorize": "authorization", "sale": "sale"}


class Payment(Payload, frozen=True):
    """A card payment."""

    amount: Money
    #: The gateway's name of the card, e.g. pm_1.
    source: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    #: The code of the account at a gateway (config payment.gateway).
    gateway: Code = DEFAULT
    operation: Literal["authorize", "sale"] = "sale"
    description: Text = ""


#: Reserve the amount; `capture` takes part or all of it later.
Authorize = partial(Payment, operation="authorize")
#: Authorize and capture in one step.
Sale = partial(Payment, operation="sale")


def flow(
    gateways: Sequence[Gateway] | None = None,
    *,
    timeout_seconds: float = 30.0,
    concurrency: int = 100,
) -> Flow:
    """The flow. `gateways`: those that it can speak to; by default all that gesta has."""
    execution = Execution(
        gateways,
        lambda payment: {"source": payment.source, "description": payment.description},
        timeout_seconds=timeout_seconds,
    )
    made = transaction_flow(
        NAME,
        Payment,
        execution,
        first=lambda payment: _FIRST[payment.operation],
        check=check,
        example={"source": "pm_1", "gateway": "stripe-eu", "operation": "authorize"},
    )
    return replace(made, concurrency=concurrency)


async def check(payment: Any, *_: object) -> Mapping[str, str]:
    errors = amount_errors(payment.amount)
    if _CARD_NUMBER.fullmatch(payment.source):
        errors["source"] = (
            "that is a card number; gesta never stores card numbers."
            " Pass the gateway's token for it: pm_…"
        )
    return errors
