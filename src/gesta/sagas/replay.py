"""Runs the function of a saga up to the first step whose outcome is not on record.

The function is driven by hand and not by the event loop: it can await its steps and nothing else,
so it cannot have effects or wait for answers that a repetition would not repeat. Pure.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.domain.saga.events import Result
from gesta.errors import BadFlow
from gesta.sagas.saga import Abort, Function, Saga, SagaChanged, Step, StepDone, StepFailed


class Known(msgspec.Struct, frozen=True):
    """A step as it is on record."""

    flow: str
    request_id: str
    #: None: its outcome is not known yet.
    result: Result | None = None
    provider_id: str = ""
    reason: str = ""
    #: It failed, and turned out later to have succeeded.
    late: bool = False
    #: The operation of the request that the step waits for; empty: the one it began with.
    operation: str = ""

    @property
    def has_effect(self) -> bool:
        return self.result == "done" or self.late


class Replayed(msgspec.Struct, frozen=True):
    """How far the function came."""

    #: Every step that it asked for, in order.
    asked: tuple[Step, ...]
    #: The step at which it stopped: its outcome is not on record.
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
