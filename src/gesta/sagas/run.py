"""One run of a saga: record what has ended, then start the next step or the next undo.

A run submits at most one request and records it afterwards. If it dies in between, the next run
submits the same key again and is answered with the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.domain.outcome import Outcome
from gesta.domain.saga.events import CompensationStarted, StepEnded, StepStarted
from gesta.domain.saga.lifecycle import Advance, Ending, Progress, compensates, steps_of
from gesta.domain.state import State
from gesta.domain.status_events import OF_SAGA
from gesta.errors import BadFlow, Conflict, GestaError, InvalidRequest, Overloaded
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import Decided, Postponed
from gesta.flows.flow import Flow, Payload
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.ports.event_store import Claim, KeyClaims
from gesta.ports.read_model import Key
from gesta.requests.loader import Loader
from gesta.runtime.telemetry import Telemetry
from gesta.sagas.orders import BUSY, Opened, Order, Orders, result_of
from gesta.sagas.replay import Known, Replayed, done_of, replay
from gesta.sagas.saga import Action, Saga, SagaFlow, Step
from gesta.sagas.wake_up import WakeUps
from gesta.security.keyed_digests import CONTENT_BYTES, KeyedDigests

#: While intake refuses new requests: when a run is tried again.
OVERLOADED_SECONDS = 5.0
INVALID = "invalid_request"
#: The content of a claim that keeps a step from being started. No payload has this digest, except
#: by chance.
FENCE = bytes(CONTENT_BYTES)


class Started(msgspec.Struct, frozen=True):
    """The request of a step. `is_done`: there was nothing left to do."""

    flow: str
    request_id: str
    operation: str = ""
    is_done: bool = False


class Refused(msgspec.Struct, frozen=True):
    """The step cannot be started; it has failed."""

    reason: str


class Busy(msgspec.Struct, frozen=True):
    """Another operation of the transaction is open or unknown: try again when it has ended."""

    request_id: str


class Fenced(msgspec.Struct, frozen=True):
    """Another run compensates the saga."""


class SagaRuns:
    """Executes the sagas of a process."""

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        self._of_payload = {flow.payload: flow for flow in flows.values()}
        #: The flows, with an executor for each saga.
        self.flows: dict[str, Flow] = {
            name: with_fields(flow, execute=partial(self.run, flow))
            if isinstance(flow, SagaFlow)
            else flow
            for name, flow in flows.items()
        }
        self.are_declared = any(isinstance(flow, SagaFlow) for flow in flows.values())

    def connect(
        self,
        *,
        intake: Intake,
        loader: Loader,
        key_claims: KeyClaims,
        identity: KeyedDigests,
        wake_ups: WakeUps,
        orders: Orders,
        telemetry: Telemetry,
    ) -> None:
        """Give it the parts that are wired with `flows`."""
        self._orders, self._telemetry = orders, telemetry
        self._intake, self._loader, self._wake_ups = intake, loader, wake_ups
        self._key_claims, self._identity = key_claims, identity

    async def run(self, flow: SagaFlow, payload: Any, attempt: Attempt) -> Outcome:
        """The executor of a saga. It never returns: a run ends with the command Advance."""
        await self._wake_ups.begin()
        view = await self._loader.one((attempt.flow, attempt.tenant, attempt.request_id))
        assert view is not None
        run = Run(self, view.state)
        await run.look()
        assert flow.function is not None
        saga = Saga(
            id=attempt.request_id,
            tenant=attempt.tenant,
            correlation_id=attempt.correlation_id,
            created_at_ms=view.state.created_at,
        )
        while True:
            replayed = replay(flow.function, payload, saga, run.steps)
            if compensates(view.state) or replayed.reason:
                await run.compensate(replayed)
            if replayed.stopped_at is None:
                run.end("completed")
            # Returns only if the outcome is known at once, e.g. refused: the function goes on.
            await run.go_on(replayed.stopped_at)

    async def states(self, keys: list[Key]) -> dict[Key, State]:
        found, _ = await self._loader.load(keys)
        return {key: view.state for key, view in found.items()}

    async def start(self, action: Action, of: State, key: str) -> Started | Refused | Fenced | Busy:
        """Submit the request of a step, or open an operation of an earlier step's transaction."""
        if isinstance(action, Order):
            return await self._open(action, of, key)
        flow = self._flow_of(action)
        options = Options(
            None if _own_id(flow, action) else key,
            of.tenant,
            priority=of.priority,
            correlation_id=of.correlation_id[:KEY_LENGTH_MAX],
            causation_id=of.id,
            test=of.test,
            source=f"{OF_SAGA}{of.flow}/{of.id}",
        )
        try:
            request_id = (await self._intake.submit(action, options)).request_id
        except InvalidRequest:
            return Refused(INVALID)
        except Overloaded:
            raise Postponed(OVERLOADED_SECONDS) from None
        except Conflict as conflict:
            if conflict.request_id == of.id:
                return Fenced()
            # A step happens once: the content that was submitted first counts.
            self._telemetry.log.warning("saga step changed", request_id=of.id, key=key)
            request_id = conflict.request_id
        return Started(flow.name, request_id)

    async def _open(self, order: Order, of: State, key: str) -> Started | Refused | Busy:
        view = await self._loader.one((order.flow, of.tenant, order.request_id))
        if view is None:
            return Refused("request_removed")
        opened = await self._orders.open(order, view, key)
        if isinstance(opened, Opened):
            return Started(order.flow, order.request_id, opened.operation, not opened.operation)
        return Busy(order.request_id) if opened.code in BUSY else Refused(opened.code)

    async def fence(self, action: Action, of: State, key: str) -> Started | None:
        """Keep a step from ever being started; its request if that has happened.

        A run that lost its lease may be about to submit it. The claim on the key decides.
        """
        if isinstance(action, Order):
            # A transaction that is being taken back opens nothing else.
            return None
        flow = self._flow_of(action)
        if own := _own_id(flow, action):
            found = await self.states([(flow.name, of.tenant, own)])
            return Started(flow.name, own) if found else None
        name = self._identity.name_of(of.tenant, flow.name, key, test=of.test)
        (is_free,) = await self._key_claims.put_claims([Claim(name, of.id, FENCE)])
        if is_free:
            return None
        before = (int.from_bytes(name, "big") - 1).to_bytes(len(name), "big")
        (claim,) = await self._key_claims.claims(before, 1)
        return None if claim.request_id == of.id else Started(flow.name, claim.request_id)

    def _flow_of(self, payload: Payload) -> Flow:
        flow = self._of_payload.get(type(payload))
        if flow is None:
            name = type(payload).__name__
            raise BadFlow("saga", f"a step submits {name}, and no flow of this engine takes it")
        return flow


class Run:
    """One run: what is known of the steps, and what it adds to that."""

    def __init__(self, runs: SagaRuns, state: State) -> None:
        self._runs, self._state = runs, state
        self.steps, self._undos = _known(state, undo=False), _known(state, undo=True)
        self._progress: list[Progress] = []
        #: Steps that failed, and whose request is open again.
        self._reopened: set[str] = set()

    async def look(self) -> None:
        """Record which requests have ended since the last run."""
        open_ones = [
            one
            for one in (*self.steps.values(), *self._undos.values())
            if one.request_id and (one.result is None or one.result == "failed")
        ]
        if not open_ones:
            return
        tenant = self._state.tenant
        states = await self._runs.states([(one.flow, tenant, one.request_id) for one in open_ones])
        by_id = {(state.flow, state.id): state for state in states.values()}
        for undo, known in ((False, self.steps), (True, self._undos)):
            for name, one in known.items():
                state = by_id.get((one.flow, one.request_id))
                if state is not None:
                    self._look_at(name, one, state, undo=undo)
                elif one.result is None:
                    raise GestaError(
                        f"request {one.request_id} of step {name} was removed before its outcome"
                        " was read"
                    )

    def _look_at(self, name: str, one: Known, state: State, *, undo: bool) -> None:
        result = result_of(state, one.operation)
        if one.result == "failed" and result is None:
            self._reopened.add(name)
        if result is None or result == one.result:
            return
        late = one.result == "failed" and not undo
        if late and one.late:
            return
        reason = "" if result == "done" else state.reason or state.status
        self._progress.append(StepEnded(name, result, undo, late, state.provider_id, reason))
        known = self._undos if undo else self.steps
        known[name] = replace(
            one,
            result="failed" if late else result,
            late=late,
            provider_id=state.provider_id,
            reason=reason,
        )

    async def go_on(self, step: Step) -> None:
        """Start a step, or wait for it. Returns only if its outcome is known at once."""
        if step.name not in self.steps:
            await self._start(step.name, step.action, undo=False)
            if self.steps[step.name].result is not None:
                return
        self.wait(step.name, self.steps[step.name])

    async def compensate(self, replayed: Replayed) -> NoReturn:
        """Undo what has succeeded, the last step first, one after the other.

        It waits while the outcome of any step is unknown: the undo of something that is still
        happening might come before it, or not be needed.
        """
        if not compensates(self._state):
            self._progress.append(CompensationStarted(replayed.reason, replayed.failed))
        stopped = replayed.stopped_at
        if stopped is not None and stopped.name not in self.steps:
            found = await self._runs.fence(
                stopped.action, self._state, self._key(stopped.name, undo=False)
            )
            if found is not None:
                self._started(stopped.name, found, undo=False)
        for name, one in self.steps.items():
            if one.result is None or name in self._reopened:
                self.wait(name, one)
        for step in reversed(replayed.asked):
            await self._undo(step)
        self.end("compensated", replayed.failed)

    async def _undo(self, step: Step) -> None:
        """Returns once a step is undone, or if there is nothing to undo."""
        one = self.steps.get(step.name)
        if one is None or not one.has_effect or step.undo is None:
            return
        if step.name not in self._undos:
            action = step.undo(done_of(step.name, one)) if callable(step.undo) else step.undo
            if action is None:
                return
            await self._start(step.name, action, undo=True)
        undo = self._undos[step.name]
        if undo.result is None:
            self.wait(step.name, undo)
        if undo.result == "failed":
            request = f": request {undo.request_id}" if undo.request_id else ""
            self.end("failed", step.name, f"the undo of step {step.name} failed{request}")

    async def _start(self, name: str, action: Action, *, undo: bool) -> None:
        """Start a step or an undo. If it is refused, it has failed."""
        started = await self._runs.start(action, self._state, self._key(name, undo=undo))
        match started:
            case Fenced():
                self.end("wait")
            case Busy():
                self.end("wait", name, request_id=started.request_id)
            case Refused():
                self._progress.append(StepEnded(name, "failed", undo, reason=started.reason))
                known = self._undos if undo else self.steps
                known[name] = Known("", "", "failed", reason=started.reason)
            case Started():
                self._started(name, started, undo=undo)

    def _started(self, name: str, one: Started, *, undo: bool) -> None:
        self._progress.append(StepStarted(name, one.flow, one.request_id, undo, one.operation))
        known = Known(one.flow, one.request_id, operation=one.operation)
        if one.is_done:
            self._progress.append(StepEnded(name, "done", undo))
            known = replace(known, result="done")
        (self._undos if undo else self.steps)[name] = known

    def _key(self, name: str, *, undo: bool) -> str:
        return f"saga/{self._state.id}/{name}{'/undo' if undo else ''}"

    def wait(self, step: str, known: Known) -> NoReturn:
        self.end("wait", step, request_id=known.request_id)

    def end(
        self, ending: Ending, step: str = "", reason: str = "", request_id: str = ""
    ) -> NoReturn:
        raise Decided(
            Advance(
                tuple(self._progress),
                ending,
                self._state.dispatch_version,
                step,
                request_id,
                reason,
            )
        )


def _known(state: State, *, undo: bool) -> dict[str, Known]:
    return {
        name: Known(
            one["flow"],
            one["id"],
            one.get("result"),
            one.get("provider_id", ""),
            one.get("reason", ""),
            one.get("late", False),
            one.get("operation", ""),
        )
        for name, one in steps_of(state, undo=undo).items()
    }


def _own_id(flow: Flow, payload: Payload) -> str | None:
    return None if flow.request_id is None else flow.request_id(payload)
