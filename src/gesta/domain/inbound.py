"""The lifecycle of a recorded inbound event: the verdict about it, without its content.

An accepted event becomes a request of another flow. An ignored event is recorded here, so that
operators can find out why nothing happened.
"""

from dataclasses import replace as changed

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import Ignore
from gesta.domain.lifecycle import lifecycle
from gesta.domain.operation import Operation
from gesta.domain.state import State


def _ignore(state: State, command: Ignore, *_: object) -> list[e.Event]:
    return [e.Ignored(command.reason, command.detail)] if state.version == 1 else []


def _ignored(state: State, event: e.Ignored, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        status="ignored",
        phase="ended",
        reason=event.reason,
        detail=event.detail,
        due_at=None,
    )


_SHARED = lifecycle(
    "inbound event",
    Operation("send", e.Completed, e.CompletedLate, "completed"),
    decisions={Ignore: _ignore},
    folds={e.Ignored: _ignored},
    event_names={e.Ignored: "Ignored"},
)
INBOUND = changed(
    _SHARED,
    statuses=(*_SHARED.statuses, "ignored"),
    terminal=_SHARED.terminal | {"ignored"},
)
