"""gesta executes side effects once and keeps the record."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gesta.domain.events import Actor
    from gesta.domain.money import Money
    from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
    from gesta.domain.retry_policy import RetryPolicy
    from gesta.domain.status_events import Event
    from gesta.engine.engine import Engine
    from gesta.engine.request import Request
    from gesta.errors import (
        Conflict,
        Erased,
        GestaError,
        InDoubt,
        InvalidRequest,
        NotFound,
        OutcomeTimeout,
        Overloaded,
        Refused,
    )
    from gesta.flows.attempt import Attempt
    from gesta.flows.external import external
    from gesta.flows.flow import Flow, Payload, Personal, flow
    from gesta.intake.submit_options import Options
    from gesta.runtime.settings import Settings
    from gesta.sagas.saga import Abort, Saga, StepFailed, saga

__all__ = [
    "Abort",
    "Actor",
    "Attempt",
    "Conflict",
    "Done",
    "Engine",
    "Erased",
    "Event",
    "Flow",
    "GestaError",
    "InDoubt",
    "InvalidRequest",
    "Money",
    "NotFound",
    "Options",
    "Outcome",
    "OutcomeTimeout",
    "Overloaded",
    "Payload",
    "Personal",
    "Refused",
    "Rejected",
    "Request",
    "Retry",
    "RetryPolicy",
    "Saga",
    "Settings",
    "StepFailed",
    "Unknown",
    "external",
    "flow",
    "saga",
]

#: Module → the public names that live there.
_HOMES = {
    "gesta.domain.events": ("Actor",),
    "gesta.domain.money": ("Money",),
    "gesta.domain.outcome": ("Done", "Outcome", "Rejected", "Retry", "Unknown"),
    "gesta.domain.retry_policy": ("RetryPolicy",),
    "gesta.domain.status_events": ("Event",),
    "gesta.engine.engine": ("Engine",),
    "gesta.errors": (
        "Conflict",
        "Erased",
        "GestaError",
        "InDoubt",
        "InvalidRequest",
        "NotFound",
        "OutcomeTimeout",
        "Refused",
        "Overloaded",
    ),
    "gesta.flows.attempt": ("Attempt",),
    "gesta.flows.external": ("external",),
    "gesta.flows.flow": ("Flow", "Payload", "Personal", "flow"),
    "gesta.intake.submit_options": ("Options",),
    "gesta.engine.request": ("Request",),
    "gesta.runtime.settings": ("Settings",),
    "gesta.sagas.saga": ("Abort", "Saga", "StepFailed", "saga"),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first use, so that `gesta --help` does not load an engine."""
        for home, names in _HOMES.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(home), name))
        raise AttributeError(f"module 'gesta' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted(__all__)
