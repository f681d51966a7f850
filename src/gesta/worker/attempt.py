"""Station 6 of 7, the heart: one attempt, one function per arrow: examine → execute → record +
settle.

Receives a taken job and its view from pool.py; calls a flow (station 7); hands the outcome to
recorder.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

import msgspec

from gesta.domain.commands import Command, Reconciled, RecordOutcome, Start
from gesta.domain.ids import idempotency_key
from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.domain.state import State
from gesta.errors import BadConfig
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import CredentialRefused, Postponed
from gesta.flows.flow import Executor, Flow
from gesta.outbound.http import AttemptEnded, Http
from gesta.outbound.rate_limits import Limits, Tokens
from gesta.outbound.smtp import Mail
from gesta.ports.job_queue import LeasedJob, Release
from gesta.ports.read_model import View
from gesta.requests.recorder import Applied, Recorder, Settle, no_job
from gesta.runtime.clock import Runtime
from gesta.runtime.redaction import scrub
from gesta.runtime.telemetry import LogContext, Telemetry
from gesta.security.subject_keys import Readable
from gesta.tenants.config import TenantConfig
from gesta.tenants.flow_records import Records, TenantRecords
from gesta.tenants.templates.templates import Templates
from gesta.worker.deadlines import Deadlines, Running
from gesta.worker.lease import Lease
from gesta.worker.outcome_sanitizer import discreet, sound
from gesta.worker.preflight import Finding, Guard, examine, settle_of, settled
from gesta.worker.release import JobRelease, unusable

if TYPE_CHECKING:
    from gesta.worker.test_mode import SandboxMode

BAD_PAYLOAD = Rejected(
    "bad_payload",
    "the stored payload no longer fits the flow's type; see docs/add-a-channel.md, Changing a"
    " payload",
)
NO_TESTS = Rejected(
    "not_for_tests",
    "the flow no longer says that it reaches nobody but the sandbox; nothing was called",
)
TENANTS_KEPT = 1_000


class Attempts:
    """Runs attempts; knows everything one needs except which jobs to take."""

    def __init__(
        self,
        flows: Mapping[str, Flow],
        recorder: Recorder,
        http: Callable[[], Http],
        templates: Callable[[TenantConfig], Templates],
        tokens: Tokens,
        job_release: JobRelease,
        deadlines: Deadlines,
        runtime: Runtime,
        telemetry: Telemetry,
        mail: Mail,
        records: Records,
        report_to: str = "",
    ) -> None:
        self._flows, self._recorder, self._http, self._templates = flows, recorder, http, templates
        self._tokens, self._job_release, self._guard = tokens, job_release, Guard(recorder, runtime)
        self._mail, self._records, self._report_to = mail, records, report_to
        #: The world of test requests, made for the first of them.
        self._trial: SandboxMode | None = None
        self._of_tenants: dict[str, tuple[Limits, TenantRecords]] = {}
        self._deadlines, self._runtime, self._telemetry = deadlines, runtime, telemetry
        self._decoders = {flow.name: msgspec.json.Decoder(flow.payload) for flow in flows.values()}

    def run(
        self, view: View, readable: Readable, config: TenantConfig, lease: Lease, running: Running
    ) -> Coroutine[None, None, None]:
        """Bring one taken job to a recorded end.

        `readable` is the view's payload, its sealed fields opened, or why they cannot be.
        """
        leased = running.leased
        flow = self._flows[leased.job.flow]
        if not lease.covers(leased.token):
            return self._give_back(leased, lease)
        finding = examine(view.state, leased, self._runtime.now_ms(), flow.rules)
        if finding in ("execute", "ask"):
            return self._execute(
                view, readable, flow, config, lease, running, asking=finding == "ask"
            )
        return self._deal_with(finding, view, readable, flow, config, lease, running)

    async def _deal_with(
        self,
        finding: Finding,
        view: View,
        readable: Readable,
        flow: Flow,
        config: TenantConfig,
        lease: Lease,
        running: Running,
    ) -> None:
        kept = await self._guard.deal_with(finding, running.leased, view, flow.rules)
        if kept is not None:
            view, finding = kept
            await self._execute(
                view, readable, flow, config, lease, running, asking=finding == "ask"
            )

    async def _give_back(self, leased: LeasedJob, lease: Lease) -> None:
        """Nothing has been called.

        A suspect job stays under the lease that is ending: released, it would look innocent.
        """
        if not leased.is_possibly_executed:
            await self._recorder.settle(Release(leased.job.id, leased.token, 0), insist=True)
        elif leased.token == lease.token:
            # And end it must: renewed for the sake of other jobs, it would keep this one from
            # everybody for as long.
            lease.lose("it ended before a job of another one that was lost")

    async def _execute(
        self,
        view: View,
        readable: Readable,
        flow: Flow,
        config: TenantConfig,
        lease: Lease,
        running: Running,
        *,
        asking: bool,
    ) -> None:
        leased, state = running.leased, view.state
        payload, obstacle = self._payload(flow, readable)
        if state.test:
            config, obstacle = self._sandbox_config(config, flow, payload, obstacle)
        number = state.attempts if asking else state.attempts + 1
        key = idempotency_key(state.tenant, state.id, state.operation, state.intent)
        if obstacle is None and flow.journal and not asking:
            applied = await self._apply(leased, view, Start(key), flow, no_job)
            view = applied.view
            if not applied.events:
                # Another worker has begun, or it was called back or ended meanwhile: only the
                # winner calls.
                await self._recorder.settle(settled(leased, view.state, view.state), insist=True)
                return
        started_ms, started = self._runtime.now_ms(), self._runtime.monotonic()
        outcome: Outcome
        if obstacle is not None:
            # Nobody can ask without it either, and a question that was not asked ends no doubt.
            outcome = Unknown(obstacle.reason, obstacle.detail) if asking else obstacle
        elif not lease.covers(leased.token):
            outcome = Retry("lease_lost", "nothing was called")
        else:
            running.view, running.asking, running.used = view, asking, config.used
            http, mail, limits, records = self._ways_out(state)
            attempt = Attempt(
                state.tenant,
                flow.name,
                state.id,
                number,
                key,
                state.correlation_id,
                started_ms,
                http,
                config,
                limits,
                self._templates(config),
                state.attempted_from if asking else started_ms,
                mail,
                records,
                state.test,
                self._report_to,
            )
            executor = flow.reconcile if asking else flow.execute
            if executor is None:
                # Asked under an earlier declaration of the flow. Whatever follows, a question never
                # becomes a call.
                outcome = Unknown("cannot_ask", "the flow no longer says how to ask the provider")
            else:
                try:
                    outcome = await self._call(executor, payload, attempt, flow, running)
                except Postponed as postponed:
                    if not running.is_abandoned:
                        await self._job_release.postponed(leased, view, flow, postponed)
                    return
                except CredentialRefused as refused:
                    if not running.is_abandoned:
                        await self._job_release.refused(
                            leased, view, flow, refused, payload, config
                        )
                    return
        outcome = discreet(outcome, payload, config.opened)
        latency_ms = (self._runtime.monotonic() - started) * 1000
        # First on record, then told: whatever is wrong with a log must not lose an outcome.
        # Of one that was abandoned the job was settled then, and may be in other hands.
        settle = no_job if running.is_abandoned else settle_of(leased)
        called = obstacle is None
        applied = await self._record(
            leased, view, flow, outcome, config.used, settle, asking=asking, called=called
        )
        is_told = self._telemetry.attempt_ended(flow, outcome, latency_ms)
        if applied.events and not is_told:
            return
        line = LogContext(flow, leased, payload, state.correlation_id)
        if is_told:
            self._telemetry.attempt_told(
                line, flow, outcome, payload=payload, attempts=number, latency_ms=latency_ms
            )
        if isinstance(outcome, Unknown) and outcome.reason == "unexpected_error":
            self._telemetry.executor_raised(line, outcome.detail)
        if applied.events:
            self._telemetry.given_up(applied.view.state, line)
        else:
            self._telemetry.late_outcome(line, flow.name)

    def _ways_out(self, state: State) -> tuple[Http, Mail, Limits, TenantRecords]:
        """All ways by which an executor can have an effect. Those of a test end in the sandbox."""
        if state.test:
            trial = self._trial or self._make_sandbox_mode()
            return trial.http(), trial.mail, trial.limits, trial.records(state.tenant)
        return (
            self._http(),
            self._mail,
            *(self._of_tenants.get(state.tenant) or self._of_tenant(state.tenant)),
        )

    def _make_sandbox_mode(self) -> SandboxMode:
        # Imported with the first test: most processes never see one.
        from gesta.worker.test_mode import SandboxMode

        self._trial = SandboxMode(self._records, self._runtime)
        return self._trial

    def _sandbox_config(
        self, config: TenantConfig, flow: Flow, payload: object, obstacle: Rejected | Retry | None
    ) -> tuple[TenantConfig, Rejected | Retry | None]:
        """Config without secrets; and what is in the way of a test, if anything is."""
        from gesta.worker.test_mode import sandbox_config

        if obstacle is not None or not flow.sandbox:
            # Declared otherwise when it was submitted.
            return config, obstacle or NO_TESTS
        return sandbox_config(config, flow, payload), None

    def _of_tenant(self, tenant: str) -> tuple[Limits, TenantRecords]:
        """What is the same for all attempts of a tenant, kept for those that were seen lately."""
        if len(self._of_tenants) >= TENANTS_KEPT:
            self._of_tenants.clear()
        made = self._of_tenants[tenant] = Limits(self._tokens, tenant), self._records.of(tenant)
        return made

    async def abandon(self, running: Running) -> None:
        """Record an attempt that was cut off and does not end.

        Should it end one day, evidence of success still counts.
        """
        assert running.view is not None
        flow = self._flows[running.leased.job.flow]
        outcome = Unknown(
            running.cut_reason or "timeout", "the executor was cut off and does not end"
        )
        settle = settle_of(running.leased)
        await self._record(
            running.leased, running.view, flow, outcome, running.used, settle, asking=running.asking
        )
        payload, _ = self._payload(flow, running.view.payload)
        self._telemetry.executor_does_not_end(
            LogContext(flow, running.leased, payload, running.view.state.correlation_id)
        )

    def _record(
        self,
        leased: LeasedJob,
        view: View,
        flow: Flow,
        outcome: Outcome,
        used: Mapping[str, int],
        settle: Settle,
        *,
        asking: bool,
        called: bool = True,
    ) -> Coroutine[None, None, Applied]:
        now, chance, state = self._runtime.now_ms(), self._runtime.chance(), view.state
        command: Command
        if asking:
            command = Reconciled(outcome, now, chance, state.operation)
        else:
            command = RecordOutcome(
                outcome,
                state.attempts + 1,
                now,
                chance,
                state.intent,
                used,
                called,
                state.operation,
            )
        return self._apply(leased, view, command, flow, settle)

    async def _call(
        self, executor: Executor, payload: object, attempt: Attempt, flow: Flow, running: Running
    ) -> Outcome:
        """The outcome, whatever the executor does.

        Only what it says can be Done; everything unexpected may have had its effect.
        """
        self._deadlines.watch(running, flow.timeout_seconds)
        try:
            return sound(await executor(payload, attempt))
        except AttemptEnded as ended:
            return sound(ended.outcome)
        except Postponed:
            raise
        except CredentialRefused as refused:
            if attempt.test:
                # None was used, so the tenant's own is not held for it.
                return Rejected(
                    "credential_refused", "the sandbox refused the stand-in for the credential"
                )
            if (outcome := unusable(refused, attempt.tenant)) is None:
                raise
            return outcome
        except BadConfig as error:
            # Stored config that cannot be read may be put right; nothing was sent without it.
            return Retry("bad_config", scrub(str(error)))
        except asyncio.CancelledError:
            if running.cut_reason is not None:
                return Unknown(
                    running.cut_reason,
                    (
                        f"no end after {flow.timeout_seconds:g} s"
                        if running.cut_reason == "timeout"
                        else ""
                    ),
                )
            if running.task is not None and running.task.cancelling():
                # The whole program ends.
                raise
            return Unknown("unexpected_error", "the executor awaited something that was cancelled")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 -- a flow's bug must not look like a failure that had no effect
            detail = scrub(f"{type(error).__name__}: {error} (at {_place(error)})")
            return Unknown("unexpected_error", detail)
        finally:
            self._deadlines.forget(running)
            if running.cut_reason is not None and running.task is not None:
                running.task.uncancel()

    def _payload(self, flow: Flow, readable: Readable) -> tuple[object, Rejected | Retry | None]:
        """The payload, or with what an attempt ends that has none."""
        if not isinstance(readable, bytes):
            return None, readable
        try:
            return self._decoders[flow.name].decode(readable), None
        except msgspec.ValidationError:
            return None, BAD_PAYLOAD

    def _apply(
        self, leased: LeasedJob, view: View, command: Command, flow: Flow, settle: Settle
    ) -> Coroutine[None, None, Applied]:
        return self._recorder.apply(
            view, command, flow.rules, settle, causation_id=leased.job.id, insist=True
        )


def _place(error: BaseException) -> str:
    """Where it was raised, for whoever wrote the executor."""
    frames = extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
