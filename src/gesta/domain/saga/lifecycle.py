"""The lifecycle of a saga.

A saga is executed in runs. A run starts the next step and then waits; `Wake` opens the next run
when the request of the step has ended. A run has no effect of its own: submitting a step again
under the same key changes nothing. So a lost run is repeated, and a saga is never `unknown`.
"""

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any, Literal

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    Command,
    CommandRefused,
    Expire,
    Lose,
    RecordOutcome,
    Redrive,
    Rules,
)
from gesta.domain.lifecycle import lifecycle
from gesta.domain.operation import Operation
from gesta.domain.operation.decide import DECISIONS
from gesta.domain.outcome import Done, Retry, Unknown
from gesta.domain.saga.events import (
    Compensated,
    CompensationStarted,
    StepEnded,
    StepStarted,
    Suspended,
    Woken,
)
from gesta.domain.state import State

#: A waiting saga checks its step this often, even if nothing wakes it.
LOOK_AGAIN_MS = 6 * 3_600_000
#: The reason of a saga whose undo failed, until a person has dealt with it.
UNDO_FAILED = "compensation_failed"

Progress = StepStarted | StepEnded | CompensationStarted
Ending = Literal["wait", "completed", "compensated", "failed"]


class Wake(Command, frozen=True, gc=False):
    """A request of the saga has ended."""

    request_id: str
    #: Whether it succeeded.
    done: bool


class Advance(Command, frozen=True, gc=False):
    """A run ended: what it learned and started, and how the saga continues."""

    progress: tuple[Progress, ...]
    ending: Ending
    #: `State.dispatch_version` of the run. A later run decides how the saga continues.
    dispatch: int
    #: The step that it waits for or that failed; the request of that step; why it failed.
    step: str = ""
    request_id: str = ""
    reason: str = ""
    #: The result of a completed saga.
    provider_id: str = ""


def steps_of(state: State, *, undo: bool = False) -> dict[str, dict[str, Any]]:
    """Step → its flow, request and result, in the order in which they were started."""
    return state.facts.get("undos" if undo else "steps", {})  # type: ignore[no-any-return]


def compensates(state: State) -> bool:
    return "compensating" in state.facts


def _wake(state: State, command: Wake, *_: object) -> list[e.Event]:
    if state.is_terminal:
        # A step or an undo that had failed turned out to have succeeded.
        failed = any(
            one["id"] == command.request_id and one.get("result") == "failed"
            for undo in (False, True)
            for one in steps_of(state, undo=undo).values()
        )
        is_late = command.done and failed and compensates(state)
        return [Woken(command.request_id, again=True)] if is_late else []
    if state.status == "waiting":
        return [Woken(command.request_id, again=True)]
    return [] if state.facts.get("woken") else [Woken(command.request_id)]


def _advance(state: State, command: Advance, *_: object) -> list[e.Event]:
    events: list[e.Event] = [one for one in command.progress if _is_new(state, one)]
    if state.dispatch_version != command.dispatch or state.is_terminal:
        # Another run has taken over: of this run, only the started steps count.
        return [one for one in events if isinstance(one, StepStarted)]
    reason = command.reason or state.facts.get("compensating", {}).get("reason", "")
    match command.ending:
        case "wait":
            events.append(Suspended(command.step, command.request_id))
        case "completed":
            events.append(e.Completed(state.attempts + 1, command.provider_id))
        case "failed":
            events.append(
                e.Failed(UNDO_FAILED, state.attempts, retryable=True, last_error=command.reason)
            )
        case "compensated" if reason == "cancelled" and not _has_effect(state, events):
            events.append(e.Cancelled(state.attempts))
        case "compensated" if reason == "expired" and not _has_effect(state, events):
            events.append(e.Expired(state.attempts))
        case "compensated":
            events.append(Compensated(reason, command.step))
    return events


def _has_effect(state: State, events: Sequence[e.Event]) -> bool:
    """Whether a step has ever succeeded, undone or not."""
    return any(
        one.get("result") == "done" or one.get("late") for one in steps_of(state).values()
    ) or any(isinstance(one, StepEnded) and one.result == "done" for one in events)


def _is_new(state: State, event: Progress) -> bool:
    if isinstance(event, CompensationStarted):
        return not compensates(state)
    known = steps_of(state, undo=event.undo).get(event.step)
    if isinstance(event, StepStarted):
        return known is None
    return (
        known is None
        or (event.late and not known.get("late"))
        or (not event.late and known.get("result") != event.result)
    )


def _record(
    state: State, command: RecordOutcome, rules: Rules, operation: Operation
) -> list[e.Event]:
    outcome = command.outcome
    if isinstance(outcome, Done):
        # A run ends with Advance.
        return []
    if isinstance(outcome, Unknown):
        command = replace(command, outcome=Retry(outcome.reason, outcome.detail))
    return DECISIONS[RecordOutcome](state, command, rules, operation)


def _lose(state: State, command: Lose, rules: Rules, operation: Operation) -> list[e.Event]:
    if state.wants != "execute" or (state.due_at is not None and command.at < state.due_at):
        return []
    lost = RecordOutcome(Retry(command.reason, command.detail), state.attempts + 1, command.at)
    return [
        replace(one, next_attempt_at=command.at)
        if isinstance(one, e.AttemptFailed) and one.next_attempt_at is not None
        # The lease has expired: that was the wait.
        else one
        for one in DECISIONS[RecordOutcome](state, lost, rules, operation)
    ]


def _cancel(state: State, *_: object) -> list[e.Event]:
    if state.status in ("cancelled", "compensated") or compensates(state):
        return []
    if state.is_terminal and state.status != "failed":
        raise CommandRefused(
            "already_ended", f"the saga is {state.status}; it can no longer be cancelled"
        )
    return [CompensationStarted("cancelled"), Woken(again=True)]


def _redrive(state: State, command: Redrive, rules: Rules, operation: Operation) -> list[e.Event]:
    if state.status in ("cancelled", "expired"):
        # The keys of its steps are already used.
        raise CommandRefused(
            "not_supported", f"the saga is {state.status}; submit a new one under another key"
        )
    return DECISIONS[Redrive](state, command, rules, operation)


def _expire(state: State, command: Expire, *_: object) -> list[e.Event]:
    if state.is_terminal or state.expires_at is None or compensates(state):
        return []
    if command.at is not None and command.at < state.expires_at:
        return []
    return [CompensationStarted("expired"), Woken(again=True)]


def _step_started(state: State, event: StepStarted, version: int, at: int) -> State:
    started = {"flow": event.flow, "id": event.request_id}
    if event.operation:
        started["operation"] = event.operation
    return _with_step(state, event, version, at, started)


def _step_ended(state: State, event: StepEnded, version: int, at: int) -> State:
    known = steps_of(state, undo=event.undo).get(event.step, {"flow": "", "id": ""})
    if event.late:
        ended = {**known, "late": True, "provider_id": event.provider_id}
    else:
        ended = {**known, "result": event.result}
        ended |= {"provider_id": event.provider_id} if event.provider_id else {}
        ended |= {"reason": event.reason} if event.reason else {}
    return _with_step(state, event, version, at, ended)


def _with_step(
    state: State, event: StepStarted | StepEnded, version: int, at: int, step: dict[str, Any]
) -> State:
    steps = {**steps_of(state, undo=event.undo), event.step: step}
    facts = {**state.facts, "undos" if event.undo else "steps": steps}
    return replace(state, version=version, updated_at=at, facts=facts)


def _compensation_started(state: State, event: CompensationStarted, version: int, at: int) -> State:
    facts = {**state.facts, "compensating": {"reason": event.reason, "step": event.step}}
    # It has ended by its own time limit, or ends otherwise.
    return replace(state, version=version, updated_at=at, facts=facts, expires_at=None)


def _suspended(state: State, event: Suspended, version: int, at: int) -> State:
    if state.facts.get("woken"):
        return _opened(state, version, at)
    detail = f"step {event.step}, request {event.request_id}" if event.step else ""
    return replace(
        _opened(state, version, at),
        status="waiting",
        due_at=at + LOOK_AGAIN_MS,
        dispatch_version=state.dispatch_version,
        reason="waits_for_step",
        detail=detail,
    )


def _woken(state: State, event: Woken, version: int, at: int) -> State:
    if event.again:
        return _opened(state, version, at)
    return replace(state, version=version, updated_at=at, facts={**state.facts, "woken": True})


def _opened(state: State, version: int, at: int) -> State:
    """The saga with a new run, which is due now and has a fresh budget of attempts."""
    return replace(
        state,
        version=version,
        updated_at=at,
        status="queued",
        phase="open",
        due_at=at,
        dispatch_version=version,
        attempts_before=state.attempts,
        reopened_at=at,
        reason="",
        detail="",
        held="",
        purged=False,
        facts={name: fact for name, fact in state.facts.items() if name != "woken"},
    )


def _compensated(state: State, event: Compensated, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        status="compensated",
        phase="ended",
        due_at=None,
        reason=event.reason,
        detail=f"step {event.step}" if event.step else "",
    )


_BASE = lifecycle(
    "saga",
    Operation("run", e.Completed, e.CompletedLate, "completed"),
    decisions={
        Wake: _wake,
        Advance: _advance,
        RecordOutcome: _record,
        Lose: _lose,
        Cancel: _cancel,
        Expire: _expire,
        Redrive: _redrive,
    },
    folds={
        StepStarted: _step_started,
        StepEnded: _step_ended,
        CompensationStarted: _compensation_started,
        Suspended: _suspended,
        Woken: _woken,
        Compensated: _compensated,
    },
    event_names={
        kind: kind.__name__
        for kind in (StepStarted, StepEnded, CompensationStarted, Suspended, Woken, Compensated)
    },
    words={Compensated: "compensated"},
)
SAGA = changed(
    _BASE,
    statuses=("queued", "waiting", "completed", "compensated", "failed", "expired", "cancelled"),
    open=frozenset({"queued", "waiting"}),
    terminal=_BASE.terminal | {"compensated"},
)
