"""Leases on external work: granted, released and ended.

A lease is given to jobs that batch admission and preflight have passed and whose payload can be
read. A lease that ends without a report makes the request `unknown(no_report)`; the sweeper looks
for those.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gesta.domain.commands import RecordOutcome, ReleaseRequest
from gesta.domain.ids import external_queue_of, external_queues_of
from gesta.domain.outcome import Rejected, Retry
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.flows.payload_codec import decoder_of
from gesta.ports.job_queue import Ack, LeasedJob, Release
from gesta.ports.read_model import View
from gesta.ports.stores import Stores
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, no_job
from gesta.runtime.clock import Signal, sleep, spawn
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process
from gesta.security.subject_keys import SubjectKeys
from gesta.worker.attempt import BAD_PAYLOAD
from gesta.worker.batch_admission import BatchAdmission
from gesta.worker.external.work_item import LeaseToken, LeaseTokens, WorkItem, item_of
from gesta.worker.preflight import Guard, examine, settle_of

NO_REPORT = "no_report"
#: A job with less of its lease left is not leased to a worker: the time would be too short.
LEFT_SECONDS_MIN = 0.5
TOKEN_BYTES = 16
#: How many ended leases are taken over in one call, and for how long: after a crash here the next
#: sweep finds them.
EXPIRED_BATCH = 100
EXPIRED_LEASE_SECONDS = 30.0


class ExternalLeasing:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        admission: BatchAdmission,
        recorder: Recorder,
        subjects: SubjectKeys,
        lease_tokens: LeaseTokens,
        process: Process,
    ) -> None:
        self._external_leases = stores.external_leases
        self._flows, self._queue, self._admission, self._recorder = (
            flows,
            stores.queue,
            admission,
            recorder,
        )
        self._subject_keys, self._lease_tokens = subjects, lease_tokens
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._guard = Guard(recorder, process.runtime)
        #: Releases that continue although no caller waits for them.
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = Signal(process.runtime)

    async def take(
        self, flow: Flow, tenant: str, limit: int, lease_seconds: float
    ) -> tuple[list[WorkItem], bool]:
        """The leased items, and whether there was any job. Settles jobs that need no work."""
        asked_at, asked_ms = self._runtime.monotonic(), self._runtime.now_ms()
        token = self._runtime.random_bytes(TOKEN_BYTES).hex()
        # Shielded: jobs of a take whose answer is not awaited would be leased to no one, and
        # unknown when the lease ends.
        taking = spawn(
            self._external_leases.lease_external(
                token, external_queue_of(flow.name, tenant), limit, lease_seconds
            ),
            "gesta-hand-out",
        )
        try:
            jobs = await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._start(self._give_back_later(taking))
            raise
        leased = [replace(one, job=replace(one.job, flow=flow.name)) for one in jobs]
        if not leased:
            return [], False
        # The jobs that can be released, because all their earlier leases have a recorded end. The
        # queue ignores the release of a job that was settled meanwhile.
        clean = [one for one in leased if not one.is_possibly_executed]
        try:
            ready = await self._readable(await self._admit(leased, flow, clean), flow)
            if self._runtime.monotonic() - asked_at > lease_seconds - LEFT_SECONDS_MIN:
                await self.give_back([one for one, _, _ in ready])
                return [], True
        except BaseException:
            self._start(self.give_back(clean))
            raise
        until_ms = asked_ms + round(lease_seconds * 1000)
        return [
            self._item(one, view, payload, asked_ms, until_ms) for one, view, payload in ready
        ], True

    def _item(
        self, leased: LeasedJob, view: View, payload: bytes, leased_ms: int, until_ms: int
    ) -> WorkItem:
        state = view.state
        lease_token = LeaseToken(
            leased.token,
            state.dispatch_version,
            state.attempts + 1,
            state.intent,
            leased_ms,
            int(state.own),
        )
        token = self._lease_tokens.write(state.tenant, state.flow, state.id, lease_token)
        return item_of(state, token, until_ms, payload)

    async def _admit(
        self, leased: list[LeasedJob], flow: Flow, clean: list[LeasedJob]
    ) -> list[tuple[LeasedJob, View]]:
        """What may be executed now; every other job is settled."""
        admission = self._admission
        ready, paused, missing, unreadable = await admission.admit(leased, insist=False)
        for one, error in unreadable:
            await admission.quarantine(one, error)
        for one in missing:
            await admission.postpone(one, insist=False)
        if paused:
            await admission.hold(paused, insist=False)
        passed: list[tuple[LeasedJob, View]] = []
        for one, found in ready:
            view = found
            finding = examine(view.state, one, self._runtime.now_ms(), flow.rules)
            if finding == "execute" and view.state.held:
                released = await self._recorder.apply(
                    view, ReleaseRequest(), flow.rules, no_job, causation_id=one.job.id
                )
                view = released.view
                finding = examine(view.state, one, self._runtime.now_ms(), flow.rules)
            if finding == "execute":
                passed.append((one, view))
                continue
            kept = await self._guard.deal_with(
                finding, one, view, flow.rules, lost=NO_REPORT, insist=False
            )
            if kept is not None:
                # The earlier lease has its end on record now.
                clean.append(one)
                passed.append((one, kept[0]))
        return passed

    async def _readable(
        self, passed: Sequence[tuple[LeasedJob, View]], flow: Flow
    ) -> list[tuple[LeasedJob, View, bytes]]:
        """The requests whose payloads can be decrypted and fit the flow.

        The others end like an attempt without a readable payload.
        """
        if not passed:
            return []
        opened = await self._subject_keys.open([view for _, view in passed])
        decode, ready = decoder_of(flow.payload), []
        for (one, view), payload in zip(passed, opened, strict=True):
            if not isinstance(payload, bytes):
                await self._end(one, view, flow, payload)
                continue
            try:
                decode(payload)
            except msgspec.ValidationError:
                await self._end(one, view, flow, BAD_PAYLOAD)
            else:
                ready.append((one, view, payload))
        return ready

    async def _end(
        self, leased: LeasedJob, view: View, flow: Flow, outcome: Rejected | Retry
    ) -> None:
        state = view.state
        now, chance = self._runtime.now_ms(), self._runtime.chance()
        record = RecordOutcome(outcome, state.attempts + 1, now, chance, state.intent, called=False)
        await self._recorder.apply(
            view, record, flow.rules, settle_of(leased), causation_id=leased.job.id
        )

    async def give_back(self, leased: Sequence[LeasedJob]) -> None:
        """Release jobs that no caller has seen: no attempt is spent.

        Retries while the store is unavailable, for as long as the release still matters.
        """
        releases = [Release(one.job.id, one.token, 0) for one in leased]
        until = self._runtime.monotonic() + max(
            (flow.lease_seconds or 0.0 for flow in self._flows.values()), default=0.0
        )
        while releases:
            try:
                await self._queue.settle(releases)
            except StoreError as error:
                self._telemetry.store_failed("external", error)
                if self._runtime.monotonic() >= until:
                    return
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
            else:
                return

    async def _give_back_later(self, taking: asyncio.Task[list[LeasedJob]]) -> None:
        try:
            leased = await taking
        except StoreError as error:
            self._telemetry.store_failed("external", error)
        else:
            await self.give_back([one for one in leased if not one.is_possibly_executed])

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = spawn(coroutine, "gesta-give-back")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended.set()

    async def drain(self, until: float) -> None:
        """Wait for releases, until a moment of the monotonic clock."""
        while self._tasks and (left := until - self._runtime.monotonic()) > 0:
            await self._ended.wait(left)
        for task in self._tasks:
            task.cancel()


class LeaseExpiry:
    """Ends leases without a report. A part of the sweeper."""

    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        loader: Loader,
        recorder: Recorder,
        process: Process,
    ) -> None:
        self._flows = [flow for flow in flows.values() if flow.is_external]
        self._queue, self._external_leases = stores.queue, stores.external_leases
        self._loader = loader
        self._guard = Guard(recorder, process.runtime)
        self._ids, self._telemetry = process.ids, process.telemetry

    async def step(self) -> None:
        """Record what was not reported in time."""
        for flow in self._flows:
            while expired := await self._external_leases.expired_leases(
                self._ids.new(),
                external_queues_of(flow.name),
                EXPIRED_BATCH,
                EXPIRED_LEASE_SECONDS,
            ):
                for one in expired:
                    await self._expire(replace(one, job=replace(one.job, flow=flow.name)), flow)
                if len(expired) < EXPIRED_BATCH:
                    break

    async def _expire(self, leased: LeasedJob, flow: Flow) -> None:
        job = leased.job
        try:
            view = await self._loader.one((job.flow, job.tenant, job.request_id))
            if view is None:
                # Removed, or never there: it could not be reported either.
                await self._queue.settle([Ack(job.id, leased.token)])
                return
            await self._guard.expire(leased, view, flow.rules, NO_REPORT)
            self._telemetry.not_reported(flow.name, job)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- the rest must go on; this one expires again
            self._telemetry.quarantined("lease expiry", job.id, job.dispatch_version, error)
