"""What the flows that move money share: their rules, their account, and how they are declared."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.money import Money
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.transaction.funds import opening_facts
from gesta.flows.flow import Check, Flow, Payload
from gesta.flows.payment.execution import ALARMS, REASONS, Execution
from gesta.flows.payment.gateway import GATEWAY, Gateway, GatewayAccount
from gesta.flows.payment.gateways import installed

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
#: What test requests use where the tenant has stored no account.
SANDBOX_ACCOUNT: Final = GatewayAccount(type="stripe", account="acct_sandbox", api_key="")
#: Beyond the gateway's time limit, for the pipeline's own part of an attempt.
_MARGIN_SECONDS: Final = 5.0


def amount_errors(amount: Money) -> dict[str, str]:
    """What is wrong with an amount that is to be moved."""
    if amount.minor <= 0:
        return {"amount": "must be above zero"}
    if amount.is_withdrawn:
        return {"amount": f"{amount.currency} is no longer in use"}
    return {}


@dataclass(frozen=True)
class TransactionFlow(Flow):
    """A flow that moves money, and the gateways that it speaks to."""

    gateways: Sequence[Gateway] = ()


def gateways_of(flows: Iterable[Flow]) -> list[Gateway]:
    """Every gateway that gesta has or one of the flows speaks to; that of a flow goes first."""
    own = [
        gateway for flow in flows if isinstance(flow, TransactionFlow) for gateway in flow.gateways
    ]
    return [*own, *installed()]


def transaction_flow(
    name: str,
    payload: type[Payload],
    execution: Execution,
    *,
    first: Callable[[Any], str],
    check: Check,
    example: Mapping[str, Any],
) -> Flow:
    """A flow whose payloads have `amount` and `gateway`. `first`: a payload's first operation."""

    def opens(one: Any) -> tuple[str, dict[str, Any]]:
        operation = first(one)
        return operation, opening_facts(one.amount, operation, one.gateway)

    return TransactionFlow(
        name,
        payload,
        execution.execute,
        RULES,
        execution.look_up,
        timeout_seconds=execution.timeout_seconds + _MARGIN_SECONDS,
        config={GATEWAY: GatewayAccount},
        credential=lambda one: f"{GATEWAY}/{one.gateway}",
        check=check,
        tags=lambda one, _: {"gateway": one.gateway},
        reasons=REASONS,
        alarms=ALARMS,
        clear_texts=True,
        effects="attempt",
        stand_ins=lambda _: {GATEWAY: SANDBOX_ACCOUNT},
        example={"amount": {"amount": "49.90", "currency": "EUR"}, **example},
        opens=opens,
        render=execution.render,
        gateways=execution.gateways,
    )
