"""One attempt: a leased job becomes a recorded outcome.

`Attempts.run` is the whole attempt, one line per step: examine, prepare, journal, call, record,
report. Each step reads and fills one value, `Running`. pool.py starts attempts; a flow's executor
does the call; requests/recorder.py appends the outcome and settles the job in one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import force_setattr

from gesta.domain.commands import Command, Reconciled, RecordOutcome, ReleaseRequest, Start
from gesta.domain.ids import idempotency_key
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown, clear_text
from gesta.domain.state import State
from gesta.errors import BadConfig, StoreError
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import ConfigMissing, CredentialRefused, Decided, Postponed
from gesta.flows.flow import Executor, Flow, Render, Rendered
from gesta.flows.personal_fields import personal_fields, personal_texts
from gesta.outbound.http import AttemptEnded, Http
from gesta.outbound.http.client import error_code
from gesta.outbound.lookups import LOOKUP_TENANT
from gesta.outbound.rate_limits import Limits, Tokens
from gesta.outbound.smtp import Mail
from gesta.ports.job_queue import LeasedJob, Release
from gesta.ports.read_model import View
from gesta.requests.recorder import Applied, Given, Recorder, Settle, no_job
from gesta.runtime.clock import Runtime
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process
from gesta.runtime.redaction import hide, scrub
from gesta.runtime.telemetry import LogContext
from gesta.security.call_journal import CallJournal
from gesta.security.subject_keys import ERASED, Readable, SubjectKeys
from gesta.tenants.config import ConfigCache, TenantConfig
from gesta.tenants.flow_records import Records, TenantRecords
from gesta.tenants.templates.templates import Templates
from gesta.worker.deadlines import Deadlines
from gesta.worker.lease import Lease
from gesta.worker.outcome_sanitizer import discreet, has_private_texts, protected, sound
from gesta.worker.preflight import Finding, Guard, examine, settle_of, settled
from gesta.worker.premise import OF_CALLERS, check_premise
from gesta.worker.release import JobRelease, unusable

if TYPE_CHECKING:
    from gesta.worker.test_mode import SandboxMode

BAD_PAYLOAD = Rejected(
    "bad_payload",
    "the stored payload no longer fits the flow's type; see docs/add-a-channel.md, Changing a"
    " payload",
)
BAD_JOURNAL = Rejected(
    "bad_journal", "the journaled call cannot be read: the call or the master key was changed"
)
NO_TESTS = Rejected(
    "not_for_tests",
    "the flow no longer declares effects='attempt', so a test could leave the sandbox; nothing was"
    " called",
)
#: Why a running call was cancelled, in words; any other reason: it took too long.
CUT_DETAILS = {
    "lease_lost": "the worker could not renew its lease in the store and cut the call",
    "stopping": "the process stopped and cut the call",
}
TENANTS_KEPT = 1_000
#: The part of a provider's answer, and of a traceback, that is recorded.
TEXT_BYTES = 2_000
NO_FACTS: Mapping[str, Any] = {}

Obstacle = Rejected | Retry
#: Reads requests of one tenant by flow and id.
Reader = Callable[[Sequence[tuple[str, str]]], Awaitable[list[State]]]


class Running:
    """One attempt, from its leased job to its recorded outcome."""

    __slots__ = (
        "asking",
        "attempt",
        "call",
        "config",
        "cut_reason",
        "error",
        "flow",
        "http",
        "is_abandoned",
        "is_journaled",
        "key",
        "lease",
        "leased",
        "mail",
        "number",
        "obstacle",
        "payload",
        "readable",
        "rendered",
        "started",
        "started_ms",
        "task",
        "view",
        "wrong_answer",
    )

    flow: Flow
    config: TenantConfig
    #: Which attempt of the request it is, and the key for the provider.
    number: int
    key: str
    #: When it began, by the wall clock and by the monotonic one.
    started_ms: int
    started: float

    def __init__(self, leased: LeasedJob, view: View, readable: Readable, *, lease: Lease) -> None:
        """`readable` is the view's payload with its encrypted fields decrypted, or the reason why
        they cannot be.
        """
        self.leased, self.view, self.readable, self.lease = leased, view, readable, lease
        self.task: asyncio.Task[Any] | None = None
        #: Whether the call only asks the provider what it did.
        self.asking = False
        self.payload: object = None
        #: The call that an earlier attempt journaled, in clear text; and the call that this one
        #: rendered.
        self.call = b""
        self.rendered: Rendered | None = None
        #: The template renderer that the flow was given.
        self.attempt: Attempt | None = None
        #: The unexpected exception that the executor raised.
        self.error: BaseException | None = None
        #: What the executor returned instead of an outcome: the name of a type, no content.
        self.wrong_answer = ""
        #: The HTTP and mail clients that the executor was given; None: nothing was called.
        self.http: Http | None = None
        self.mail: Mail | None = None
        #: The outcome if nothing can be called.
        self.obstacle: Obstacle | None = None
        #: Why it was cancelled; None if it was not.
        self.cut_reason: str | None = None
        #: It was cancelled and does not end: its outcome was recorded without waiting for it.
        self.is_abandoned = False
        #: Its call was journaled together with those of its batch: what is left is the call.
        self.is_journaled = False

    @property
    def log_context(self) -> LogContext:
        return LogContext(
            self.flow,
            self.leased,
            self.payload,
            correlation_id=self.view.state.correlation_id,
            personal=personal_texts(self.payload),
        )

    def log_tags(self) -> dict[str, str]:
        return self.log_context.tags()

    @property
    def has_sent(self) -> bool:
        """Whether something may have been sent through `attempt.http` or `attempt.mail`."""
        return (self.http is not None and self.http.has_sent) or (
            self.mail is not None and self.mail.has_sent
        )


class ExecutorTools:
    """Everything through which an executor has effects. For a test request it ends in the
    sandbox.
    """

    def __init__(
        self,
        *,
        http: Callable[[], Http],
        mail: Callable[[], Mail],
        tokens: Tokens,
        templates: Callable[[TenantConfig], Templates],
        records: Records,
        report_to: str,
        journal: CallJournal,
        runtime: Runtime,
    ) -> None:
        self.journal = journal
        self._http, self._mail, self._tokens, self._records = http, mail, tokens, records
        self.templates, self.report_to, self._runtime = templates, report_to, runtime
        #: Made for the first test request: most processes never see one.
        self.sandbox_mode: SandboxMode | None = None
        self._of_tenants: dict[str, tuple[Limits, TenantRecords]] = {}

    def of(self, state: State) -> tuple[Http, Mail, Limits, TenantRecords]:
        if state.test:
            sandbox = self.sandbox_mode or self._make_sandbox_mode()
            return sandbox.http(), sandbox.mail(), sandbox.limits, sandbox.records(state.tenant)
        limits, records = self._of_tenants.get(state.tenant) or self._of_tenant(state.tenant)
        return self._http(), self._mail(), limits, records

    def _make_sandbox_mode(self) -> SandboxMode:
        from gesta.worker.test_mode import SandboxMode

        self.sandbox_mode = SandboxMode(self._records, self._runtime)
        return self.sandbox_mode

    def _of_tenant(self, tenant: str) -> tuple[Limits, TenantRecords]:
        """The same for all attempts of a tenant; cached for the tenants that were seen last."""
        if len(self._of_tenants) >= TENANTS_KEPT:
            self._of_tenants.clear()
        made = self._of_tenants[tenant] = Limits(self._tokens, tenant), self._records.of(tenant)
        return made


class Attempts:
    """Runs attempts; knows everything one needs except which jobs to lease."""

    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        config: ConfigCache,
        recorder: Recorder,
        job_release: JobRelease,
        deadlines: Deadlines,
        tools: ExecutorTools,
        subject_keys: SubjectKeys,
        process: Process,
    ) -> None:
        self._flows, self._config, self._recorder = flows, config, recorder
        self._subject_keys = subject_keys
        self._job_release, self._deadlines, self.tools = job_release, deadlines, tools
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._host, _, self._worker = process.owner.partition(":")
        self._guard = Guard(recorder, process.runtime)
        self._readers: dict[str, Reader] = {}
        self._decoders = {flow.name: msgspec.json.Decoder(flow.payload) for flow in flows.values()}
        self._private = {flow.name for flow in flows.values() if has_private_texts(flow)}

    async def run(self, run: Running) -> None:
        """Bring one leased job to a recorded end."""
        if not run.is_journaled:
            finding = self._examine(run)
            if run.view.state.held and finding in ("execute", "reconcile"):
                run.view = (await self._apply(run, ReleaseRequest(), no_job)).view
                finding = self._examine(run)
            if finding not in ("execute", "reconcile") and not await self._settle(run, finding):
                return
            self._prepare(run)
        try:
            if not run.is_journaled and self._has_beginning(run) and not await self._begin(run):
                return
            executor = run.flow.reconcile if run.asking else run.flow.execute
            outcome = self._not_called(run, executor)
            if outcome is None:
                assert executor is not None
                outcome = await self._call(run, executor, self._attempt(run))
        except Postponed as postponed:
            if not run.is_abandoned:
                await self._job_release.postponed(run, postponed)
            return
        except CredentialRefused as refused:
            if not run.is_abandoned:
                await self._job_release.refused(run, refused)
            return
        except Decided as decided:
            settle = no_job if run.is_abandoned else settle_of(run.leased)
            await self._apply(run, decided.command, settle)
            return
        latency_ms = (self._runtime.monotonic() - run.started) * 1000
        outcome = discreet(outcome, run.payload, run.config.opened)
        if run.flow.name in self._private:
            outcome = await protected(outcome, run.flow, run.view, self._subject_keys)
        # Recorded first, then logged: an error in logging must not lose an outcome. The job of an
        # abandoned attempt was settled then, and another worker may hold it.
        settle = no_job if run.is_abandoned else settle_of(run.leased)
        facts: dict[str, Any] = {
            "started_at": run.started_ms,
            "worker": self._worker,
            "host": self._host,
        }
        if run.http is not None and (answer := run.http.last) is not None:
            facts["http_status"] = answer.status
        if not isinstance(outcome, Done):
            facts |= await self._texts(run)
        applied = await self._record(run, outcome, settle, called=run.obstacle is None, facts=facts)
        is_logged = self._telemetry.attempt_ended(run.flow, outcome, latency_ms)
        if is_logged or not applied.events:
            self._report(run, outcome, applied, latency_ms if is_logged else None)

    async def begin_all(self, runs: Sequence[Running]) -> None:
        """Journal the calls of a batch in one write. `run` makes them.

        Only calls that need nothing from a store and nothing decided first: for the others, `run`
        does everything.
        """
        starting: list[Running] = []
        views = await self._recorder.apply_all(self._starts(runs, starting))
        for run, view in zip(starting, views, strict=True):
            if view is not None:
                run.view, run.is_journaled = view, True

    def _starts(self, runs: Sequence[Running], starting: list[Running]) -> Iterator[Given]:
        """The commands that journal the calls, one by one: each is recorded while its parts are in
        the processor's cache. `starting` gets their attempts.
        """
        for run in runs:
            try:
                start = self._start_of(run)
            except Exception:  # noqa: BLE001, S112 -- `run` meets the same error and deals with it
                continue
            if start is not None:
                starting.append(run)
                yield Given(run.view, start, run.flow.rules, run.leased.job.id)

    def _start_of(self, run: Running) -> Start | None:
        """The command that journals the call; None: that takes more than this."""
        state = run.view.state
        if (
            self._examine(run) != "execute"
            or run.flow.render is None
            or state.held
            or state.journal
            or state.source != OF_CALLERS
        ):
            return None
        self._prepare(run)
        if run.obstacle is not None:
            return None
        run.attempt = self._attempt(run)
        made = run.flow.render(run.payload, run.attempt)
        if not isinstance(made, Rendered):
            made.close()
            return None
        call = self.tools.journal.encrypt_now(state, made.call)
        if call is None:
            return None
        run.rendered = made
        return Start(run.key, {**made.facts, "call": call}, state.operation, state.intent)

    async def abandon(self, run: Running) -> None:
        """Record an attempt that was cancelled and does not end.

        If it ends later, evidence of success still counts.
        """
        outcome = Unknown(
            run.cut_reason or "timeout", "the executor was cancelled and does not end"
        )
        await self._record(run, outcome, settle_of(run.leased), called=True)
        self._telemetry.executor_does_not_end(run.log_context)

    def _examine(self, run: Running) -> Finding | Literal["release"]:
        job = run.leased.job
        run.flow, run.config = self._flows[job.flow], self._config.of(job.tenant)
        if not run.lease.covers(run.leased.token):
            return "release"
        run.started_ms = self._runtime.now_ms()
        finding = examine(run.view.state, run.leased, run.started_ms, run.flow.rules)
        run.asking = finding == "reconcile"
        return finding

    async def _settle(self, run: Running, finding: Finding | Literal["release"]) -> bool:
        """Settle a job that is not to be executed; returns whether it is to be executed after
        all.
        """
        if finding == "release":
            await self._release(run.leased, run.lease)
            return False
        kept = await self._guard.deal_with(finding, run.leased, run.view, run.flow.rules)
        if kept is None:
            return False
        run.view, run.asking = kept[0], kept[1] == "reconcile"
        run.started_ms = self._runtime.now_ms()
        return True

    async def _release(self, leased: LeasedJob, lease: Lease) -> None:
        """Nothing has been called.

        A possibly executed job stays under the lease that is ending: if it were released, it would
        look clean.
        """
        if not leased.is_possibly_executed:
            await self._recorder.settle(Release(leased.job.id, leased.token, 0), insist=True)
        elif leased.token == lease.token:
            # The lease must end: if it were renewed for other jobs, no worker would get this one.
            lease.lose("it ended before a job of another one that was lost")

    def _has_beginning(self, run: Running) -> bool:
        """Whether `_begin` has anything to do, so that other attempts need not await it."""
        flow = run.flow
        return flow.journal or flow.render is not None or run.view.state.source != OF_CALLERS

    async def _begin(self, run: Running) -> bool:
        """Render and journal the call, where the flow requires it; False: there is nothing more to
        do.
        """
        if run.view.state.source != OF_CALLERS and not run.asking:
            await check_premise(run.view.state, self._recorder)
        if run.flow.render is not None and run.obstacle is None:
            await self._render(run, run.flow.render)
        return not run.flow.journal or await self._journal(run)

    def _prepare(self, run: Running) -> None:
        """Decode the payload; find out whether anything prevents the call."""
        state = run.view.state
        run.started = self._runtime.monotonic()
        run.number = state.attempts if run.asking else state.attempts + 1
        run.key = idempotency_key(state.tenant, state.id, state.operation, state.intent)
        # What was rendered with a batch belongs to the config that was read then.
        run.attempt = run.rendered = None
        if not isinstance(run.readable, bytes):
            run.obstacle = run.readable
        else:
            try:
                run.payload = self._decoders[run.flow.name].decode(run.readable)
            except msgspec.ValidationError:
                run.obstacle = BAD_PAYLOAD
        if run.asking and run.flow.render is not None and not state.test:
            # The journaled call is all that a look-up needs.
            run.obstacle = None
        if state.test and run.obstacle is None:
            if run.flow.effects != "attempt":
                # The flow was declared differently when the request was submitted.
                run.obstacle = NO_TESTS
                return
            from gesta.worker.test_mode import sandbox_config

            run.config = sandbox_config(run.config, run.flow, run.payload)

    async def _render(self, run: Running, render: Render) -> None:
        """The call of this intent: the journaled one, or a new one for the first attempt."""
        state = run.view.state
        if state.journal:
            try:
                call = await self.tools.journal.read(state)
            except StoreError:
                raise Postponed(STORE_PAUSE_SECONDS) from None
            if call is None:
                run.obstacle = BAD_JOURNAL
            else:
                run.call = call
            return
        if run.asking:
            run.obstacle = BAD_JOURNAL
            return
        try:
            run.attempt = self._attempt(run)
            made = render(run.payload, run.attempt)
            run.rendered = made if isinstance(made, Rendered) else await made
        except AttemptEnded as ended:
            outcome = sound(ended.outcome)
            # Nothing was sent, whatever the flow says.
            run.obstacle = (
                outcome
                if isinstance(outcome, Rejected | Retry)
                else Retry("not_rendered", getattr(outcome, "detail", ""))
            )
        except BadConfig as error:
            run.obstacle = Retry("bad_config", scrub(str(error)))
        except CredentialRefused as refused:
            if not state.test and unusable(refused, state.tenant) is None:
                raise
            run.obstacle = Rejected(refused.reason, refused.detail)

    async def _journal(self, run: Running) -> bool:
        """Record that the call begins, if the flow requires it. Returns False if another worker has
        begun, or if the request was cancelled or has ended meanwhile.
        """
        if run.obstacle is not None or run.asking:
            return True
        facts: dict[str, Any] = {}
        if run.rendered is not None:
            call = await self.tools.journal.encrypt(run.view.state, run.rendered.call)
            facts = {**run.rendered.facts, "call": call}
        elif run.flow.render is None:
            rules = run.flow.rules
            key_seconds = rules.key_protects_seconds if rules.on_unknown == "resend" else 0.0
            facts = {"can_look_up": run.flow.reconcile is not None, "key_seconds": key_seconds}
        state = run.view.state
        start = Start(run.key, facts, state.operation, state.intent)
        applied = await self._apply(run, start, no_job)
        run.view = view = applied.view
        if not applied.events:
            await self._recorder.settle(settled(run.leased, view.state, view.state), insist=True)
        return bool(applied.events)

    def _not_called(self, run: Running, executor: Executor | None) -> Outcome | None:
        """The outcome if nothing is to be called; None: make the call."""
        if run.obstacle is not None:
            # If the provider was not asked, nothing is resolved.
            obstacle = run.obstacle
            if run.asking:
                # What was erased stays so: a person is asked now, not after the last look-up.
                is_final = obstacle is ERASED
                return Unknown(obstacle.reason, obstacle.detail, manual=is_final)
            return obstacle
        if not run.lease.covers(run.leased.token):
            return Retry("lease_lost", "nothing was called")
        if executor is None:
            # An earlier declaration of the flow had a reconcile function. A look-up never becomes a
            # call.
            return Unknown("cannot_ask", "the flow no longer has a reconcile function")
        return None

    def _attempt(self, run: Running) -> Attempt:
        state, started_ms = run.view.state, run.started_ms
        if run.attempt is not None and run.rendered is not None:
            # Since it was rendered, only the journal of the same operation and intent was written.
            # Only `render` has seen this value: to change it costs less than another one.
            rendered, attempt = run.rendered, run.attempt
            force_setattr(attempt, "in_doubt", state.in_doubt)
            force_setattr(attempt, "facts", state.facts)
            force_setattr(attempt, "call", rendered.call)
            force_setattr(attempt, "prepared", rendered.prepared)
            return attempt
        run.http, run.mail, limits, records = self.tools.of(state)
        # By position: so many keywords would take a microsecond.
        return Attempt(
            state.tenant,
            run.flow.name,
            state.id,
            run.number,
            run.key,
            state.correlation_id,
            started_ms,
            run.http,
            run.config,
            limits,
            self.tools.templates(run.config),
            state.attempted_from if run.asking else started_ms,
            run.mail,
            records,
            state.test,
            self.tools.report_to,
            state.operation,
            state.intent,
            state.in_doubt,
            state.facts,
            self._readers.get(state.tenant) or self._reader(state.tenant),
            run.call,
        )

    def _reader(self, tenant: str) -> Reader:
        """The same for all attempts of a tenant; cached as the tools of an executor are."""
        if len(self._readers) >= TENANTS_KEPT:
            self._readers.clear()
        made = self._readers[tenant] = partial(self._recorder.states, tenant)
        return made

    async def _texts(self, run: Running) -> dict[str, str]:
        """What is recorded of an attempt that did not succeed (events.AttemptEnd)."""
        try:
            code, text = _answer_of(run)
            traceback = "" if run.error is None else run.log_context.traceback(run.error)
            hidden = [*run.config.opened, *personal_texts(run.payload)]
            texts = [
                hide(scrub(one, TEXT_BYTES), hidden) if one else ""
                for one in (text, traceback[-TEXT_BYTES:])
            ]
            if any(texts) and personal_fields(run.flow.payload):
                # Texts of other programs may quote any personal field.
                texts = await self._subject_keys.encrypt_texts(run.view, texts)
            return {"provider_code": code, "answer": texts[0], "traceback": texts[1]}
        except Exception as error:  # noqa: BLE001 -- no outcome is lost for its texts
            self._telemetry.crashed("attempt record", error)
            return {}

    async def _call(self, run: Running, executor: Executor, attempt: Attempt) -> Outcome:
        """The outcome, whatever the executor does.

        It is Done only if the executor returns that; after anything unexpected, the effect may have
        happened.
        """
        seconds = run.flow.timeout_seconds
        self._deadlines.watch(run, seconds)
        LOOKUP_TENANT.set(attempt.tenant)
        try:
            return _returned(run, await executor(run.payload, attempt))
        except AttemptEnded as ended:
            return sound(ended.outcome)
        except (Postponed, Decided):
            raise
        except CredentialRefused as refused:
            if attempt.test and isinstance(refused, ConfigMissing):
                return Rejected(refused.reason, refused.detail)
            if attempt.test:
                # The test used no real credential, so the tenant's credential is not held because
                # of it.
                return Rejected(
                    "credential_refused", "the sandbox refused the placeholder for the credential"
                )
            if (outcome := unusable(refused, attempt.tenant)) is None:
                raise
            return outcome
        except BadConfig as error:
            # Stored config that cannot be read may be repaired; nothing was sent without it.
            return Retry("bad_config", scrub(str(error)))
        except asyncio.CancelledError:
            if run.cut_reason is not None:
                detail = CUT_DETAILS.get(run.cut_reason, f"no end after {seconds:g} s")
                return Unknown(run.cut_reason, detail)
            if run.task is not None and run.task.cancelling():
                # The whole program ends.
                raise
            return Unknown("unexpected_error", "the executor awaited a task that was cancelled")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 -- a bug must not look like no effect
            run.error = error
            detail = scrub(f"{type(error).__name__}: {error} (at {_line_of(error)})")
            if run.flow.effects == "attempt" and not run.has_sent:
                # The flow has effects only through these clients, so nothing has happened.
                return Retry("unexpected_error", detail)
            return Unknown("unexpected_error", detail)
        finally:
            self._deadlines.forget(run)
            if run.cut_reason is not None and run.task is not None:
                run.task.uncancel()

    def _record(
        self,
        run: Running,
        outcome: Outcome,
        settle: Settle,
        *,
        called: bool,
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> Coroutine[None, None, Applied]:
        now, chance, state = self._runtime.now_ms(), self._runtime.chance(), run.view.state
        command: Command
        if run.asking:
            command = Reconciled(outcome, now, chance, state.operation, state.intent)
        else:
            command = RecordOutcome(
                outcome,
                state.attempts + 1,
                now,
                chance,
                state.intent,
                run.config.used,
                called,
                state.operation,
                facts,
            )
        return self._apply(run, command, settle)

    def _report(
        self, run: Running, outcome: Outcome, applied: Applied, latency_ms: float | None
    ) -> None:
        """The log lines of a recorded attempt. `latency_ms`: None if the attempt itself is not
        logged.
        """
        telemetry, line = self._telemetry, run.log_context
        if latency_ms is not None:
            telemetry.log_attempt(line, outcome, attempts=run.number, latency_ms=latency_ms)
        if not isinstance(outcome, Done) and outcome.reason == "unexpected_error":
            telemetry.executor_raised(
                line, clear_text(outcome.detail) or run.wrong_answer, run.error
            )
        if not applied.events:
            telemetry.late_outcome(line, run.flow.name)

    def _apply(
        self, run: Running, command: Command, settle: Settle
    ) -> Coroutine[None, None, Applied]:
        return self._recorder.apply(
            run.view,
            command,
            run.flow.rules,
            settle,
            causation_id=run.leased.job.id,
            insist=True,
            tags=run.log_tags,
        )


def _returned(run: Running, answer: object) -> Outcome:
    """The outcome that the executor returned; what is not an outcome is noted for the log."""
    outcome = sound(answer)
    if outcome is not answer and not isinstance(answer, Outcome):
        run.wrong_answer = outcome.detail
    return outcome


def _answer_of(run: Running) -> tuple[str, str]:
    """The provider's code and the beginning of its last answer."""
    if run.http is not None and (http := run.http.last) is not None:
        return error_code(http), http.body[:TEXT_BYTES].decode(errors="replace")
    if run.mail is not None and (mail := run.mail.last) is not None and mail.reply is not None:
        return str(mail.reply.code), mail.reply.text[:TEXT_BYTES]
    return "", ""


def _line_of(error: BaseException) -> str:
    """Where it was raised, for the author of the executor."""
    frames = extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
