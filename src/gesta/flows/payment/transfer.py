"""payment.transfer: money from one account to another through a gateway.

`transfer.Transfer(...)` moves it at once; `transfer.Reserve(...)` reserves it, and `post` moves
part or all of it later.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec

from gesta.domain.money import Money
from gesta.domain.transaction.funds import opening_facts
from gesta.flows.flow import Flow, Payload
from gesta.flows.payment.card import (
    DEFAULT,
    RULES,
    SANDBOX_ACCOUNT,
    Code,
    Text,
    amount_errors,
    known_gateways,
)
from gesta.flows.payment.execution import ALARMS, REASONS, Execution
from gesta.flows.payment.gateway import GATEWAY, Gateway, GatewayAccount

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
        known_gateways() if gateways is None else gateways,
        lambda one: {
            "source": one.source,
            "destination": one.destination,
            "description": one.description,
        },
        timeout_seconds=timeout_seconds,
    )
    return Flow(
        NAME,
        Movement,
        execution.execute,
        RULES,
        execution.look_up,
        timeout_seconds=timeout_seconds + 5.0,
        concurrency=concurrency,
        config={GATEWAY: GatewayAccount},
        credential=lambda one: f"{GATEWAY}/{one.gateway}",
        check=_check,
        tags=lambda one, _: {"gateway": one.gateway},
        reasons=REASONS,
        alarms=ALARMS,
        clear_texts=True,
        effects="attempt",
        stand_ins=lambda _: {GATEWAY: SANDBOX_ACCOUNT},
        example={
            "amount": {"amount": "49.90", "currency": "EUR"},
            "source": "pm_1",
            "destination": "acct_2",
            "gateway": "stripe-eu",
        },
        opens=lambda one: (
            _FIRST[one.operation],
            opening_facts(one.amount, _FIRST[one.operation], one.gateway),
        ),
        render=execution.render,
    )


async def _check(one: Any, *_: object) -> Mapping[str, str]:
    errors = amount_errors(one.amount)
    if one.source == one.destination:
        errors["destination"] = "is the account that the money comes from"
    return errors
