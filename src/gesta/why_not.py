"""Why has this not been sent yet? One sentence, pure over the request's facts."""

from __future__ import annotations

import msgspec

from gesta.cli.wording import ago, joined, moment, span, tries
from gesta.domain.operation import State
from gesta.job_queue import Standing
from gesta.pauses import Pause, Scope
from gesta.unspent import SECRET_MISSING


class RequestFacts(msgspec.Struct, frozen=True):
    """One request as it is now, and who could do something about it."""

    state: State
    now_ms: int
    is_worked_on: bool
    #: Its live job, if it has one.
    job: Standing | None
    #: What holds it, if anything does.
    pause: Pause | None = None
    #: Whether others execute its flow, as this process declares it; None: it does not declare it.
    is_external: bool | None = None
    #: Whether somebody sweeps.
    is_swept: bool = True
    #: How many jobs of its flow somebody has in hand.
    at_work: int = 0


#: For so long a ready job may wait although somebody executes its flow and has a free slot.
MOMENT_MS = 5_000


def nobody_executes(flow: str) -> str:
    return f"nobody executes {flow}; start a process that declares it: `gesta worker --app …` or `gesta serve --app …`"


def why_not_sent(facts: RequestFacts) -> str:
    state = facts.state
    if state.is_terminal:
        return _ended(state, facts.now_ms)
    if state.waits_for_a_person:
        return (
            f"it is in doubt since {moment(state.updated_at)} ({_cause(state)}): it may have been sent, and only a person can tell; "
            f"gesta resolve {state.id} --executed|--not-executed|--rejected --evidence TEXT"
        )
    if not facts.is_worked_on and not facts.is_swept and not facts.at_work:
        return f"no process works on this store{_then(state, facts.now_ms)}; start `gesta serve`"
    if facts.pause is not None and (facts.job is None or facts.job.state != "leased"):
        return _paused(facts.pause, facts.now_ms)
    if facts.job is not None and facts.job.state == "leased":
        return _abandoned(facts, facts.job) if facts.job.is_abandoned(facts.now_ms) else _in_hand(state)
    if state.due_at is not None and state.due_at > facts.now_ms:
        return _waits(state, facts.now_ms)
    if facts.job is None:
        return _without_a_job(facts)
    if facts.job.state == "waiting" and facts.job.job.due_ms > facts.now_ms:
        return _put_off(facts.job.job.due_ms, facts.now_ms)
    return _ready(facts, facts.now_ms - facts.job.job.due_ms)


def _in_hand(state: State) -> str:
    if state.external:
        return (
            f"somebody who executes {state.flow} for us has it in hand, {tries(state.attempts + 1)} with this one{_called_back(state)}; without a report "
            "it is in doubt when the lease ends"
        )
    return f"a worker is at it right now, {tries(state.attempts + 1)} with this one{_called_back(state)}"


def _abandoned(facts: RequestFacts, job: Standing) -> str:
    state, until_ms = facts.state, job.until_ms or 0
    ended = f"ended {ago(until_ms, facts.now_ms)}" if until_ms <= facts.now_ms else "is from before the clock was set back"
    if state.external:
        then = (
            "the sweep puts that on record"
            if facts.is_swept
            else "nobody sweeps to put that on record; start `gesta sweeper` (or `gesta serve`)"
        )
        return f"whoever executes {state.flow} for us had it in hand and has not reported (the lease {ended}); {then}"
    return (
        f"the worker that had it is gone (its lease {ended}), and no worker has come for it{_called_back(state)}; "
        "start one: `gesta worker` (or `gesta serve`)"
    )


def _put_off(due_ms: int, now_ms: int) -> str:
    return (
        f"it was put off until {moment(due_ms)} (in {span(due_ms - now_ms)}) without spending a try: its provider takes no more at a time, or asked for "
        "patience; the rates are in the config of its channel"
    )


def _without_a_job(facts: RequestFacts) -> str:
    if not facts.is_worked_on:
        return "its job is not in the queue, and nobody projects, which puts it there; start `gesta projector` (or `gesta serve`)"
    if not facts.is_swept:
        return "its job is not in the queue, although it is due, and nobody sweeps, which puts it back; start `gesta sweeper` (or `gesta serve`)"
    return "its job is not in the queue, although it is due; the sweep puts it back within two minutes"


def _ready(facts: RequestFacts, waiting: int) -> str:
    state = facts.state
    if facts.is_external is not None and facts.is_external != state.external:
        who = "others execute" if state.external else "gesta itself executes"
        return (
            f"it was accepted while {state.flow} was declared as a flow that {who}, and stays so: declare it so again until it is done, "
            f"or gesta cancel {state.id} and submit it anew"
        )
    if state.external:
        return (
            f"it is ready since {span(waiting)} and waits for somebody of tenant {state.tenant} who executes {state.flow} to come for it: "
            f"POST /v1/flows/{state.flow}/work; gesta itself never does"
        )
    since = f"it is ready since {span(waiting)} and nobody has taken it yet"
    if facts.at_work:
        return f"{since}: every slot is busy, {facts.at_work} of {state.flow} are at work; `gesta doctor` shows the queue"
    if waiting < MOMENT_MS:
        return f"{since}: the next free worker does, if one runs that declares the flow {state.flow}"
    return f"{since}: {nobody_executes(state.flow)}"


def _paused(pause: Pause, now_ms: int) -> str:
    scope, why = pause.scope, f" ({pause.reason})" if pause.reason else ""
    if pause.refusal is not None:
        if pause.reason.startswith(SECRET_MISSING):
            return (
                f"the credential {scope.credential} is not there since {moment(pause.since_ms)} ({ago(pause.since_ms, now_ms)}){why}; "
                f"what uses it goes on when the variable is set and the program started again, or: {_change(scope)}"
            )
        return (
            f"the provider refuses the credential {scope.credential} since {moment(pause.since_ms)} ({ago(pause.since_ms, now_ms)}){why}; "
            f"what uses it goes on when it changes: {_change(scope)}"
        )
    named = {"flow": scope.flow, "tenant": scope.tenant, "credential": scope.credential}
    options = " ".join(f"--{name} {value}" for name, value in named.items() if value is not None)
    options = options or "--everything"
    return f"{scope} is paused since {moment(pause.since_ms)}{why}; it goes on with: gesta resume {options}"


def _change(scope: Scope) -> str:
    kind, _, code = (scope.credential or "").partition("/")
    again = f"gesta resume --tenant {scope.tenant} --credential {scope.credential}"
    return f"gesta config put {kind} {code} with the new secret (NAME=@FILE) --tenant {scope.tenant}; if the provider has mended it: {again}"


def _ended(state: State, now_ms: int) -> str:
    when = f"{moment(state.updated_at)} ({ago(state.updated_at, now_ms)})"
    match state.status:
        case "sent":
            return f"it was sent at {when}" + (f"; the provider calls it {state.provider_id}" if state.provider_id else "")
        case "failed" if state.reason == "subject_erased":
            return f"it failed for good at {when}: the person it is about was erased, and it cannot be sent any more"
        case "failed":
            return f"it failed for good at {when} after {tries(state.attempts)}: {_cause(state)}; again: gesta redrive {state.id}"
        case "expired":
            return f"its time to live ended at {when} before it was done; again: gesta redrive {state.id}"
        case _:
            return f"it was called back at {when}"


def _waits(state: State, now_ms: int) -> str:
    due = state.due_at or now_ms
    when = f"{moment(due)} (in {span(due - now_ms)})"
    if state.status == "unknown":
        step = "sent again under the same key" if state.policy == "same_key" else "asked about at the provider"
        return f"it is in doubt ({_cause(state)}) and will be {step} at {when}"
    if state.attempts > state.attempts_before:
        return f"it waits until {when} because of {_cause(state)}, after {tries(state.attempts)}; at once: gesta retry {state.id}"
    return f"it is scheduled for {when}; at once: gesta retry {state.id}"


def _then(state: State, now_ms: int) -> str:
    """What would still hold it back if somebody worked."""
    return f" (and it is not due before {moment(state.due_at)})" if state.due_at is not None and state.due_at > now_ms else ""


def _called_back(state: State) -> str:
    return "; a cancel was asked for, and the end of this attempt decides" if state.cancel_requested else ""


def _cause(state: State) -> str:
    return joined(state.reason or "no reason given", state.detail)
