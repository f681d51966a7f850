"""Station 6 of 7, first half: take jobs while there are free slots, load their requests in one
call, start their attempts.

Receives pointers from the queue; hands a job, its view and its tenant's config to attempt.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gesta.domain.outcome import Retry
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Drop, Hold, JobQueue, LeasedJob, Release, Settlement
from gesta.ports.read_model import ReadModel, View
from gesta.requests.loader import Loader
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Ids, Runtime, Signal, sleep, spawn, turn
from gesta.runtime.telemetry import Telemetry
from gesta.security.field_encryption import MARK
from gesta.security.subject_keys import Readable, SubjectKeys
from gesta.tenants.config import ConfigCache
from gesta.tenants.pause_control import PauseControl
from gesta.worker.attempt import Attempts
from gesta.worker.batch_loader import Requests
from gesta.worker.deadlines import Deadlines, Running
from gesta.worker.eager_dispatch import EagerDispatcher
from gesta.worker.fetch_policy import POLL_SECONDS, batch_max, may_have_more, pause_seconds
from gesta.worker.late_cancellation import LateCancellation
from gesta.worker.lease import LEASE_SECONDS, Lease
from gesta.worker.lease_reconciliation import LeaseReconciliation
from gesta.worker.missing import PAUSE_MS, Missing
from gesta.worker.quarantine import Quarantine

STORE_PAUSE_SECONDS = 1.0
#: Attempts of one take that begin before everybody else gets their turn.
AT_A_TIME = 100
#: When the drain is over, what is cut off may close its files for so long, and be recorded for so
#: long; then the engine stops without it.
STOP_GRACE_SECONDS = 2.0
LAST_SECONDS = 4.0
NOTHING_MADE: Mapping[str, View] = {}


class Pool:
    def __init__(
        self,
        flows: Mapping[str, Flow],
        queue: JobQueue,
        views: ReadModel,
        loader: Loader,
        config: ConfigCache,
        subjects: SubjectKeys,
        pausing: PauseControl,
        late_cancellation: LateCancellation,
        attempts: Attempts,
        deadlines: Deadlines,
        store_retry: StoreRetry,
        runtime: Runtime,
        ids: Ids,
        telemetry: Telemetry,
    ) -> None:
        self._flows, self._queue, self._config = flows, queue, config
        self._subject_keys, self._pausing, self._late_cancellation, self._attempts = (
            subjects,
            pausing,
            late_cancellation,
            attempts,
        )
        self._runtime, self._telemetry = runtime, telemetry
        self._deadlines, self._store_retry = deadlines, store_retry
        self.quarantine = Quarantine(queue, views, store_retry, runtime, telemetry)
        self._requests = Requests(loader, config, self.quarantine, runtime, telemetry)
        store_retry.gave_back = self._gave_back
        deadlines.abandon = self._abandon
        self.lease = Lease(queue, runtime, ids, telemetry, lambda: deadlines.cut_all("lease_lost"))
        self._ours = LeaseReconciliation(queue, store_retry, self.lease, runtime)
        # Only where doubt cannot be resent under the same key does a take have to be on disk before
        # the call.
        self._durable = any(flow.rules.on_unknown != "same_key" for flow in flows.values())
        self._free = {flow.name: flow.concurrency for flow in flows.values()}
        self._most = {flow.name: batch_max(flow.concurrency) for flow in flows.values()}
        #: A job may be ready, or a flow that was full has a free slot again.
        self._news = Signal(runtime)
        self._ended = Signal(runtime)
        #: Jobs that this process holds, by their ids.
        self._holding: dict[str, LeasedJob] = {}
        #: Jobs that came to us again before we were done with them.
        self._again: dict[str, LeasedJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._missing = Missing()
        self._taking: asyncio.Task[tuple[list[LeasedJob], int | None]] | None = None
        #: Whether the queue has ever answered a take; where others execute everything, there is
        #: none to ask for.
        self.has_begun = not flows
        self._is_stopping = self._has_left = False
        self.eager_dispatcher = EagerDispatcher(
            self._free,
            self._most,
            self.lease,
            self._ours,
            store_retry,
            runtime,
            self._begin_all,
            self._slots_back,
            durable=self._durable,
        )
        #: Jobs that are being held by a pause: they may come again as soon as somebody resumes it.
        self._pausing_jobs: set[str] = set()
        #: When the queue said the next job falls due, for tests that own the clock.
        self.next_due_ms: int | None = None

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def run(self) -> None:
        """Take and start for ever."""
        if self._config.pauses.declared:
            await self._try_what_others_declared()
        while True:
            free = {
                flow: self.eager_dispatcher.asks(flow, slots)
                for flow, slots in self._free.items()
                if slots > 0
            }
            try:
                if self._ours.is_in_doubt and not self.eager_dispatcher.on_their_way:
                    self._begin_all(
                        await self._ours.look(self._holding.keys() | self._again.keys())
                    )
                elif free:
                    await self._take(free)
                else:
                    await self._news.wait(POLL_SECONDS)
            except StoreError as error:
                self._ours.answer_lost()
                self._telemetry.store_failed("worker", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)

    async def _try_what_others_declared(self) -> None:
        """What a provider refused may be held since an earlier program, which declared another
        secret: this one is to be tried.
        """
        try:
            await self._pausing.let_go_of_all()
        except StoreError as error:
            # The sweep looks, too.
            self._telemetry.store_failed("worker", error)

    async def listen(self) -> None:
        """Pass on the queue's news for ever."""
        while True:
            try:
                await self._queue.ready(POLL_SECONDS)
            except StoreError as error:
                self._telemetry.store_failed("queue", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
            self._news.set()

    async def _take(self, free: dict[str, int]) -> None:
        asked_at, asked_ms, token = (
            self._runtime.monotonic(),
            self._runtime.now_ms(),
            self.lease.token,
        )
        since = self._store_retry.count
        # Shielded: a take whose answer nobody awaits would leave jobs held, and in doubt at the
        # next start.
        self._taking = spawn(
            self._queue.take(token, free, LEASE_SECONDS, durable=self._durable), "gesta-take"
        )
        with self.eager_dispatcher.kept(free):
            leased, self.next_due_ms = await asyncio.shield(self._taking)
        self._taking, self.has_begun = None, True
        self.eager_dispatcher.asked(free, leased)
        if leased:
            self.lease.renewed(token, asked_at)
            self._begin_all(self._ours.sure(leased, since, asked_at))
        if not may_have_more(free, leased, self.next_due_ms, asked_ms):
            await self._news.wait(pause_seconds(self.next_due_ms, asked_ms, self._runtime.now_ms()))

    def _begin_all(self, leased: list[LeasedJob], made: Mapping[str, View] = NOTHING_MADE) -> None:
        """`made`: the requests of those that were taken as they came to be, by job id."""
        if self._has_left:
            # Nobody waits for them any more: they are found under a dead lease.
            return
        fresh, is_lost = [], False
        for one in leased:
            held = self._holding.get(one.job.id)
            is_ours = held is not None and held.token == one.token
            if is_ours and one.is_possibly_executed and one.job.id not in self._pausing_jobs:
                # Our own lease ended unnoticed, say because the machine slept. The attempt that
                # still runs settles this job.
                is_lost = True
                continue
            self.lease.held += 1
            self._free[one.job.flow] -= 1
            if is_ours:
                self._put_in_quarantine(one)
            else:
                # Under another token, what was put aside before is nobody's any more.
                self._forget_again(one.job.id)
                self._holding[one.job.id] = one
                fresh.append(one)
        if is_lost:
            self.lease.lose("it had ended before it was renewed")
        if fresh:
            self._start(self._begin(fresh, made))

    def _put_in_quarantine(self, leased: LeasedJob) -> None:
        """Given back by us and ready at once; but whoever did so has not heard of it yet, and may
        do it again.

        Begun after that.
        """
        self._forget_again(leased.job.id)
        self._again[leased.job.id] = leased

    def _gave_back(self, settlement: Settlement) -> None:
        """It may have been ours again, and be so no more; or it was taken after that.

        The queue knows.
        """
        again = self._again.get(settlement.job_id)
        if (
            again is not None
            and not isinstance(settlement, Drop)
            and settlement.token == again.token
        ):
            self._forget_again(settlement.job_id)
            self._ours.doubt(settlement.job_id)

    def _forget_again(self, job_id: str) -> None:
        if (again := self._again.pop(job_id, None)) is not None:
            self._free_slot(again)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = spawn(coroutine, "gesta-attempt")
        self._tasks.add(task)
        task.add_done_callback(self._end)

    async def _start_attempts(self, ready: Sequence[tuple[LeasedJob, View, Readable]]) -> None:
        """In parts: callers who have new requests to bring get their turns in between, so that the
        store has them to write while these run.
        """
        for number, (one, view, payload) in enumerate(ready):
            if number and number % AT_A_TIME == 0:
                await turn()
                if self._is_stopping:
                    await self._give_back([rest for rest, _, _ in ready[number:]])
                    return
            self._start_attempt(one, view, payload)

    def _start_attempt(self, leased: LeasedJob, view: View, payload: Readable) -> None:
        running = Running(leased)
        running.task = spawn(self._run(running, view, payload), "gesta-attempt")
        self._tasks.add(running.task)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended.set()

    async def _begin(
        self, leased: list[LeasedJob], made: Mapping[str, View] = NOTHING_MADE
    ) -> None:
        """Load all the requests of one take in one call, then run each attempt on its own: a slow
        one holds back nobody.
        """
        try:
            found = await self._requests.load(leased, made)
            holds = self._pausing.holds_of(leased, found, self._flows)
        except Exception as error:  # noqa: BLE001 -- one of them is poison: each by itself, so that only that one is parked
            for one in leased:
                self._start(self._begin([one]) if len(leased) > 1 else self._poison(one, error))
            return
        if self._is_stopping:
            await self._give_back(leased)
            return
        self._missing.found(leased, found)
        clear: list[tuple[LeasedJob, View, Readable]] = []
        encrypted: list[tuple[LeasedJob, View]] = []
        if holds:
            self._start(
                self._hold([(one, holds[one.job.id]) for one in leased if one.job.id in holds])
            )
            leased = [one for one in leased if one.job.id not in holds]
        self._telemetry.leased(leased, self._runtime.now_ms())
        for one in leased:
            view = found.get(one.job.id)
            if view is None:
                self._start(self._not_found(one))
            elif MARK in view.payload:
                encrypted.append((one, view))
            else:
                clear.append((one, view, view.payload))
        await self._start_attempts(clear)
        if encrypted:
            await self._begin_encrypted(encrypted)

    async def _begin_encrypted(self, encrypted: list[tuple[LeasedJob, View]]) -> None:
        try:
            opened = await self._open([view for _, view in encrypted], encrypted[0][0].token)
        except Exception as error:  # noqa: BLE001 -- whatever it is, no job may be held for ever without an attempt
            for one, _ in encrypted:
                self._start(self._poison(one, error))
            return
        if self._is_stopping:
            await self._give_back([one for one, _ in encrypted])
            return
        await self._start_attempts(
            [(one, view, payload) for (one, view), payload in zip(encrypted, opened, strict=True)]
        )

    async def _open(self, views: list[View], token: str) -> list[Readable]:
        """The sealed payloads of one take, in one call, however long the vault is out of reach:
        that is nobody's failed attempt.
        """
        while True:
            try:
                return await self._subject_keys.open(views)
            except StoreError as error:
                self._telemetry.store_failed("vault", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
                if not self.lease.covers(token):
                    # Not ours any more; nothing is called and nothing is recorded.
                    return [Retry("vault_unavailable", "nothing was called")] * len(views)

    async def _run(self, running: Running, view: View, payload: Readable) -> None:
        try:
            await self._attempts.run(
                view, payload, self._config.of(running.leased.job.tenant), self.lease, running
            )
        except Exception as error:  # noqa: BLE001 -- a poison job is parked and reported, and the rest goes on
            if not running.is_abandoned:
                await self.quarantine.park(running.leased, error)
        finally:
            # Here and not by a callback, which would cost another turn of the loop for each
            # attempt.
            self._tasks.discard(running.task)
            if self._is_stopping:
                self._ended.set()
            if not running.is_abandoned:
                self._free_slot(running.leased)

    def _abandon(self, running: Running) -> None:
        """An executor that does not end keeps neither its slot nor its request."""
        running.is_abandoned = True
        if running.task is not None:
            self._tasks.discard(running.task)
        self._start(self._run_abandoned(running))

    async def _run_abandoned(self, running: Running) -> None:
        try:
            await self._attempts.abandon(running)
        except Exception as error:  # noqa: BLE001 -- as above
            await self.quarantine.park(running.leased, error)
        finally:
            self._free_slot(running.leased)

    def _free_slot(self, leased: LeasedJob) -> None:
        self.lease.held -= 1
        job_id, flow = leased.job.id, leased.job.flow
        if self._holding.get(job_id) is leased:
            del self._holding[job_id]
            if (
                self._again
                and (again := self._again.pop(job_id, None)) is not None
                and not self._has_left
            ):
                self._holding[job_id] = again
                self._start(self._begin([again]))
        self._free[flow] = free = self._free[flow] + 1
        if free == 1:
            # It was full: its next job may have been ready for long.
            self._news.set()

    def _slots_back(self) -> None:
        """Slots that were offered came back: somebody's job may have waited for them."""
        self._news.set()
        self._ended.set()

    async def _hold(self, held: list[tuple[LeasedJob, Hold]]) -> None:
        jobs = {one.job.id for one, _ in held}
        self._pausing_jobs |= jobs
        try:
            await self.quarantine.settle([hold for _, hold in held])
            # Somebody may have resumed it since we read the pause, and not have found these jobs:
            # look again.
            await self.quarantine.insist(
                lambda: self._pausing.let_go([(one.job.tenant, hold.scope) for one, hold in held])
            )
            # Or have called one back, while it was in our hands.
            keys = [(one.job.flow, one.job.tenant, one.job.request_id) for one, _ in held]
            await self.quarantine.insist(lambda: self._late_cancellation.look(keys))
        finally:
            self._pausing_jobs -= jobs
            for one, _ in held:
                self._free_slot(one)

    async def _give_back(self, leased: Sequence[LeasedJob]) -> None:
        """Nothing has been called, and no attempt is spent."""
        try:
            await self.quarantine.release(leased)
        finally:
            for one in leased:
                self._free_slot(one)

    async def _not_found(self, leased: LeasedJob) -> None:
        if self._missing.is_hopeless(leased.job.id):
            await self._poison(leased, LookupError("no event of this request"), "request_not_found")
            return
        try:
            await self.quarantine.settle(
                [Release(leased.job.id, leased.token, self._runtime.now_ms() + PAUSE_MS)]
            )
        finally:
            self._free_slot(leased)

    async def _poison(self, leased: LeasedJob, error: Exception, reason: str = "") -> None:
        try:
            await self.quarantine.park(leased, error, reason)
        finally:
            self._free_slot(leased)

    async def stop(self, drain_seconds: float) -> None:
        """After `run` was cancelled: give back what was taken last, let attempts end, cut those
        that take too long (Unknown).
        """
        self._is_stopping = True
        self.eager_dispatcher.close()
        if self._taking is not None:
            self._start(self._give_back_last(self._taking))
        if drain_seconds == 0:
            self._cut_short()
        timers = [
            self._runtime.call_later(drain_seconds, self._cut_short),
            self._runtime.call_later(drain_seconds + LAST_SECONDS, self._leave),
        ]
        # One that was cut before it had begun is done and still here.
        while (self.eager_dispatcher.on_their_way and not self._has_left) or any(
            not task.done() for task in self._tasks
        ):
            await self._ended.wait(POLL_SECONDS)
        for timer in timers:
            timer.cancel()

    async def _give_back_last(
        self, taking: asyncio.Task[tuple[list[LeasedJob], int | None]]
    ) -> None:
        with suppress(StoreError):
            leased, _ = await asyncio.shield(taking)
            await self.quarantine.release(leased)

    def _cut_short(self) -> None:
        """What has not begun does not begin; what runs is cut and recorded as Unknown."""
        self.lease.resign()
        self._deadlines.cut_all("stopping", STOP_GRACE_SECONDS)

    def _leave(self) -> None:
        """The store does not take what was learned: the next start finds these jobs under a dead
        lease, and in doubt.
        """
        self._has_left = True
        self._telemetry.log.error("stopped before everything was recorded", held=self.lease.held)
        self._ended.set()
        for task in self._tasks:
            task.cancel()
