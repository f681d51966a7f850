"""External flows: a worker in any language leases the work over HTTP, executes it and reports.

Either gesta or external workers execute a flow, never both. worker/external leases the requests.
"""

import types
from typing import Any, Literal

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.ids import FLOW
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.money import Money
from gesta.domain.outcome import Outcome, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import BadFlow
from gesta.flows.flow import CHOOSE, AnyObject, Flow, Payload, policy_of
from gesta.runtime.settings import keyword_arguments

LEASE_SECONDS = 60.0
#: A shorter lease would expire before a report arrives. A longer one would hide a dead worker;
#: workers extend the lease instead.
LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 1.0, 300.0


def external(
    name: str,
    *,
    payload: type[Payload] | None = None,
    lease_seconds: float = LEASE_SECONDS,
    on_unknown: UnknownPolicy | None = None,
    attempts: int | None = None,
    retry: RetryPolicy | None = None,
    ttl_seconds: float | None = None,
    key_protects_seconds: float | None = None,
) -> Flow:
    """Declare a flow that external workers execute.

    Without `payload` it takes any JSON object: `flow.payload({"order": 7})`.

    Work that is not reported before its lease expires is `unknown` (`no_report`). `on_unknown`
    decides what follows: `manual` or `resend`, which leases it again with the same idempotency key.
    """
    if on_unknown is None:
        raise BadFlow(
            name,
            f"{CHOOSE} An external flow cannot be 'reconcile': gesta cannot ask the worker. If the"
            " worker ignores a key that it has seen, write on_unknown='resend', otherwise"
            " on_unknown='manual'",
        )
    if on_unknown not in ("resend", "manual"):
        raise BadFlow(
            name,
            f"on_unknown must be 'resend' or 'manual' for an external flow, not {on_unknown!r}:"
            " gesta cannot ask the worker",
        )
    if not LEASE_SECONDS_MIN <= lease_seconds <= LEASE_SECONDS_MAX:
        raise BadFlow(
            name,
            f"lease_seconds must be from {LEASE_SECONDS_MIN:g} to {LEASE_SECONDS_MAX:g}, not"
            f" {lease_seconds!r}",
        )
    return Flow(
        name,
        payload or _any_object(name),
        _not_here,
        Rules(policy_of(retry, attempts), on_unknown, key_protects_seconds),
        ttl_seconds=ttl_seconds,
        lease_seconds=float(lease_seconds),
    )


def from_table(name: str, table: dict[str, Any]) -> Flow:
    """The flow of a table `[flows.external."name"]` of gesta.toml. Raises BadFlow."""
    types = {
        "lease_seconds": float,
        "on_unknown": str,
        "attempts": int,
        "ttl_seconds": float,
        "key_protects_seconds": float,
    }
    try:
        arguments = keyword_arguments(table, types)
    except ValueError as error:
        raise BadFlow(name, str(error)) from None
    return external(name, **arguments)


class AnyTransaction(Payload, frozen=True):
    """The payload of an external flow that moves money and declares no type of its own."""

    amount: Money
    operation: Literal["authorize", "sale"] = "sale"
    #: Whatever the worker needs.
    details: dict[str, Any] = msgspec.field(default_factory=dict)


def _any_object(name: str) -> type[Payload]:
    """A payload type for each flow, because `submit` finds the flow by the type."""
    if not isinstance(name, str) or not FLOW.fullmatch(name):
        # Flow raises the error.
        return AnyObject
    title = "".join(part.capitalize() for part in name.replace(".", "_").split("_"))
    base = AnyTransaction if lifecycle_of(name).needs else AnyObject
    made: type[Payload] = types.new_class(
        title, (base,), {"frozen": True, "forbid_unknown_fields": True}
    )
    return made


async def _not_here(_: object, __: object) -> Outcome:
    raise AssertionError("an external flow was executed by gesta")
