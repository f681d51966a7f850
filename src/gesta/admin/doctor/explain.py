"""Explains in one sentence why a request has not been executed yet. Pure."""

from collections.abc import Sequence

import msgspec

from gesta.admin.wording import (
    HERE,
    Target,
    ago,
    count_of,
    joined,
    moment,
    options,
    process_name,
    span,
    verb,
)
from gesta.api_types.config_commands import put_command, resume_command
from gesta.domain.hold_words import hold_words
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.flows.deferrals import SECRET_MISSING
from gesta.ports.job_queue import QueueStanding
from gesta.ports.leases import LiveProcess
from gesta.tenants.pauses import Pause, Scope


class RequestFacts(msgspec.Struct, frozen=True):
    """One request as it is now, and the processes that could execute it."""

    state: State
    now_ms: int
    is_projected: bool
    #: Its live job, if it has one.
    job: QueueStanding | None
    #: What holds it, if anything does.
    pause: Pause | None = None
    #: Whether external workers execute its flow; None: this process does not declare the flow.
    is_external: bool | None = None
    is_swept: bool = True
    #: Jobs of its flow that are leased to workers.
    at_work: int = 0
    #: The options that a suggested command repeats.
    place: Target = HERE
    #: Whether a data subject was erased, so that the payload cannot be decrypted.
    is_erased: bool = False
    #: Every live process of the store.
    processes: Sequence[LiveProcess] = ()
    #: The queue, where it cannot be asked for a job; then `job` is None.
    unlisted_queue: str = ""

    @property
    def is_declared(self) -> bool:
        return self.is_external is not None

    def decision(self, words: str) -> str:
        """The command with which a person decides about it; it needs the flow."""
        if self.is_declared:
            return self.place.command(words)
        return self.place.command_of_another(words, self.state.flow)

    def start_of(self, words: str) -> str:
        """The command that starts a process with its flow."""
        return start_of(words, self.state.flow, self.place, is_declared=self.is_declared)

    @property
    def is_leased(self) -> bool:
        return self.job is not None and self.job.state == "leased"


OTHER_WORDS = "; or --not-executed or --failed instead of --succeeded"
#: A ready job may wait this long although a worker with a free slot runs.
MOMENT_MS = 5_000


def start_of(words: str, flow: str, place: Target, *, is_declared: bool) -> str:
    """`is_declared`: this program declares the flow, so it is the one to start."""
    return place.process(words) if is_declared else place.process_of_another(words, flow)


def no_worker_executes(flow: str, place: Target, *, is_declared: bool) -> str:
    worker, serve = (
        start_of(words, flow, place, is_declared=is_declared) for words in ("worker", "serve")
    )
    return f"no worker executes {flow}; start a process that declares it: `{worker}` or `{serve}`"


def why_not_sent(facts: RequestFacts) -> str:
    state = facts.state
    if state.is_terminal:
        return _ended(facts)
    if state.waits_for_a_person:
        return (
            f"its outcome has been unknown since {moment(state.updated_at)} ({_cause(state)}):"
            " it may"
            " have been executed, and a person has to resolve it: " + _resolve(facts)
        )
    if facts.is_erased and not facts.is_leased:
        return _erased(facts)
    if held := _held(facts, _then(state, facts.now_ms)):
        return held
    if facts.job is not None and facts.job.state == "leased":
        return (
            _abandoned(facts, facts.job)
            if facts.job.is_abandoned(facts.now_ms)
            else _running(state)
        )
    if state.due_at is not None and state.due_at > facts.now_ms:
        return _waits(facts)
    if facts.unlisted_queue and facts.is_projected:
        return _in_an_unlisted_queue(facts)
    if facts.job is None:
        return _without_a_job(facts)
    if facts.job.state == "waiting" and facts.job.job.due_ms > facts.now_ms:
        return _postponed(facts.job.job.due_ms, facts.now_ms)
    return _ready(facts, facts.now_ms - facts.job.job.due_ms)


def _held(facts: RequestFacts, then: str) -> str:
    """What would hold it even if it were due; empty: nothing."""
    is_idle = not facts.is_projected and not facts.is_swept and not facts.at_work
    parts = []
    if is_idle and not facts.processes:
        parts = [f"no process runs on this store{then}; start `{facts.start_of('serve')}`"]
        then = ""
    if facts.pause is not None and not facts.is_leased:
        # One that starts would hold it.
        parts.append(_paused(facts.pause, facts.now_ms, facts.place, then))
    return "; ".join(parts)


def _erased(facts: RequestFacts) -> str:
    state, due = facts.state, facts.state.due_at
    if state.status == "unknown":
        return (
            f"its outcome is unknown ({_cause(state)}), and a data subject was erased: gesta can"
            " neither reconcile nor resend it, so a person has to resolve it: " + _resolve(facts)
        )
    when = (
        "when a worker takes it"
        if due is None or due <= facts.now_ms
        else f"when it is due, at {_at(due, facts.now_ms)}"
    )
    text = (
        "a data subject was erased: it cannot be executed any more and will fail (subject_erased)"
        f" {when}"
    )
    return "; ".join(part for part in (text, _held(facts, "")) if part)


def _part(place: Target) -> str:
    return f"`{place.process('worker')}` (or `{place.process('serve')}`)"


def _resolve(facts: RequestFacts) -> str:
    return facts.decision(f"resolve {facts.state.id} --succeeded --evidence TEXT") + OTHER_WORDS


def _running(state: State) -> str:
    attempt = f"attempt {state.attempts + 1}{_late_cancellation(state)}"
    if state.external:
        return (
            f"an external worker is executing it, {attempt}; without a report its outcome is"
            " unknown when the lease ends"
        )
    return f"a worker is executing it, {attempt}"


def _abandoned(facts: RequestFacts, job: QueueStanding) -> str:
    state, until_ms = facts.state, job.until_ms or 0
    ended = (
        f"ended {ago(until_ms, facts.now_ms)}"
        if until_ms <= facts.now_ms
        else "is from before the clock was set back"
    )
    if state.external:
        then = (
            "the sweeper will record that"
            if facts.is_swept
            else f"no sweeper runs to record that; start {_part(facts.place)}"
        )
        return (
            f"an external worker of {state.flow} leased it and has not reported (the lease"
            f" {ended}); {then}"
        )
    return (
        f"its worker died (the lease {ended}), and no other worker has taken"
        f" it{_late_cancellation(state)}; start one: {_part(facts.place)}"
    )


def _postponed(due_ms: int, now_ms: int) -> str:
    return (
        f"it is postponed until {_at(due_ms, now_ms)}, because a rate limit of the provider was"
        " reached; this uses up no attempt. The rates are in the config of its channel"
    )


def _in_an_unlisted_queue(facts: RequestFacts) -> str:
    state, queue = facts.state, facts.unlisted_queue
    if state.started is not None:
        return (
            f"attempt {state.started} has begun{_late_cancellation(state)}; if its worker has died,"
            f" {queue} delivers the job again when its visibility timeout ends"
        )
    return (
        f"its job is in {queue}, which cannot look up a single job; a worker takes it in its turn."
        " If the job was lost, the sweeper puts a new one after 15 minutes"
    )


def _without_a_job(facts: RequestFacts) -> str:
    if not facts.is_projected:
        return (
            "its job is not in the queue yet, and no projector is running to put it there; start"
            f" {_part(facts.place)}"
        )
    if not facts.is_swept:
        return (
            "its job is missing from the queue, and no sweeper is running to put it back; start"
            f" {_part(facts.place)}"
        )
    return "its job is missing from the queue; the sweeper puts it back within two minutes"


def _ready(facts: RequestFacts, waiting: int) -> str:
    state = facts.state
    if facts.is_external is not None and facts.is_external != state.external:
        who = "external workers execute" if state.external else "gesta executes"
        return (
            f"it was accepted while {state.flow} was declared as a flow that {who}: declare it"
            " that way again until it is done,"
            f" or {facts.place.command(f'cancel {state.id}')} and submit it"
            " again"
        )
    if state.external:
        return (
            f"it has been ready for {span(waiting)} and waits for an external worker of tenant"
            f" {state.tenant}: POST /v1/flows/{state.flow}/work; gesta does not execute this flow"
        )
    since = f"it has been ready for {span(waiting)} and no worker has taken it yet"
    if facts.at_work:
        return (
            f"{since}: every slot is busy, {facts.at_work} of {state.flow} are running;"
            f" `{facts.place.command('doctor')}` shows the queue"
        )
    if waiting < MOMENT_MS:
        return f"{since}: the next free worker that declares {state.flow} will take it"
    if workers := [one for one in facts.processes if "worker" in one.roles]:
        names = ", ".join(process_name(one) for one in workers)
        return (
            f"{since}: {names} {verb(len(workers), 'runs a worker', 'run workers')}, but none takes"
            f" {state.flow}; start a worker that declares it: `{facts.start_of('worker')}`, or look"
            " at the logs of those"
        )
    return f"{since}: {no_worker_executes(state.flow, facts.place, is_declared=facts.is_declared)}"


def _paused(pause: Pause, now_ms: int, place: Target, then: str) -> str:
    scope, why = pause.scope, f" ({pause.reason})" if pause.reason else ""
    if pause.refusal is not None:
        if pause.reason.startswith(SECRET_MISSING):
            return (
                f"the credential {scope.credential} has been missing since {moment(pause.since_ms)}"
                f" ({ago(pause.since_ms, now_ms)}){why}{then}; set the variable and restart the"
                f" program, or store it: {how_to_put(scope, place)}"
            )
        if pause.kind == "config":
            return (
                f"{scope.credential} is not stored, and the request has waited for it since"
                f" {moment(pause.since_ms)} ({ago(pause.since_ms, now_ms)}){then}; to store it:"
                f" {how_to_put(scope, place)}"
            )
        return (
            f"the provider has refused the credential {scope.credential} since"
            f" {moment(pause.since_ms)} ({ago(pause.since_ms, now_ms)}){why}{then}; requests that"
            " use it are held until it"
            f" changes: {how_to_change(scope, place)}"
        )
    return (
        f"{hold_words(str(scope))} has been paused since {moment(pause.since_ms)}{why}{then};"
        " to resume:"
        f" {how_to_resume(scope, place)}"
    )


def how_to_resume(scope: Scope, place: Target) -> str:
    """The command that ends exactly this pause."""
    return place.process(resume_command(scope.flow, scope.tenant, scope.credential))


def how_to_put(scope: Scope, place: Target) -> str:
    kind, _, code = (scope.credential or "").partition("/")
    return place.process(f"{put_command(kind, code)}{options(tenant=scope.tenant)}")


def how_to_change(scope: Scope, place: Target) -> str:
    return (
        f"{how_to_put(scope, place)} with the new secret; if the provider accepts the old one"
        f" again: {how_to_resume(scope, place)}"
    )


def _ended(facts: RequestFacts) -> str:
    state = facts.state
    when = f"{moment(state.updated_at)} ({ago(state.updated_at, facts.now_ms)})"
    again = facts.decision(f"redrive {state.id}")
    match state.status:
        case status if status in lifecycle_of(state.flow).success:
            return f"it was {status} at {when}" + (
                f"; its id at the provider is {state.provider_id}" if state.provider_id else ""
            )
        case "failed" if state.reason == "subject_erased":
            return (
                f"it failed at {when}: a data subject was erased, and it cannot be executed any"
                " more"
            )
        case "failed":
            return (
                f"it failed at {when} after {count_of(state.attempts, 'attempt')}:"
                f" {_cause(state)}; to execute it again: {again}"
            )
        case "expired":
            return (
                f"its time to live ended at {when} before it was executed; to execute it again:"
                f" {again}"
            )
        case "compensated":
            return (
                f"it was compensated at {when}: {_cause(state)}; the steps that had succeeded were"
                " undone"
            )
        case _:
            return f"it was cancelled at {when}"


def _waits(facts: RequestFacts) -> str:
    state, now_ms = facts.state, facts.now_ms
    due, retry = state.due_at or now_ms, facts.decision(f"retry {state.id}")
    when = _at(due, now_ms)
    if state.status == "waiting":
        return f"it waits for the outcome of {state.detail or 'a step'}"
    if state.status == "unknown":
        step = (
            "gesta resends it with the same key"
            if state.policy == "resend"
            else "gesta asks the provider"
        )
        return f"its outcome is unknown ({_cause(state)}); {step} at {when}"
    if state.attempts > state.attempts_before:
        return (
            f"its next attempt is at {when}: {_cause(state)}, after"
            f" {count_of(state.attempts, 'attempt')}; to try now: {retry}"
        )
    return f"it is scheduled for {when}; to execute it now: {retry}"


def _at(due_ms: int, now_ms: int) -> str:
    return f"{moment(due_ms)} (in {span(due_ms - now_ms)})"


def _then(state: State, now_ms: int) -> str:
    return (
        f" (and it is not due before {moment(state.due_at)})"
        if state.due_at is not None and state.due_at > now_ms
        else ""
    )


def _late_cancellation(state: State) -> str:
    return "; it will be cancelled unless this attempt succeeds" if state.cancel_requested else ""


def _cause(state: State) -> str:
    return joined(state.reason or "no reason given", state.detail)
