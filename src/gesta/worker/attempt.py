"""Station 6 of 7, the heart: one attempt, one function per arrow: examine → execute → record + settle.

Receives a taken job and its view from pool.py; calls a flow (station 7); hands the outcome to recorder.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from gesta.config import TenantConfig
from gesta.domain.commands import Command, Expire, Lose, Reconciled, Record, Start
from gesta.domain.ids import idempotency_key
from gesta.domain.operation import State
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.flows.flow import Attempt, Executor, Flow
from gesta.job_queue import Ack, Release, Settlement, Taken
from gesta.outbound_http import AttemptEnded, Http
from gesta.recorder import Applied, Recorder, Settle, no_job
from gesta.runtime import Runtime
from gesta.scrub import scrub
from gesta.telemetry import Telemetry
from gesta.views import View
from gesta.worker.deadlines import Deadlines, Running
from gesta.worker.guard import examine
from gesta.worker.lease import Lease

OUTCOMES = (Done, Rejected, Retry, Unknown)


class Attempts:
    """Runs attempts; knows everything one needs except which jobs to take."""

    def __init__(
        self,
        flows: Mapping[str, Flow],
        recorder: Recorder,
        http: Http,
        deadlines: Deadlines,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._flows, self._recorder, self._http = flows, recorder, http
        self._deadlines, self._runtime, self._telemetry = deadlines, runtime, telemetry
        self._decoders = {flow.name: msgspec.json.Decoder(flow.payload) for flow in flows.values()}

    async def run(self, taken: Taken, view: View, config: TenantConfig, lease: Lease, running: Running) -> None:
        """Bring one taken job to a recorded end."""
        flow = self._flows[taken.job.flow]
        finding = examine(view.state, taken, self._runtime.now_ms())
        if finding == "lose":
            applied = await self._apply(taken, view, self._lost(), flow, _keep(taken))
            view = applied.view
            # Under `same_key` the lost attempt may be repeated at once; otherwise the request now stands in unknown.
            finding = examine(view.state, _innocent(taken), self._runtime.now_ms())
        match finding:
            case "execute" | "ask":
                await self._execute(taken, view, flow, config, lease, running, asking=finding == "ask")
            case "expire":
                await self._apply(taken, view, Expire(), flow, _settle(taken))
            case "wait" | "ignore" | "lose":
                await self._recorder.settle(_settle(taken)(view.state, view.state), insist=True)

    async def _execute(
        self, taken: Taken, view: View, flow: Flow, config: TenantConfig, lease: Lease, running: Running, *, asking: bool
    ) -> None:
        state = view.state
        payload = self._payload(flow, view)
        number = state.attempts if asking else state.attempts + 1
        started_ms, started = self._runtime.now_ms(), self._runtime.monotonic()
        outcome: Outcome
        if payload is None:
            outcome = Rejected(
                "bad_payload", "the stored payload no longer fits the flow's type; see docs/add-a-channel.md, Changing a payload"
            )
        elif not lease.is_mine() or lease.token != taken.token:
            # Nothing has been called: the job goes back, or is another worker's already.
            await self._recorder.settle(Release(taken.job.id, taken.token, 0), insist=True)
            return
        else:
            key = idempotency_key(state.tenant, state.id, state.operation, state.intent)
            if flow.journal and not asking:
                view = (await self._apply(taken, view, Start(key), flow, no_job)).view
            attempt = Attempt(
                state.tenant, flow.name, state.id, number, key, state.correlation_id, started_ms, self._http, config
            )
            executor = flow.reconcile if asking and flow.reconcile is not None else flow.execute
            outcome = await self._call(executor, payload, attempt, flow, running)
        latency_ms = (self._runtime.monotonic() - started) * 1000
        self._telemetry.attempt_ended(
            flow, taken, outcome, payload=payload, attempts=number, latency_ms=latency_ms, correlation_id=state.correlation_id
        )
        now, chance = self._runtime.now_ms(), self._runtime.chance()
        command: Command = Reconciled(outcome, now, chance) if asking else Record(outcome, number, now, chance)
        applied = await self._apply(taken, view, command, flow, _settle(taken))
        if not applied.events:
            self._telemetry.late_outcome(flow.name, state.id)

    async def _call(self, executor: Executor, payload: object, attempt: Attempt, flow: Flow, running: Running) -> Outcome:
        """The outcome, whatever the executor does. Only what it says can be Done; everything unexpected may have had its effect."""
        self._deadlines.watch(running, flow.timeout_seconds)
        try:
            answer: object = await executor(payload, attempt)
            if isinstance(answer, OUTCOMES):
                return answer
            return Unknown("unexpected_error", f"the executor returned {type(answer).__name__}, not an Outcome")
        except AttemptEnded as ended:
            return ended.outcome
        except asyncio.CancelledError:
            reason = running.cut_reason
            if reason is None or running.task is None:
                raise
            running.task.uncancel()
            return Unknown(reason, f"no end after {flow.timeout_seconds:g} s" if reason == "timeout" else "")
        except Exception as error:  # noqa: BLE001 -- a flow's bug must not look like a failure that had no effect
            return Unknown("unexpected_error", scrub(f"{type(error).__name__}: {error}"))
        finally:
            self._deadlines.forget(running)

    def _payload(self, flow: Flow, view: View) -> object | None:
        try:
            return self._decoders[flow.name].decode(view.payload)
        except msgspec.ValidationError:
            return None

    def _lost(self) -> Lose:
        return Lose(self._runtime.now_ms(), chance=self._runtime.chance())

    async def _apply(self, taken: Taken, view: View, command: Command, flow: Flow, settle: Settle) -> Applied:
        return await self._recorder.apply(view, command, flow.rules, settle, causation_id=taken.job.id, insist=True)


def _settle(taken: Taken) -> Settle:
    """What becomes of the job once the request is in a given state: kept for the next attempt if that is near, else done with."""

    def settle(_: State, state: State) -> Settlement:
        still_ours = state.dispatch_version == taken.job.dispatch_version and state.wants == taken.job.kind
        if still_ours and not state.is_far:
            return Release(taken.job.id, taken.token, state.due_at or 0)
        return Ack(taken.job.id, taken.token)

    return settle


def _keep(taken: Taken) -> Settle:
    """Hold the job if the request may be executed at once, else as usual."""
    usual = _settle(taken)

    def settle(before: State, state: State) -> Settlement | None:
        settlement = usual(before, state)
        return None if isinstance(settlement, Release) else settlement

    return settle


def _innocent(taken: Taken) -> Taken:
    """The same job once its earlier take has a recorded end."""
    return msgspec.structs.replace(taken, takes=1, job=msgspec.structs.replace(taken.job, suspect=False))
