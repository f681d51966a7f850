"""payment.card: card payments through a gateway: sale, or authorize and later capture.

`card.Authorize(Money("49.90", "EUR"), source="pm_1", gateway="stripe-eu")` reserves the amount;
`card.Sale(...)` takes it at once. `source` is the gateway's name of the card, never its number.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.money import Money
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.transaction.funds import opening_facts
from gesta.flows.flow import Flow, Payload
from gesta.flows.payment.execution import ALARMS, REASONS, Execution
from gesta.flows.payment.gateway import GATEWAY, Gateway, GatewayAccount

__all__ = ["NAME", "Authorize", "Payment", "Sale", "flow"]

NAME: Final = "payment.card"
DEFAULT: Final = "default"
Code = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=500)]
#: First look-up after an unknown outcome; then 30 s to 6 h, then daily for five days. After that a
#: person decides.
RULES: Final = Rules(
    RetryPolicy(attempts=8),
    "reconcile",
    ask_after_seconds=5.0,
    asking=RetryPolicy(
        attempts=11,
        schedule_seconds=(30.0, 120.0, 600.0, 3600.0, 21_600.0, *[86_400.0] * 5),
    ),
)
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
#: Take the amount at once.
Sale = partial(Payment, operation="sale")


def flow(
    gateways: Sequence[Gateway] | None = None,
    *,
    timeout_seconds: float = 30.0,
    concurrency: int = 100,
) -> Flow:
    """The flow. `gateways`: those that it can speak to; by default all that gesta has."""
    execution = Execution(
        known_gateways() if gateways is None else gateways,
        lambda payment: {"source": payment.source, "description": payment.description},
        timeout_seconds=timeout_seconds,
    )
    return Flow(
        NAME,
        Payment,
        execution.execute,
        RULES,
        execution.look_up,
        timeout_seconds=timeout_seconds + 5.0,
        concurrency=concurrency,
        config={GATEWAY: GatewayAccount},
        credential=lambda payment: f"{GATEWAY}/{payment.gateway}",
        check=check,
        tags=lambda payment, _: {"gateway": payment.gateway},
        reasons=REASONS,
        alarms=ALARMS,
        clear_texts=True,
        effects="attempt",
        stand_ins=lambda _: {GATEWAY: SANDBOX_ACCOUNT},
        example={
            "amount": {"amount": "49.90", "currency": "EUR"},
            "source": "pm_1",
            "gateway": "stripe-eu",
            "operation": "authorize",
        },
        opens=lambda payment: (
            _FIRST[payment.operation],
            opening_facts(payment.amount, _FIRST[payment.operation], payment.gateway),
        ),
        render=execution.render,
    )


#: What test requests use where the tenant has stored no account.
SANDBOX_ACCOUNT: Final = GatewayAccount(type="stripe", account="acct_sandbox", api_key="")


def known_gateways() -> list[Gateway]:
    """Every gateway of gesta whose library is installed."""
    from gesta.flows.payment.gateways import installed

    return installed()


async def check(payment: Any, *_: object) -> Mapping[str, str]:
    errors = amount_errors(payment.amount)
    if _CARD_NUMBER.fullmatch(payment.source):
        errors["source"] = (
            "that is a card number; gesta never stores one. Give the gateway's name of it: pm_…"
        )
    return errors


def amount_errors(amount: Money) -> dict[str, str]:
    """What is wrong with an amount that is to be moved."""
    if amount.minor <= 0:
        return {"amount": "must be above zero"}
    if amount.is_withdrawn:
        return {"amount": f"{amount.currency} is no longer in use"}
    return {}
