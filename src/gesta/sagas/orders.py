"""Steps that move money of a transaction which an earlier step opened: capture, refund, reverse.

Such a step opens a further operation of the transaction, under a key of its own. While the outcome
of another operation is unknown, no step opens one: the saga waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from gesta.domain.commands import CommandRefused
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.money import Money
from gesta.domain.saga.events import Result
from gesta.domain.state import State
from gesta.domain.transaction import commands as c
from gesta.domain.transaction.funds import funds_of
from gesta.flows.flow import Flow
from gesta.ports.read_model import View
from gesta.requests.recorder import Recorder, no_job
from gesta.runtime.clock import Runtime
from gesta.security.keyed_digests import KeyedDigests

Verb = Literal["capture", "post", "void", "refund", "reverse"]
#: Verb → its command, and the name of the operation that it opens.
VERBS: Mapping[Verb, tuple[type[c.OperationCommand], str]] = {
    "capture": (c.Capture, "capture"),
    "post": (c.Post, "posting"),
    "void": (c.Void, "void"),
    "refund": (c.Refund, "refund"),
    "reverse": (c.Reverse, "reversal"),
}
#: Refusals that are temporary.
BUSY = ("in_doubt", "operation_open")
#: Nothing is left to void or to reverse.
GONE = ("nothing_to_reverse", "nothing_left")


class Order(msgspec.Struct, frozen=True):
    """The operation of a step on the transaction of an earlier step."""

    flow: str
    request_id: str
    verb: Verb
    #: None: the whole rest.
    amount: Money | None = None


class Opened(msgspec.Struct, frozen=True):
    """The operation that a step waits for: `capture:1`. Empty: nothing was left to do."""

    operation: str


class Orders:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        recorder: Recorder,
        identity: KeyedDigests,
        runtime: Runtime,
    ) -> None:
        self._flows, self._recorder = flows, recorder
        self._identity, self._runtime = identity, runtime

    async def open(self, order: Order, view: View, key: str) -> Opened | CommandRefused:
        """Open the operation; under the same key it is opened once."""
        kind, operation = VERBS[order.verb]
        state, amount = view.state, order.amount
        digest = self._identity.name_of(state.tenant, state.flow, key, test=state.test).hex()
        command = kind(
            self._runtime.now_ms(),
            None if amount is None else amount.minor,
            "" if amount is None else amount.currency,
            key,
            digest,
        )
        rules = self._flows[order.flow].rules
        try:
            applied = await self._recorder.apply(view, command, rules, no_job, causation_id=key)
        except CommandRefused as refused:
            is_gone = refused.code in GONE and order.verb in ("reverse", "void")
            if order.verb == "void" and funds_of(state).refundable:
                # Nothing is left to void, because it was captured: the money has not gone back.
                is_gone = False
            return Opened("") if is_gone else refused
        funds = funds_of(applied.view.state)
        if digest not in funds.keys:
            # Another caller has already voided or reversed it.
            return Opened("")
        return Opened(f"{operation}:{funds.intents[operation]}")


def result_of(state: State, operation: str = "") -> Result | None:
    """How a step ended, by its request; None while that is not known for certain.

    If a request failed although an earlier attempt may have had an effect, it is not known: a
    person has to resolve it first.
    """
    if state.phase in ("open", "unknown"):
        return None
    lifecycle = lifecycle_of(state.flow)
    if lifecycle.name == "transaction":
        # Its status follows from the amounts and does not show whether an operation succeeded.
        funds = funds_of(state)
        is_done = any(
            row == operation or (not operation and row.startswith(f"{funds.first}:"))
            for row in funds.moved
        )
    else:
        is_done = state.status in lifecycle.success
    if is_done:
        return "done"
    return None if state.in_doubt else "failed"
