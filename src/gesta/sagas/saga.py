"""`@saga`: a function that names its steps one after the other.

The function is run again from its first line whenever a step has ended, and gets the recorded
outcomes of earlier steps. So it must decide by its payload and by these outcomes alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.money import Money
from gesta.errors import BadFlow
from gesta.flows.attempt import Attempt
from gesta.flows.flow import Flow, Payload, payload_type, policy_of
from gesta.sagas.orders import Order

#: The kind of every saga: its lifecycle is chosen by it.
KIND = "saga."
STEP = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")


class StepDone(msgspec.Struct, frozen=True):
    """The outcome of a step that succeeded."""

    step: str
    #: The provider's id of the effect.
    id: str
    flow: str
    request_id: str

    def capture(self, amount: Money | None = None) -> Order:
        """For a further step: take part or all of what this step has authorized."""
        return Order(self.flow, self.request_id, "capture", amount)

    def post(self, amount: Money | None = None) -> Order:
        """Transfer part or all of what this step has reserved."""
        return Order(self.flow, self.request_id, "post", amount)

    def void(self) -> Order:
        """Release what was authorized and not captured."""
        return Order(self.flow, self.request_id, "void")

    def refund(self, amount: Money | None = None) -> Order:
        """Give part or all of what was captured back."""
        return Order(self.flow, self.request_id, "refund", amount)

    def reverse(self) -> Order:
        """Take the transaction back: void it, or refund it where it was captured."""
        return Order(self.flow, self.request_id, "reverse")


Action = Payload | Order
Undo = Action | Callable[[StepDone], Action | None]


class StepFailed(Exception):
    """A step failed. Unless the function catches it, the saga is compensated."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"step {step} failed: {reason}")
        self.step, self.reason = step, reason


class Abort(Exception):
    """Raise it to end the saga: every step so far is undone. The reason is a short code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SagaChanged(Exception):
    """The function no longer asks for the steps that were started.

    It was changed while sagas were on their way, or it depends on time or chance.
    """


@dataclass(frozen=True)
class Step:
    """One call of `Saga.step`. Awaiting it hands it to the run that drives the function."""

    name: str
    action: Action
    undo: Undo | None

    def __await__(self) -> Generator[Step, StepDone, StepDone]:
        return (yield self)


class Saga(msgspec.Struct, frozen=True, kw_only=True):
    """What the function is given beside its payload."""

    id: str
    tenant: str
    correlation_id: str
    #: When it was submitted. The function must not read a clock.
    created_at_ms: int

    def step(self, name: str, action: Action, *, undo: Undo | None = None) -> Step:
        """`await` it: submit a request and wait for its outcome. Raises StepFailed.

        `name` identifies the step in the saga: a step is executed once, whatever crashes. `undo` is
        the request that undoes it, or a function from its outcome to that request.
        """
        if not isinstance(name, str) or not STEP.fullmatch(name):
            raise BadFlow("saga", f"the step {name!r}: a name has 1 to 50 of a-z 0-9 _ and -")
        if not isinstance(action, Payload | Order):
            raise BadFlow("saga", f"the step {name!r} needs the payload of a flow")
        return Step(name, action, undo)


Function = Callable[[Any, Saga], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class SagaFlow(Flow):
    """A flow whose requests are sagas."""

    function: Function | None = None


class SagaOptions(TypedDict, total=False):
    ttl_seconds: float | None
    concurrency: int


def saga(
    name: str, *, attempts: int | None = None, **options: Unpack[SagaOptions]
) -> Callable[[Function], SagaFlow]:
    """Make an async function `(payload, saga)` a saga. Its name begins with `saga.`.

    `attempts`: how often a run is tried that raises anything but StepFailed and Abort. With
    `ttl_seconds`, a saga that takes longer is compensated.
    """
    if not name.startswith(KIND):
        raise BadFlow(name, f"the name of a saga begins with {KIND!r}, like 'saga.order'")
    if unknown := options.keys() - SagaOptions.__annotations__.keys():
        raise TypeError(f"saga() got an unexpected keyword argument {min(unknown)!r}")
    # A run has no effect of its own, so it may be repeated.
    rules = Rules(policy_of(None, attempts), "resend")
    effects: Literal["attempt"] = "attempt"

    def declare(function: Function) -> SagaFlow:
        return SagaFlow(
            name,
            payload_type(name, function),
            _not_bound,
            rules,
            effects=effects,
            function=function,
            **options,
        )

    return declare


async def _not_bound(_payload: object, _attempt: Attempt) -> Any:
    raise BadFlow("saga", "a saga runs in an engine; pass it in the engine's flows")
