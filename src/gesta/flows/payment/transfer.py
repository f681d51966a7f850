"""payment.transfer: money from one account to another through a gateway.

`transfer.Transfer(...)` moves it at once; `transfer.Reserve(...)` reserves it, and `post` moves
part or all of it later.
"""

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

__all__ = ["NAME", "Movement", "Reserve", "Transfer", "flow"]

NAME: Final = "payment.transfer"
Party = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_FIRST = {"reserve": "reservation", "transfer": "transfer"}


class Movement(Payload, frozen=True):
    """A transfer. `source` and `destination` are the gateway's names of the two accounts."""

    amount: Money
    source: Party
    destination: Party
    gateway: Code = DEFAULT
    operation: Literal["reserve", "transfer"] = "transfer"
    description: Text = ""


Reserve = partial(Movement, operation="reserve")
Transfer = partial(Movement, operation="transfer")


def flow(
    gateways: Sequence[Gateway] | None = None,
    *,
    timeout_seconds: float = 30.0,
    concurrency: int = 100,
) -> Flow:
    """The flow. `gateways`: those that it can speak to; by default all that gesta has."""
    execution = Execution(
        gateways,
        lambda one: {
            "source": one.source,
            "destination": one.destination,
            "description": one.description,
        },
        timeout_seconds=timeout_seconds,
    )
    made = transaction_flow(
        NAME,
        Movement,
        execution,
        first=lambda one: _FIRST[one.operation],
        check=_check,
        example={"source": "pm_1", "destination": "acct_2", "gateway": "stripe-eu"},
    )
    return replace(made, concurrency=concurrency)


async def _check(one: Any, *_: object) -> Mapping[str, str]:
    errors = amount_errors(one.amount)
    if one.source == one.destination:
        errors["destination"] = "is the account that the money comes from"
    return errors
