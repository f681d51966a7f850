"""`engine.external`: lease work to external workers, extend leases, record reports."""

from collections.abc import Mapping, Sequence

import msgspec

from gesta.domain.codec import canonical
from gesta.domain.commands import RecordOutcome
from gesta.domain.events import Actor
from gesta.domain.ids import TENANT, TENANT_RULE, external_queue_of, job_id, own_job_id
from gesta.domain.outcome import Done
from gesta.errors import (
    BadFlow,
    Erased,
    InvalidRequest,
    LeaseLost,
    NotFound,
    StoreError,
)
from gesta.flows.channels import unknown_flow
from gesta.flows.external import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN
from gesta.flows.flow import Flow
from gesta.flows.payload_codec import decoder_of
from gesta.flows.personal_fields import personal_texts
from gesta.flows.validation import actor_errors, value_errors
from gesta.ports.job_queue import Job, LeasedJob
from gesta.ports.read_model import View, key_of
from gesta.ports.stores import Stores
from gesta.requests.loader import Loader, apply_event
from gesta.requests.recorder import Origin, Recorder
from gesta.runtime.component import Process
from gesta.runtime.redaction import scrubbed_name
from gesta.runtime.telemetry import LogContext
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import ERASED, SubjectKeys
from gesta.worker.batch_admission import BatchAdmission
from gesta.worker.external.leasing import ExternalLeasing
from gesta.worker.external.long_poll import Waiting
from gesta.worker.external.reports import ExternalReport, errors_of, misfit, outcome_of
from gesta.worker.external.work_item import (
    Lease,
    LeaseToken,
    LeaseTokens,
    Reported,
    WorkItem,
    item_of,
    reported,
)
from gesta.worker.outcome_sanitizer import discreet, protected, sound, without_texts
from gesta.worker.preflight import settle_of

ITEMS_MAX = 100
WAIT_SECONDS_MAX = 60.0
#: A take that finds only jobs without work continues for this long, even beyond the caller's wait.
CLEARING_SECONDS = 5.0


class External:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        loader: Loader,
        recorder: Recorder,
        subjects: SubjectKeys,
        admission: BatchAdmission,
        identity: KeyedDigests,
        process: Process,
    ) -> None:
        self._flows, self._external_leases, self._loader = flows, stores.external_leases, loader
        self._recorder, self._subject_keys = recorder, subjects
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._lease_tokens, self._waiting = LeaseTokens(identity), Waiting(stores, process)
        self._external_leasing = ExternalLeasing(
            flows=flows,
            stores=stores,
            admission=admission,
            recorder=recorder,
            subjects=subjects,
            lease_tokens=self._lease_tokens,
            process=process,
        )
        self._is_stopping = False

    async def take(
        self,
        flow: str,
        *,
        tenant: str = "default",
        limit: int = 1,
        wait_seconds: float = 0.0,
        lease_seconds: float | None = None,
    ) -> list[WorkItem]:
        """Lease up to `limit` due requests of this tenant; wait up to `wait_seconds` for the first.

        A request that is not reported before its lease ends is `unknown(no_report)`. Leases are on
        disk before this returns.
        """
        declared = self._declared(flow)
        seconds = declared.lease_seconds if lease_seconds is None else lease_seconds
        self._check_take(declared, tenant, limit, wait_seconds, seconds)
        assert seconds is not None
        external_queue, began = external_queue_of(flow, tenant), self._runtime.monotonic()
        while not self._is_stopping:
            items, was_any = await self._external_leasing.take(declared, tenant, limit, seconds)
            passed = self._runtime.monotonic() - began
            if items or passed >= max(wait_seconds, CLEARING_SECONDS if was_any else 0.0):
                return items
            if not was_any:
                self._waiting.check_room(external_queue)
                await self._waiting.wait(external_queue, wait_seconds - passed)
        return []

    async def give_back(self, items: Sequence[WorkItem], *, tenant: str = "default") -> None:
        """Release work that never reached the external worker. Only for items that it cannot have
        seen.
        """
        leased = []
        for item in items:
            lease_token = self._lease_tokens.read(tenant, item.flow, item.id, item.token)
            if lease_token is not None:
                leased.append(_leased(item.flow, tenant, item.id, lease_token))
        await self._external_leasing.give_back(leased)

    async def fetch(
        self, flow: str, request_id: str, token: str, *, tenant: str = "default"
    ) -> WorkItem:
        """A leased item again, by its token. Raises LeaseLost when the lease is no longer the
        token's.
        """
        _, lease_token, view = await self._held(flow, request_id, token, tenant)
        leased = _leased(flow, tenant, request_id, lease_token)
        until_ms = await self._external_leases.prolong(leased.job.id, lease_token.lease, 0.0)
        if (
            until_ms is None
            or view.state.attempts + 1 != lease_token.attempt
            or view.state.is_terminal
        ):
            raise LeaseLost(view.state)
        (opened,) = await self._subject_keys.open([view])
        # It may have been executed by now: only a report or the end of the lease decides.
        if opened is ERASED:
            raise Erased(request_id)
        if not isinstance(opened, bytes):
            raise StoreError(f"request {request_id}: {opened.detail}")
        return item_of(view.state, token, until_ms, opened)

    async def extend(
        self,
        flow: str,
        request_id: str,
        token: str,
        lease_seconds: float | None = None,
        *,
        tenant: str = "default",
    ) -> Lease:
        """Extend the lease from now on; never shorten it. Raises LeaseLost when it is too late."""
        declared = self._declared(flow)
        seconds = declared.lease_seconds if lease_seconds is None else lease_seconds
        if not _is_lease(seconds):
            raise InvalidRequest(flow, {"leaseSeconds": _LEASE_RULE})
        assert seconds is not None
        _, lease_token, view = await self._held(flow, request_id, token, tenant)
        until_ms = await self._external_leases.prolong(
            _leased(flow, tenant, request_id, lease_token).job.id, lease_token.lease, seconds
        )
        if until_ms is None:
            raise LeaseLost(view.state)
        return Lease(until_ms, view.state.cancel_requested)

    async def report(
        self,
        flow: str,
        request_id: str,
        token: str,
        report: ExternalReport,
        *,
        tenant: str = "default",
        by: Actor | None = None,
    ) -> Reported:
        """Record the result of the work.

        A success always counts, however late. A failure that arrives too late raises LeaseLost,
        with the current state. The same report again is recognised. `by` is recorded where the
        report names no actor.
        """
        errors = value_errors(report) | errors_of(report) | actor_errors(report.actor)
        if errors:
            raise InvalidRequest(flow, errors)
        declared, lease_token, view = await self._held(flow, request_id, token, tenant)
        operation = await self._operation(view, lease_token, report)
        payload = await self._payload(declared, view)
        outcome = sound(outcome_of(report, lease_token.attempt))
        # Without the payload, personal data in a text cannot be recognised: the text is dropped.
        outcome = without_texts(outcome) if payload is None else discreet(outcome, payload, ())
        outcome = await protected(outcome, declared, view, self._subject_keys)
        leased = _leased(flow, tenant, request_id, lease_token)
        cause = self._lease_tokens.cause(token, canonical(report))
        line = LogContext(
            declared,
            leased,
            payload,
            correlation_id=view.state.correlation_id,
            personal=personal_texts(payload),
        )
        now = self._runtime.now_ms()
        applied = await self._recorder.apply(
            view,
            RecordOutcome(
                outcome,
                lease_token.attempt,
                now,
                self._runtime.chance(),
                lease_token.intent,
                operation=operation,
                facts={"started_at": lease_token.leased_ms, "worker": "external"},
            ),
            declared.rules,
            settle_of(leased),
            causation_id=(
                leased.job.id if report.causation_id is None else scrubbed_name(report.causation_id)
            ),
            origin=Origin(
                report.actor or by,
                cause,
                None if report.correlation_id is None else scrubbed_name(report.correlation_id),
            ),
            tags=line.tags,
        )
        state = applied.view.state
        if applied.events:
            latency_ms = max(0, now - lease_token.leased_ms)
            if self._telemetry.attempt_ended(declared, outcome, latency_ms):
                self._telemetry.log_attempt(
                    line, outcome, attempts=lease_token.attempt, latency_ms=latency_ms
                )
        elif not isinstance(outcome, Done) and not await self._is_recorded(view, cause):
            self._telemetry.late_outcome(line, flow)
            raise LeaseLost(state)
        return reported(state)

    async def stop(self, until: float) -> None:
        """End the waits of callers, and release work whose callers have disconnected, until
        `until`.
        """
        self._is_stopping = True
        self._waiting.stop()
        await self._external_leasing.drain(until)

    async def _held(
        self, flow: str, request_id: str, token: str, tenant: str
    ) -> tuple[Flow, LeaseToken, View]:
        """The request of a lease token. Another tenant's request is not found."""
        declared = self._declared(flow)
        view = (
            await self._loader.one((flow, tenant, request_id)) if TENANT.fullmatch(tenant) else None
        )
        if view is None:
            raise NotFound("request", request_id)
        lease_token = self._lease_tokens.read(tenant, flow, request_id, token)
        if lease_token is None:
            raise InvalidRequest(flow, {"token": "is not the token of any lease on this request"})
        return declared, lease_token, view

    async def _operation(self, view: View, lease_token: LeaseToken, report: ExternalReport) -> str:
        """The operation that was leased: a late report must not count for a later operation.

        Raises InvalidRequest if the report does not fit it.
        """
        state = view.state
        if state.dispatch_version == lease_token.dispatch_version:
            if wrong := misfit(report, state):
                raise InvalidRequest(state.flow, wrong)
            return state.operation
        found: View | None = None
        for recorded in await self._loader.history(key_of(state)):
            if recorded.version > lease_token.dispatch_version:
                break
            found = apply_event(found, recorded, state.flow)
        return state.operation if found is None else found.state.operation

    async def _payload(self, flow: Flow, view: View) -> object | None:
        try:
            (opened,) = await self._subject_keys.open([view])
            return decoder_of(flow.payload)(opened) if isinstance(opened, bytes) else None
        except (StoreError, msgspec.ValidationError):
            return None

    async def _is_recorded(self, view: View, cause: bytes) -> bool:
        """Whether this same report was already recorded, because its first answer was lost."""
        stored = await self._loader.history(key_of(view.state))
        return any(one.id[:15] == cause[:15] for one in stored)

    def _declared(self, name: str) -> Flow:
        flow = self._flows.get(name)
        if flow is None:
            raise unknown_flow(name, self._flows)
        if not flow.is_external:
            raise BadFlow(
                name,
                "is executed by gesta itself; declare it with external(...) to lease its work to"
                " external workers",
            )
        return flow

    def _check_take(
        self, flow: Flow, tenant: str, limit: object, wait_seconds: object, lease_seconds: object
    ) -> None:
        errors = {}
        if not TENANT.fullmatch(tenant):
            errors["tenant"] = TENANT_RULE
        if type(limit) is not int or not 1 <= limit <= ITEMS_MAX:
            errors["limit"] = f"a whole number from 1 to {ITEMS_MAX}"
        if not isinstance(wait_seconds, int | float) or not 0 <= wait_seconds <= WAIT_SECONDS_MAX:
            errors["waitSeconds"] = f"seconds from 0 to {WAIT_SECONDS_MAX:g}"
        if not _is_lease(lease_seconds):
            errors["leaseSeconds"] = _LEASE_RULE
        if errors:
            raise InvalidRequest(flow.name, errors)


_LEASE_RULE = f"seconds from {LEASE_SECONDS_MIN:g} to {LEASE_SECONDS_MAX:g}"


def _is_lease(seconds: object) -> bool:
    return isinstance(seconds, int | float) and LEASE_SECONDS_MIN <= seconds <= LEASE_SECONDS_MAX


def _leased(flow: str, tenant: str, request_id: str, lease_token: LeaseToken) -> LeasedJob:
    version = lease_token.dispatch_version
    name = (
        own_job_id(tenant, flow, request_id, version)
        if lease_token.own
        else job_id(request_id, version)
    )
    return LeasedJob(
        Job(name, tenant, flow, request_id, version), lease_token.lease, 1, lease_token.leased_ms
    )
