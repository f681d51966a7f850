"""The events of a saga, in addition to those of every request."""

from typing import Literal

from gesta.domain.events import Event

Result = Literal["done", "failed"]


class StepStarted(Event, frozen=True, gc=False):
    """The request of a step, or of its undo, was submitted."""

    step: str
    flow: str
    request_id: str
    undo: bool = False
    #: The operation of the request that the step waits for; empty: the one it began with.
    operation: str = ""


class StepEnded(Event, frozen=True, gc=False):
    """The outcome of a step, or of its undo, is known.

    `late`: a step that failed turned out to have succeeded. It is undone like any other.
    """

    step: str
    result: Result
    undo: bool = False
    late: bool = False
    provider_id: str = ""
    reason: str = ""


class CompensationStarted(Event, frozen=True, gc=False):
    """No further step is started; those that succeeded are undone."""

    reason: str
    #: The step that failed, if one did.
    step: str = ""


class Suspended(Event, frozen=True, gc=False):
    """It waits for the outcome of a step or of an undo."""

    step: str = ""
    request_id: str = ""


class Woken(Event, frozen=True, gc=False):
    """There may be something to do: a request of the saga ended, or the saga was cancelled.

    `again`: it gets a new job. Otherwise it has one, and looks again when that ends.
    """

    request_id: str = ""
    again: bool = False


class Compensated(Event, frozen=True, gc=False):
    """Every step that succeeded and can be undone was undone."""

    reason: str
    step: str = ""
