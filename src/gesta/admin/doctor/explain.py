"""Why has this not been sent yet? One sentence, pure over the request's facts."""

import shlex

import msgspec

from gesta.admin.wording import HERE, Target, ago, joined, moment, options, span, tries
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.flows.deferrals import SECRET_MISSING
from gesta.ports.job_queue import QueueStanding
from gesta.tenants.pauses import Pause, Scope


class RequestFacts(msgspec.Struct, frozen=True):
    """One request as it is now, and who could do something about it."""

    state: State
    now_ms: int
    is_worked_on: bool
    #: Its live job, if it has one.
    job: QueueStanding | None
    #: What holds it, if anything does.
    pause: Pause | None = None
    #: Whether others execute its flow, as this process declares it; None: it does not declare it.
    is_external: bool | None = None
    #: Whether somebody sweeps.
    is_swept: bool = True
    #: How many jobs of its flow somebody has in hand.
    at_work: int = 0
    #: What a command that is advised has to repeat.
    place: Target = HERE
    #: Whether a person it is about was erased, so that nobody can read any more what was asked.
    is_erased: bool = False

    @property
    def is_leased(self) -> bool:
        return self.job is not None and self.job.state == "leased"


#: What may be said in the place of --succeeded.
OTHER_WORDS = "; or with --not-executed or --failed"
#: For so long a ready job may wait although somebody executes its flow and has a free slot.
MOMENT_MS = 5_000


def nobody_executes(flow: str, place: Target, *, is_declared: bool) -> str:
    """`is_declared`: by the program that was asked; then it is the one to start."""
    start = place.process if is_declared else place.process_of_another
    return (
        f"nobody executes {flow}; start a process that declares it: `{start('worker')}` or"
        f" `{start('serve')}`"
    )


def why_not_sent(facts: RequestFacts) -> str:
    state = facts.state
    if state.is_terminal:
        return _ended(facts)
    if state.waits_for_a_person:
        return (
            f"it is in doubt since {moment(state.updated_at)} ({_cause(state)}): it may have been"
            " sent, and only a person can tell; " + _resolve(facts)
        )
    if facts.is_erased and not facts.is_leased:
        return _erased(facts)
    if held := _held(facts, _then(state, facts.now_ms)):
        return held
    if facts.job is not None and facts.job.state == "leased":
        return (
            _abandoned(facts, facts.job)
            if facts.job.is_abandoned(facts.now_ms)
            else _in_hand(state)
        )
    if state.due_at is not None and state.due_at > facts.now_ms:
        return _waits(facts)
    if facts.job is None:
        return _without_a_job(facts)
    if facts.job.state == "waiting" and facts.job.job.due_ms > facts.now_ms:
        return _put_off(facts.job.job.due_ms, facts.now_ms)
    return _ready(facts, facts.now_ms - facts.job.job.due_ms)


def _held(facts: RequestFacts, then: str) -> str:
    """What would hold it back although it were due; nothing where nothing does."""
    if not facts.is_worked_on and not facts.is_swept and not facts.at_work:
        return f"no process works on this store{then}; start `{facts.place.process('serve')}`"
    if facts.pause is not None and not facts.is_leased:
        return _paused(facts.pause, facts.now_ms, facts.place, then)
    return ""


def _erased(facts: RequestFacts) -> str:
    """Nothing that anybody could do now would send it."""
    state, due = facts.state, facts.state.due_at
    if state.status == "unknown":
        return (
            f"it is in doubt ({_cause(state)}), and the person it is about was erased: nobody can"
            " ask about it or send it again, and a person decides; " + _resolve(facts)
        )
    when = (
        "when it is taken"
        if due is None or due <= facts.now_ms
        else f"when it is due, at {_at(due, facts.now_ms)}"
    )
    end = "it cannot be executed any more, and will end as failed (subject_erased)"
    told = f"the person it is about was erased: {end} {when}"
    return "; ".join(part for part in (told, _held(facts, "")) if part)


def _part(place: Target) -> str:
    return f"`{place.process('worker')}` (or `{place.process('serve')}`)"


def _resolve(facts: RequestFacts) -> str:
    return (
        facts.place.command(f"resolve {facts.state.id} --succeeded --evidence TEXT") + OTHER_WORDS
    )


def _in_hand(state: State) -> str:
    if state.external:
        return (
            f"somebody who executes {state.flow} for us has it in hand, {tries(state.attempts + 1)}"
            f" with this one{_late_cancellation(state)}; without a report it is in doubt when the"
            " lease ends"
        )
    return (
        f"a worker is at it right now, {tries(state.attempts + 1)} with this"
        f" one{_late_cancellation(state)}"
    )


def _abandoned(facts: RequestFacts, job: QueueStanding) -> str:
    state, until_ms = facts.state, job.until_ms or 0
    ended = (
        f"ended {ago(until_ms, facts.now_ms)}"
        if until_ms <= facts.now_ms
        else "is from before the clock was set back"
    )
    if state.external:
        then = (
            "the sweep puts that on record"
            if facts.is_swept
            else f"nobody sweeps to put that on record; start {_part(facts.place)}"
        )
        return (
            f"whoever executes {state.flow} for us had it in hand and has not reported (the lease"
            f" {ended}); {then}"
        )
    return (
        f"the worker that had it is gone (its lease {ended}), and no worker has come for"
        f" it{_late_cancellation(state)}; start one: {_part(facts.place)}"
    )


def _put_off(due_ms: int, now_ms: int) -> str:
    return (
        f"it was put off until {_at(due_ms, now_ms)} without spending a try: its provider takes no"
        " more at a time, or asked for patience; the rates are in the config of its channel"
    )


def _without_a_job(facts: RequestFacts) -> str:
    if not facts.is_worked_on:
        return (
            "its job is not in the queue, and nobody projects, which puts it there; start"
            f" {_part(facts.place)}"
        )
    if not facts.is_swept:
        back = _part(facts.place)
        return (
            "its job is not in the queue, although it is due, and nobody sweeps, which puts it"
            f" back; start {back}"
        )
    return (
        "its job is not in the queue, although it is due; the sweep puts it back within two minutes"
    )


def _ready(facts: RequestFacts, waiting: int) -> str:
    state = facts.state
    if facts.is_external is not None and facts.is_external != state.external:
        who = "others execute" if state.external else "gesta itself executes"
        return (
            f"it was accepted while {state.flow} was declared as a flow that {who}, and stays so:"
            f" declare it so again until it is done, or {facts.place.command(f'cancel {state.id}')}"
            " and submit it anew"
        )
    if state.external:
        return (
            f"it is ready since {span(waiting)} and waits for somebody of tenant {state.tenant} who"
            f" executes {state.flow} to come for it: POST /v1/flows/{state.flow}/work; gesta itself"
            " never does"
        )
    since = f"it is ready since {span(waiting)} and nobody has taken it yet"
    if facts.at_work:
        return (
            f"{since}: every slot is busy, {facts.at_work} of {state.flow} are at work;"
            f" `{facts.place.command('doctor')}` shows the queue"
        )
    if waiting < MOMENT_MS:
        return (
            f"{since}: the next free worker does, if one runs that declares the flow {state.flow}"
        )
    return (
        f"{since}:"
        f" {nobody_executes(state.flow, facts.place, is_declared=facts.is_external is not None)}"
    )


def _paused(pause: Pause, now_ms: int, place: Target, then: str) -> str:
    """`then`: what holds it back beside the pause."""
    scope, why = pause.scope, f" ({pause.reason})" if pause.reason else ""
    if pause.refusal is not None:
        if pause.reason.startswith(SECRET_MISSING):
            return (
                f"the credential {scope.credential} is not there since {moment(pause.since_ms)}"
                f" ({ago(pause.since_ms, now_ms)}){why}{then}; what uses it goes on when the"
                f" variable is set and the program started again, or: {how_to_change(scope, place)}"
            )
        if pause.kind == "config":
            return (
                f"{scope.credential} is not stored since {moment(pause.since_ms)}"
                f" ({ago(pause.since_ms, now_ms)}){why}{then}; requests that use it are sent when"
                f" it is: {how_to_change(scope, place)}"
            )
        return (
            f"the provider refuses the credential {scope.credential} since {moment(pause.since_ms)}"
            f" ({ago(pause.since_ms, now_ms)}){why}{then}; what uses it goes on when it changes:"
            f" {how_to_change(scope, place)}"
        )
    return (
        f"{scope} is paused since {moment(pause.since_ms)}{why}{then}; it goes on with:"
        f" {how_to_resume(scope, place)}"
    )


def how_to_resume(scope: Scope, place: Target) -> str:
    """The command that ends this very pause."""
    named = options(tenant=scope.tenant, flow=scope.flow, credential=scope.credential)
    return place.process(f"resume{named or ' --everything'}")


def how_to_change(scope: Scope, place: Target) -> str:
    """What ends the refusal of a credential."""
    kind, _, code = (scope.credential or "").partition("/")
    put = place.process(
        f"config put {kind} {shlex.quote(code)} NAME=@FILE{options(tenant=scope.tenant)}"
    )
    return (
        f"{put} with the new secret; if the provider has mended it: {how_to_resume(scope, place)}"
    )


def _ended(facts: RequestFacts) -> str:
    state = facts.state
    when = f"{moment(state.updated_at)} ({ago(state.updated_at, facts.now_ms)})"
    again = facts.place.command(f"redrive {state.id}")
    match state.status:
        case status if status in lifecycle_of(state.flow).success:
            return f"it was {status} at {when}" + (
                f"; the provider calls it {state.provider_id}" if state.provider_id else ""
            )
        case "failed" if state.reason == "subject_erased":
            return (
                f"it failed for good at {when}: the person it is about was erased, and it cannot be"
                " sent any more"
            )
        case "failed":
            return (
                f"it failed for good at {when} after {tries(state.attempts)}: {_cause(state)};"
                f" again: {again}"
            )
        case "expired":
            return f"its time to live ended at {when} before it was done; again: {again}"
        case _:
            return f"it was called back at {when}"


def _waits(facts: RequestFacts) -> str:
    state, now_ms = facts.state, facts.now_ms
    due, inline = state.due_at or now_ms, facts.place.command(f"retry {state.id}")
    when = _at(due, now_ms)
    if state.status == "unknown":
        step = (
            "sent again under the same key"
            if state.policy == "resend"
            else "asked about at the provider"
        )
        return f"it is in doubt ({_cause(state)}) and will be {step} at {when}"
    if state.attempts > state.attempts_before:
        return (
            f"it waits until {when} because of {_cause(state)}, after {tries(state.attempts)}; at"
            f" once: {inline}"
        )
    return f"it is scheduled for {when}; at once: {inline}"


def _at(due_ms: int, now_ms: int) -> str:
    return f"{moment(due_ms)} (in {span(due_ms - now_ms)})"


def _then(state: State, now_ms: int) -> str:
    """What would still hold it back if somebody worked, or nothing were paused."""
    return (
        f" (and it is not due before {moment(state.due_at)})"
        if state.due_at is not None and state.due_at > now_ms
        else ""
    )


def _late_cancellation(state: State) -> str:
    return (
        "; a cancel was asked for, and the end of this attempt decides"
        if state.cancel_requested
        else ""
    )


def _cause(state: State) -> str:
    return joined(state.reason or "no reason given", state.detail)
