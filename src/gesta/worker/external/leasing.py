"""One take for others: lease jobs of a lane, load their requests, pass the guard, open what is
sealed; or give back what was not handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gesta.domain.commands import RecordOutcome
from gesta.domain.ids import external_queue_of
from gesta.domain.outcome import Rejected, Retry
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.flows.payload_codec import decoder_of
from gesta.ports.job_queue import LeasedJob, Release
from gesta.ports.read_model import View
from gesta.ports.stores import Stores
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder
from gesta.runtime.clock import Runtime, Signal, sleep, spawn
from gesta.runtime.telemetry import Telemetry
from gesta.security.subject_keys import Readable, SubjectKeys
from gesta.tenants.pause_control import PauseControl
from gesta.worker.attempt import BAD_PAYLOAD
from gesta.worker.external.lease_expiry import NO_REPORT
from gesta.worker.external.lease_tokens import LeaseToken, LeaseTokens
from gesta.worker.external.work_item import WorkItem, item_of
from gesta.worker.fetch_policy import by_job
from gesta.worker.late_cancellation import LateCancellation
from gesta.worker.missing import PAUSE_MS, Missing
from gesta.worker.pool import Pool
from gesta.worker.preflight import Guard, examine, settle_of

STORE_PAUSE_SECONDS = 1.0
#: With less of its lease left a job is not handed out: nobody could do much with it.
LEFT_SECONDS_MIN = 0.5
TOKEN_BYTES = 16


class ExternalLeasing:
    def __init__(
        self,
        flows: Mapping[str, Flow],
        stores: Stores,
        loader: Loader,
        recorder: Recorder,
        subjects: SubjectKeys,
        pausing: PauseControl,
        late_cancellation: LateCancellation,
        guard: Guard,
        pool: Pool,
        lease_tokens: LeaseTokens,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._external_leases = stores.external_leases
        self._flows, self._queue, self._loader, self._recorder, self._subject_keys = (
            flows,
            stores.queue,
            loader,
            recorder,
            subjects,
        )
        self._pausing, self._late_cancellation, self._guard, self._pool, self._lease_tokens = (
            pausing,
            late_cancellation,
            guard,
            pool,
            lease_tokens,
        )
        self._runtime, self._telemetry = runtime, telemetry
        #: What goes on although nobody waits for it.
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = Signal(runtime)
        self._missing = Missing()

    async def take(
        self, flow: Flow, tenant: str, limit: int, lease_seconds: float
    ) -> tuple[list[WorkItem], bool]:
        """What is handed out, and whether there was any job: those that need no work are dealt with
        on the way.
        """
        asked_at, asked_ms, token = (
            self._runtime.monotonic(),
            self._runtime.now_ms(),
            self._runtime.random_bytes(TOKEN_BYTES).hex(),
        )
        # Shielded: jobs of a take whose answer nobody awaits would be in nobody's hands, and in
        # doubt when the lease ends.
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
        # Those that can go back: no earlier take of them is without a recorded end.
        clean = {one.job.id: one for one in leased if not one.is_possibly_executed}
        try:
            ready = await self._admit(leased, flow, tenant, clean)
            if self._runtime.monotonic() - asked_at > lease_seconds - LEFT_SECONDS_MIN:
                await self.give_back([one for one, _, _ in ready])
                return [], True
        except BaseException:
            self._start(self.give_back(list(clean.values())))
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
        return item_of(
            state,
            self._lease_tokens.write(state.tenant, state.flow, state.id, lease_token),
            until_ms,
            payload,
        )

    async def _admit(
        self, leased: list[LeasedJob], flow: Flow, tenant: str, clean: dict[str, LeasedJob]
    ) -> list[tuple[LeasedJob, View, bytes]]:
        """What may be executed now, in clear; everything else is settled, and no longer among the
        innocent.
        """
        found = await self._load(leased, clean)
        await self._pausing.paused(tenant)
        holds = self._pausing.holds_of(leased, found, self._flows)
        if holds:
            await self._queue.settle(list(holds.values()))
            for name in holds:
                clean.pop(name, None)
            # Somebody may have resumed it since we read the pause, and not have found these jobs:
            # look again.
            await self._pausing.let_go([(tenant, hold.scope) for hold in holds.values()])
            await self._late_cancellation.look(
                [(flow.name, tenant, one.job.request_id) for one in leased if one.job.id in holds]
            )
        passed: list[tuple[LeasedJob, View]] = []
        now = self._runtime.now_ms()
        for one in leased:
            view = found.get(one.job.id)
            if one.job.id in holds or view is None:
                continue
            self._telemetry.leased([one], now)
            finding = examine(view.state, one, now, flow.rules)
            if finding != "execute":
                kept = await self._guard.deal_with(
                    finding, one, view, flow.rules, lost=NO_REPORT, insist=False
                )
                clean.pop(one.job.id, None)
                if kept is None:
                    continue
                # The earlier take has its end on record now.
                view, clean[one.job.id] = kept[0], one
            passed.append((one, view))
        ready = await self.readable(passed, flow)
        for name in {one.job.id for one, _ in passed} - {one.job.id for one, _, _ in ready}:
            clean.pop(name, None)
        return ready

    async def _load(self, leased: list[LeasedJob], clean: dict[str, LeasedJob]) -> dict[str, View]:
        """The requests, by the ids of their jobs.

        A job whose request cannot be read is parked, one whose request is not there yet goes back.
        """
        keys = [(one.job.flow, one.job.tenant, one.job.request_id) for one in leased]
        try:
            loaded, _ = await self._loader.load(keys)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- one of them is poison: each by itself, so that only that one is parked
            if len(leased) > 1:
                return {
                    name: view
                    for one in leased
                    for name, view in (await self._load([one], clean)).items()
                }
            await self._quarantine_event(leased[0], error, "", clean)
            return {}
        found = by_job(leased, keys, loaded)
        self._missing.found(leased, found)
        for one in leased:
            if one.job.id not in found:
                await self._not_found(one, clean)
        return found

    async def _not_found(self, leased: LeasedJob, clean: dict[str, LeasedJob]) -> None:
        """A pointer may be ahead of the log it points into, for a moment."""
        if not self._missing.is_hopeless(leased.job.id):
            await self._queue.settle(
                [Release(leased.job.id, leased.token, self._runtime.now_ms() + PAUSE_MS)]
            )
            clean.pop(leased.job.id, None)
            return
        await self._quarantine_event(
            leased, LookupError("no event of this request"), "request_not_found", clean
        )

    async def _quarantine_event(
        self, leased: LeasedJob, error: Exception, reason: str, clean: dict[str, LeasedJob]
    ) -> None:
        clean.pop(leased.job.id, None)
        await self._pool.quarantine.park(leased, error, reason)

    async def readable(
        self, passed: Sequence[tuple[LeasedJob, View]], flow: Flow
    ) -> list[tuple[LeasedJob, View, bytes]]:
        """Those whose payloads can be had in clear and fit the flow.

        The others end as an attempt does that cannot have its payload.
        """
        if not passed:
            return []
        opened: list[Readable] = await self._subject_keys.open([view for _, view in passed])
        decode, ready = decoder_of(flow.payload), []
        for (one, view), payload in zip(passed, opened, strict=True):
            obstacle: Rejected | Retry | None = payload if not isinstance(payload, bytes) else None
            if isinstance(payload, bytes):
                try:
                    decode(payload)
                except msgspec.ValidationError:
                    obstacle = BAD_PAYLOAD
                else:
                    ready.append((one, view, payload))
            if obstacle is not None:
                await self._end(one, view, flow, obstacle)
        return ready

    async def _end(
        self, leased: LeasedJob, view: View, flow: Flow, outcome: Rejected | Retry
    ) -> None:
        state = view.state
        now, chance = self._runtime.now_ms(), self._runtime.chance()
        record = RecordOutcome(outcome, state.attempts + 1, now, chance, state.intent, called=False)
        applied = await self._recorder.apply(
            view, record, flow.rules, settle_of(leased), causation_id=leased.job.id
        )
        self._telemetry.given_up(applied.view.state)

    async def give_back(self, leased: Sequence[LeasedJob]) -> None:
        """Nothing has been seen by anybody, and no attempt is spent.

        However long the store is out of reach, while it can still matter.
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
        """Wait for what goes back, until a moment of the monotonic clock."""
        while self._tasks and (left := until - self._runtime.monotonic()) > 0:
            await self._ended.wait(left)
        for task in self._tasks:
            task.cancel()
