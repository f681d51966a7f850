"""The worker: lease jobs while there are free slots, admit them as a batch, start their attempts.

Receives jobs from the queue, or from eager_dispatch.py those that were leased as they were put.
batch_admission.py loads their requests; attempt.py runs each attempt in a task of its own.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gesta.domain.outcome import Retry
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Drop, JobQueue, LeasedJob, Settlement
from gesta.ports.read_model import View
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Signal, sleep, spawn, turn
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process, repeat
from gesta.security.field_encryption import MARK
from gesta.security.subject_keys import Readable, SubjectKeys
from gesta.worker.attempt import Attempts, Running
from gesta.worker.batch_admission import NOTHING_MADE, BatchAdmission, Paused
from gesta.worker.deadlines import Deadlines
from gesta.worker.eager_dispatch import EagerDispatcher
from gesta.worker.lease import LEASE_SECONDS, Lease, LeaseReconciliation

#: A queue signals when a job was put. If a signal is lost, a job waits at most this long.
POLL_SECONDS = 1.0
#: How often a queue is asked for a job that is due by our clock but not by the queue's.
CLOCK_PAUSE_SECONDS = 0.1
#: How many attempts of one batch begin before other tasks get a turn, within some milliseconds.
#: With fewer attempts, commits are smaller.
AT_A_TIME = 300
#: After the drain, cancelled attempts get this long to close their files, and this long to be
#: recorded; then the engine stops without them.
STOP_GRACE_SECONDS = 2.0
LAST_SECONDS = 4.0


class Pool:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        queue: JobQueue,
        admission: BatchAdmission,
        attempts: Attempts,
        deadlines: Deadlines,
        subjects: SubjectKeys,
        store_retry: StoreRetry,
        process: Process,
    ) -> None:
        self._queue, self._admission, self._attempts = queue, admission, attempts
        self._deadlines, self._subject_keys, self._process = deadlines, subjects, process
        self._runtime, self._telemetry = process.runtime, process.telemetry
        store_retry.repeated = self._gave_back
        deadlines.abandon = self._abandon
        self.lease = Lease(queue, process, lambda: deadlines.cut_all("lease_lost"))
        self._reconciliation = LeaseReconciliation(
            queue, self.lease, store_retry=store_retry, runtime=process.runtime
        )
        # The lease must be on disk before the call if an unknown request cannot be resent with the
        # same key.
        self._durable = any(flow.rules.on_unknown != "resend" for flow in flows.values())
        #: Flows whose calls are rendered and journaled before they are made.
        self._journaled = {flow.name for flow in flows.values() if flow.render is not None}
        self._free = {flow.name: flow.concurrency for flow in flows.values()}
        #: A job may be ready, or a flow that was full has a free slot again.
        self._may_lease = Signal(process.runtime)
        self._ended = Signal(process.runtime)
        #: Jobs that this process holds, by their ids.
        self._holding: dict[str, LeasedJob] = {}
        #: Jobs that were leased to us again before we had finished with them.
        self._again: dict[str, LeasedJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking: asyncio.Task[tuple[list[LeasedJob], int | None]] | None = None
        #: Whether the queue has ever answered; without flows it is never asked.
        self.has_begun = not flows
        self._is_stopping = self._has_left = False
        self.eager_dispatcher = EagerDispatcher(
            self._free,
            self._reconciliation,
            begin=self._begin_all,
            ended=self._slots_back,
            durable=self._durable,
        )
        #: Jobs that are being held for a pause: they may come again as soon as it ends.
        self._pausing_jobs: set[str] = set()
        #: When, according to the queue, the next job becomes due; for tests that control the clock.
        self.next_due_ms: int | None = None

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def run(self) -> None:
        """Lease and start jobs forever."""
        try:
            await self._admission.release_declared()
        except StoreError as error:
            # The sweeper looks, too.
            self._telemetry.store_failed("worker", error)
        await repeat(self._turn, "worker", self._process, outage=self._reconciliation.answer_lost)

    async def _turn(self) -> None:
        free = {
            flow: self.eager_dispatcher.asks(flow, slots)
            for flow, slots in self._free.items()
            if slots > 0
        }
        if self._reconciliation.should_look and not self.eager_dispatcher.on_their_way:
            self._begin_all(
                await self._reconciliation.look(self._holding.keys() | self._again.keys())
            )
        elif free:
            await self._take(free)
        else:
            await self._may_lease.wait(POLL_SECONDS)

    async def listen(self) -> None:
        """Forward the queue's signals forever."""
        await repeat(self._hear, "queue", self._process, outage=self._may_lease.set)

    async def _hear(self) -> None:
        await self._queue.ready(POLL_SECONDS)
        self._may_lease.set()

    async def _take(self, free: dict[str, int]) -> None:
        asked, asked_ms = self._reconciliation.ask(), self._runtime.now_ms()
        # Shielded: if the answer to a take is not awaited, jobs stay leased and are possibly
        # executed at the next start.
        self._taking = spawn(
            self._queue.take(asked.token, free, LEASE_SECONDS, durable=self._durable), "gesta-take"
        )
        with self.eager_dispatcher.kept(free):
            leased, self.next_due_ms = await asyncio.shield(self._taking)
        self._taking, self.has_begun = None, True
        self.eager_dispatcher.asked(free, leased)
        if leased:
            self._reconciliation.renewed(asked)
            self._begin_all(self._reconciliation.sure(leased, asked))
        if not may_have_more(free, leased, self.next_due_ms, asked_ms):
            pause = pause_seconds(self.next_due_ms, asked_ms, self._runtime.now_ms())
            await self._may_lease.wait(pause)

    def _begin_all(self, leased: list[LeasedJob], made: Mapping[str, View] = NOTHING_MADE) -> None:
        """`made`: requests that were created in the commit that leased their jobs, by job id."""
        if self._has_left:
            # The process is stopping: the next start finds these jobs under an expired lease.
            return
        fresh, is_lost = [], False
        for one in leased:
            job = one.job
            held = self._holding.get(job.id)
            is_ours = held is not None and held.token == one.token
            if is_ours and one.is_possibly_executed and job.id not in self._pausing_jobs:
                # Our own lease ended unnoticed, say because the machine slept. The attempt that
                # still runs settles this job.
                is_lost = True
                continue
            self.lease.held += 1
            self._free[job.flow] -= 1
            if is_ours:
                self._await_release(one)
            else:
                if self._again:
                    # Under another token, jobs that came again before are no longer held here.
                    self._forget_again(job.id)
                self._holding[job.id] = one
                fresh.append(one)
        if is_lost:
            self.lease.lose("it had ended before it was renewed")
        if fresh:
            self._start(self._begin(fresh, made))

    def _await_release(self, leased: LeasedJob) -> None:
        """We released it, and it was ready immediately, but the answer to the release is pending
        and the release may be repeated. The job is started after that.
        """
        self._forget_again(leased.job.id)
        self._again[leased.job.id] = leased

    def _gave_back(self, settlement: Settlement) -> None:
        """A repeated settlement may have ended the later lease, too. Only the queue knows."""
        again = self._again.get(settlement.job_id)
        if (
            again is not None
            and not isinstance(settlement, Drop)
            and settlement.token == again.token
        ):
            self._forget_again(settlement.job_id)
            self._reconciliation.mark_uncertain(settlement.job_id)

    def _forget_again(self, job_id: str) -> None:
        if (again := self._again.pop(job_id, None)) is not None:
            self._free_slot(again)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = spawn(coroutine, "gesta-attempt")
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended.set()

    async def _begin(
        self, leased: list[LeasedJob], made: Mapping[str, View] = NOTHING_MADE
    ) -> None:
        """Admit a batch, then run each attempt separately, so that a slow one does not delay
        others.
        """
        admission = self._admission
        ready, paused, missing, unreadable = await admission.admit(leased, made, insist=True)
        if self._is_stopping:
            await self._give_back(leased)
            return
        for one, error in unreadable:
            self._start(self._settle([one], admission.quarantine(one, error)))
        for one in missing:
            self._start(self._settle([one], admission.postpone(one, insist=True)))
        if paused:
            self._start(self._hold(paused))
        clear: list[Running] = []
        encrypted: list[tuple[LeasedJob, View]] = []
        for one, view in ready:
            if MARK in view.payload:
                encrypted.append((one, view))
            else:
                clear.append(Running(one, view, view.payload, lease=self.lease))
        await self._start_attempts(clear)
        if encrypted:
            await self._begin_encrypted(encrypted)

    async def _begin_encrypted(self, encrypted: list[tuple[LeasedJob, View]]) -> None:
        try:
            opened = await self._open([view for _, view in encrypted], encrypted[0][0].token)
        except Exception as error:  # noqa: BLE001 -- no job may be held for ever without an attempt
            for one, _ in encrypted:
                self._start(self._settle([one], self._admission.quarantine(one, error)))
            return
        if self._is_stopping:
            await self._give_back([one for one, _ in encrypted])
            return
        await self._start_attempts(
            [
                Running(one, view, payload, lease=self.lease)
                for (one, view), payload in zip(encrypted, opened, strict=True)
            ]
        )

    async def _open(self, views: list[View], token: str) -> list[Readable]:
        """The encrypted payloads of one batch, in one call. Waits while the vault is unavailable,
        because that is not a failed attempt.
        """
        while True:
            try:
                return await self._subject_keys.open(views)
            except StoreError as error:
                self._telemetry.store_failed("vault", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
                if not self.lease.covers(token):
                    # Not leased to us any more; nothing is called and nothing is recorded.
                    return [Retry("vault_unavailable", "nothing was called")] * len(views)

    async def _start_attempts(self, ready: Sequence[Running]) -> None:
        """In parts: callers with new requests get their turns in between, so that the store has
        requests to write while these run.
        """
        for first in range(0, len(ready), AT_A_TIME):
            if first:
                await turn()
                if self._is_stopping:
                    await self._give_back([rest.leased for rest in ready[first:]])
                    return
            journaled: list[Running] = []
            for running in ready[first : first + AT_A_TIME]:
                if running.leased.job.flow in self._journaled:
                    journaled.append(running)
                else:
                    self._start_attempt(running)
            if len(journaled) > 1:
                self._start(self._begin_journaled(journaled))
            elif journaled:
                self._start_attempt(journaled[0])

    async def _begin_journaled(self, journaled: Sequence[Running]) -> None:
        """Journal the calls of these attempts together, then run each."""
        try:
            await self._attempts.begin_all(journaled)
        except Exception as error:  # noqa: BLE001 -- each by itself
            self._telemetry.crashed("journal of a batch", error)
        for running in journaled:
            self._start_attempt(running)

    def _start_attempt(self, running: Running) -> None:
        running.task = spawn(self._run(running), "gesta-attempt")
        self._tasks.add(running.task)

    async def _run(self, running: Running) -> None:
        try:
            await self._attempts.run(running)
        except Exception as error:  # noqa: BLE001 -- one poison job; the rest goes on
            if not running.is_abandoned:
                await self._admission.quarantine(running.leased, error)
        finally:
            # Here and not by a callback, which would cost another turn of the loop for each
            # attempt.
            self._tasks.discard(running.task)
            if self._is_stopping:
                self._ended.set()
            if not running.is_abandoned:
                self._free_slot(running.leased)

    def _abandon(self, running: Running) -> None:
        """An executor that does not end gives up its slot and its request."""
        running.is_abandoned = True
        if running.task is not None:
            self._tasks.discard(running.task)
        self._start(self._settle([running.leased], self._record_abandoned(running)))

    async def _record_abandoned(self, running: Running) -> None:
        try:
            await self._attempts.abandon(running)
        except Exception as error:  # noqa: BLE001 -- as above
            await self._admission.quarantine(running.leased, error)

    async def _settle(self, leased: Sequence[LeasedJob], settling: Awaitable[None]) -> None:
        """Await what becomes of jobs without an attempt, then free their slots."""
        try:
            await settling
        finally:
            for one in leased:
                self._free_slot(one)

    async def _hold(self, paused: list[Paused]) -> None:
        jobs = {one.leased.job.id for one in paused}
        self._pausing_jobs |= jobs
        try:
            await self._admission.hold(paused, insist=True)
        finally:
            self._pausing_jobs -= jobs
            for one in paused:
                self._free_slot(one.leased)

    async def _give_back(self, leased: Sequence[LeasedJob]) -> None:
        await self._settle(leased, self._admission.release(leased))

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
            # The flow was full: its next job may have been ready for a long time.
            self._may_lease.set()

    def _slots_back(self) -> None:
        """Slots of eager dispatch came back: a job may have waited for them."""
        self._may_lease.set()
        self._ended.set()

    async def stop(self, drain_seconds: float) -> None:
        """After `run` was cancelled: release what was leased last, let attempts end, cancel those
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
        # An attempt that was cancelled before it began is done but still listed here.
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
            await self._admission.release(leased)

    def _cut_short(self) -> None:
        """Attempts that have not begun do not begin; running ones are cancelled and recorded as
        Unknown.
        """
        self.lease.resign()
        self._deadlines.cut_all("stopping", STOP_GRACE_SECONDS)

    def _leave(self) -> None:
        """The store does not accept the outcomes: the next start finds these jobs under an expired
        lease, possibly executed.
        """
        self._has_left = True
        self._telemetry.log.error("stopped before all outcomes were recorded", held=self.lease.held)
        self._ended.set()
        for task in self._tasks:
            task.cancel()


def may_have_more(
    asked: Mapping[str, int], leased: Sequence[LeasedJob], next_due_ms: int | None, asked_ms: int
) -> bool:
    """Whether the queue may have more ready jobs: it returned as many as were asked for, or more
    are due than it releases in one step.
    """
    if not leased:
        return False
    came = Counter([one.job.flow for one in leased])
    return any(came[flow] >= most for flow, most in asked.items()) or (
        next_due_ms is not None and next_due_ms <= asked_ms
    )


def pause_seconds(next_due_ms: int | None, asked_ms: int, now_ms: int) -> float:
    """Seconds until the next job is due, as far as the queue knows."""
    if next_due_ms is None:
        return POLL_SECONDS
    # Due before we asked, and not leased to us: the queue's clock is behind ours.
    least = 0.001 if next_due_ms > asked_ms else CLOCK_PAUSE_SECONDS
    return min(POLL_SECONDS, max(least, (next_due_ms - now_ms) / 1000))
