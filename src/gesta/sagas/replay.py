"""Runs the function of a saga up to the first step without a recorded outcome.

The function runs without the event loop, so it can await only its steps. It can neither have
effects nor wait for answers that differ when it is repeated. Pure.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.domain.saga.events import Result
from gesta.errors import BadFlow
from gesta.sagas.saga import Abort, Function, Saga, SagaChanged, Step, StepDone, StepFailed


class Known(msgspec.Struct, frozen=True):
    """A step as recorded."""

    flow: str
    request_id: str
    #: None: its outcome is not known yet.
    result: Result | None = None
    provider_id: str = ""
    reason: str = ""
    #: It failed, but evidence of its success arrived later.
    late: bool = False
    #: The operation of the request that the step waits for; empty: the one it began with.
    operation: str = ""

    @property
    def has_effect(self) -> bool:
        return self.result == "done" or self.late


class Replayed(msgspec.Struct, frozen=True):
    """How far the function got."""

    #: Every step that it reached, in order.
    asked: tuple[Step, ...]
    #: The step at which it stopped, because its outcome is not recorded yet.
    stopped_at: Step | None = None
    #: Why it gave up, and the step that failed.
    reason: str = ""
    failed: str = ""


def replay(function: Function, payload: Any, saga: Saga, known: Mapping[str, Known]) -> Replayed:
    """Raises what the function raises, except StepFailed and Abort."""
    asked: list[Step] = []
    coroutine = function(payload, saga)
    try:
        step = _step(coroutine.send(None), asked)
        while (one := known.get(step.name)) is not None and one.result is not None:
            step = _step(
                coroutine.send(done_of(step.name, one))
                if one.result == "done"
                else coroutine.throw(StepFailed(step.name, one.reason)),
                asked,
            )
        replayed = Replayed(tuple(asked), step)
    except StopIteration:
        replayed = Replayed(tuple(asked))
    except StepFailed as failed:
        replayed = Replayed(tuple(asked), None, failed.reason or "failed", failed.step)
    except Abort as abort:
        replayed = Replayed(tuple(asked), None, abort.reason)
    finally:
        coroutine.close()
    if missing := known.keys() - {step.name for step in replayed.asked}:
        raise SagaChanged(
            f"the steps {', '.join(sorted(missing))} were started, and the function no longer"
            " reaches them; do not change it while sagas are running, and do not use the clock or"
            " random numbers in it"
        )
    return replayed


def done_of(name: str, known: Known) -> StepDone:
    return StepDone(name, known.provider_id, known.flow, known.request_id)


def _step(asked: object, so_far: list[Step]) -> Step:
    if not isinstance(asked, Step):
        raise BadFlow(
            "saga",
            f"the function awaited {type(asked).__name__}; a saga may await only its steps: put"
            " everything else into a flow and call it in a step",
        )
    if any(asked.name == step.name for step in so_far):
        raise BadFlow("saga", f"two steps are called {asked.name!r}; each needs its own name")
    so_far.append(asked)
    return asked
