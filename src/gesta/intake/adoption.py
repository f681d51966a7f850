"""Adopts jobs that other programs put: each becomes a request, or names one, and is answered.

take → read → accept → wait for the end → answer, each for many jobs in one call. The state of a
job is in its queue and in the events, none of it here: after a crash between any two steps the job
comes back, its request is found under the same id, and nothing is executed twice.

A job is held under a lease while its request may end soon. Then it is put back with a delay, so
that slow requests never keep other jobs from being adopted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gesta.domain.outcome import Done, Unknown
from gesta.domain.state import State
from gesta.errors import (
    Conflict,
    InvalidRequest,
    Overloaded,
    PartlyAccepted,
    QueueRefused,
    StoreError,
)
from gesta.flows.flow import Flow
from gesta.intake.job_contract import (
    Complete,
    JobReading,
    Reference,
    Refusal,
    dead_letter_id,
    key_of,
    shown_id,
)
from gesta.intake.submit import Intake, Refused
from gesta.ports.foreign_jobs import (
    Completed,
    Failed,
    ForeignJob,
    ForeignJobs,
    ForeignSettlement,
    PutBack,
)
from gesta.ports.job_queue import JobQueue
from gesta.ports.read_model import Key
from gesta.requests.loader import Loader
from gesta.requests.waiters import outcome_of
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat

#: Jobs of one flow in one call. Their data may be large.
BATCH = 100
#: Jobs that wait for the end of their request in this process.
HELD_MAX = 1_000
#: How long a job stays leased before it is put back. Most requests end much sooner.
HOLD_SECONDS = 5.0
#: The request of a leased job is checked after this time, then after twice that time, and so on.
FIRST_LOOK_SECONDS = 0.05
#: The shortest and longest delay of a job that was put back.
AGAIN_MS_MIN, AGAIN_MS_MAX = 1_000, 600_000
#: As with BullMQ's own workers, a lease that ended only causes a repetition.
LEASE_SECONDS = 10.0
RENEWAL_SECONDS = 2.0
#: A queue signals when a job was put. If a signal is lost, a job waits at most this long.
POLL_SECONDS = 1.0
#: The shortest pause after a look that found nothing.
PAUSE_SECONDS = 0.1
#: A queue that cannot be used is tried again after this.
REFUSED_SECONDS = 30.0
#: S0-26: a pointer may be faster than its request. It is looked for so often.
STARTS_MAX = 5
REQUEST_NOT_FOUND = "request_not_found"


class Held(msgspec.Struct):
    """A job that waits for the end of its request."""

    job: ForeignJob
    key: Key
    since: float
    look_at: float
    #: Whether the request existed before this job was first taken.
    is_repeat: bool = False


class Adoption:
    def __init__(
        self,
        *,
        jobs: ForeignJobs,
        queue: JobQueue,
        flows: Mapping[str, Flow],
        reading: JobReading,
        intake: Intake,
        loader: Loader,
        process: Process,
    ) -> None:
        """`flows`: those whose jobs this process adopts."""
        self._jobs, self._queue, self._flows, self._reading = jobs, queue, flows, reading
        self._intake, self._loader, self._process = intake, loader, process
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._held: list[Held] = []
        #: Flow → when to try again to use its queue (monotonic).
        self._refused: dict[str, float] = {}
        self._forget()

    async def run(self) -> None:
        """Adopt jobs forever."""
        # A crash left jobs under the last token; this process does not know them.
        self._forget()
        await repeat(self._turn, "adoption", self._process, outage=self._forget)

    async def stop(self) -> None:
        """Answer the jobs whose requests have ended, and release the others to other processes."""
        held, self._held = self._held, []
        try:
            await self._answer(held, is_last=True)
        except StoreError as error:
            self._telemetry.store_failed("adoption", error)

    def _forget(self) -> None:
        """Continue under a new token: the jobs of the last one come back when its lease ends."""
        self._held.clear()
        self._token, self._renewed_at = self._process.ids.new(), float("-inf")

    async def _turn(self) -> None:
        if await self.step() > 0:
            return
        # Every job of our own sets the signal, too.
        await sleep(self._runtime, PAUSE_SECONDS)
        now = self._runtime.monotonic()
        looks = [one.look_at - now for one in self._held]
        if (pause := min([POLL_SECONDS, *looks])) > 0:
            await self._jobs.ready(pause)

    async def step(self) -> int:
        """Take and adopt one batch, and answer jobs whose requests have ended. Returns how many
        jobs were taken.
        """
        free = min(BATCH, HELD_MAX - len(self._held))
        taken: list[ForeignJob] = []
        if free > 0:
            asked_at = self._runtime.monotonic()
            flows = [flow for flow in self._flows if asked_at >= self._refused.get(flow, 0.0)]
            taken = await self._take(flows, free)
            if taken:
                self._renewed_at = asked_at
                await self._adopt(taken)
        await self._renew()
        now = self._runtime.monotonic()
        due = [one for one in self._held if one.look_at <= now]
        if due:
            self._held = [one for one in self._held if one.look_at > now]
            await self._answer(due)
        return len(taken)

    async def _take(self, flows: Sequence[str], free: int) -> list[ForeignJob]:
        """From all queues in one call; from each one separately if one of them cannot be used."""
        if not flows:
            return []
        try:
            return await self._jobs.take(self._token, dict.fromkeys(flows, free), LEASE_SECONDS)
        except QueueRefused as error:
            if len(flows) == 1:
                self._telemetry.store_failed("adoption", error)
                self._refused[flows[0]] = self._runtime.monotonic() + REFUSED_SECONDS
                return []
        taken = []
        for flow in flows:
            taken += await self._take([flow], free)
        return taken

    async def _renew(self) -> None:
        asked_at = self._runtime.monotonic()
        if not self._held or asked_at < self._renewed_at + RENEWAL_SECONDS:
            return
        if await self._queue.extend(self._token, LEASE_SECONDS):
            self._renewed_at = asked_at
        else:
            self._forget()

    async def _adopt(self, taken: Sequence[ForeignJob]) -> None:
        now_ms = self._runtime.now_ms()
        complete: list[tuple[ForeignJob, Complete]] = []
        references: list[tuple[ForeignJob, Reference]] = []
        refusals: list[tuple[ForeignJob, Refusal]] = []
        for job in taken:
            meaning = self._reading.read(job, now_ms)
            if isinstance(meaning, Complete):
                complete.append((job, meaning))
            elif isinstance(meaning, Reference):
                references.append((job, meaning))
            else:
                refusals.append((job, meaning))
        await self._drop_secrets(references)
        for job, reference in references:
            self._hold(job, key_of(job.flow, reference))
        for job, one in complete:
            if job.is_adopted:
                self._hold(job, key_of(job.flow, one))
        fresh = [(job, one) for job, one in complete if not job.is_adopted]
        refusals += await self._stalled_too_often(fresh)
        gone = {id(job) for job, _ in refusals}
        refusals += await self._accept([pair for pair in fresh if id(pair[0]) not in gone])
        await self._refuse(refusals)

    async def _drop_secrets(self, jobs: Iterable[tuple[ForeignJob, Reference | Refusal]]) -> None:
        """S0-28: of an enriched job only the ids stay, whatever becomes of it."""
        enriched = [(job, one.data) for job, one in jobs if one.data is not None]
        if enriched:
            await self._jobs.replace_data(enriched)
            for job, _ in enriched:
                self._telemetry.enriched_job(job.flow)

    async def _stalled_too_often(
        self, fresh: Sequence[tuple[ForeignJob, Complete]]
    ) -> list[tuple[ForeignJob, Refusal]]:
        """Jobs that BullMQ wants to fail, unless their request exists and determines how they
        end.
        """
        failing = {
            key_of(job.flow, one): job for job, one in fresh if job.deferred_failure is not None
        }
        if not failing:
            return []
        found, _ = await self._loader.load(list(failing))
        return [
            (job, Refusal(key[1], job.deferred_failure or ""))
            for key, job in failing.items()
            if key not in found
        ]

    async def _accept(
        self, jobs: Sequence[tuple[ForeignJob, Complete]]
    ) -> list[tuple[ForeignJob, Refusal]]:
        """Submit under the job's own id; the refusals."""
        if not jobs:
            return []
        try:
            answers = await self._intake.submit_each(
                [(one.payload, one.options) for _, one in jobs]
            )
        except (Overloaded, PartlyAccepted) as error:
            # What was accepted is found again under its id.
            self._telemetry.store_failed("adoption", error)
            await self._jobs.settle([PutBack(job, AGAIN_MS_MIN) for job, _ in jobs])
            return []
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- one poison job; the rest goes on
            return await self._accept_one_by_one(jobs, error)
        refusals: list[tuple[ForeignJob, Refusal]] = []
        for (job, one), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Conflict):
                refusals.append((job, _conflict(one)))
            elif isinstance(answer, InvalidRequest):
                options = one.options
                message = self._reading.invalid(job, {}, answer.fields).message
                refusals.append((job, Refusal(options.tenant, message, options.correlation_id)))
            else:
                is_repeat = answer.verdict == "duplicate" and job.starts == 1
                self._hold(job, key_of(job.flow, one), is_repeat=is_repeat)
                self._telemetry.job_adopted(job.flow, answer.verdict)
        return refusals

    async def _accept_one_by_one(
        self, jobs: Sequence[tuple[ForeignJob, Complete]], error: Exception
    ) -> list[tuple[ForeignJob, Refusal]]:
        if len(jobs) == 1:
            job, _ = jobs[0]
            self._telemetry.job_not_adopted(job.flow, shown_id(job), error)
            await self._jobs.settle([PutBack(job, AGAIN_MS_MAX)])
            return []
        refusals = []
        for one in jobs:
            refusals += await self._accept([one])
        return refusals

    async def _refuse(self, refusals: Sequence[tuple[ForeignJob, Refusal]]) -> None:
        """Record the dead letter, then fail the job: a crash in between repeats both."""
        if not refusals:
            return
        await self._intake.refuse([_dead_letter(job, one) for job, one in refusals])
        await self._drop_secrets(refusals)
        for job, one in refusals:
            self._telemetry.job_refused(job.flow, shown_id(job), one.message)
        await self._jobs.settle([Failed(job, one.message) for job, one in refusals])

    def _hold(self, job: ForeignJob, key: Key, *, is_repeat: bool = False) -> None:
        now = self._runtime.monotonic()
        # The data is in the request.
        kept = msgspec.structs.replace(job, data=None)
        self._held.append(Held(kept, key, now, now, is_repeat))

    async def _answer(self, held: Sequence[Held], *, is_last: bool = False) -> None:
        """Answer the jobs whose requests have ended; the others stay leased or are put back."""
        if not held:
            return
        found, _ = await self._loader.load([one.key for one in held])
        missing = [one for one in held if one.key not in found]
        waiting: list[Held] = []
        ended: list[Held] = []
        for one in held:
            if one.key in found:
                is_over = _has_ended(found[one.key].state)
                (ended if is_over else waiting).append(one)
        settlements = await self._ends([(one, found[one.key].state) for one in ended])
        now = self._runtime.monotonic()
        for one in waiting:
            if is_last or now - one.since >= HOLD_SECONDS:
                settlements.append(self._put_back(one, found[one.key].state, is_last=is_last))
            else:
                one.look_at = now + max(FIRST_LOOK_SECONDS, now - one.since)
                self._held.append(one)
        settlements += await self._missing(missing)
        if settlements:
            await self._jobs.settle(settlements)

    async def _ends(self, ended: Sequence[tuple[Held, State]]) -> list[ForeignSettlement]:
        adopts = {name: flow.adopts for name, flow in self._flows.items()}
        keys = [one.key for one, state in ended if adopts[one.job.flow] and _is_done(state)]
        histories = await self._loader.histories(keys) if keys else {}
        settlements: list[ForeignSettlement] = []
        for one, state in ended:
            contract = adopts[one.job.flow]
            if not _is_done(state):
                reason = state.reason if contract is None else contract.failure(state)
                settlements.append(Failed(one.job, reason or state.status))
            elif contract is None:
                settlements.append(Completed(one.job, _result(state)))
            else:
                history = histories[one.key]
                repeated = contract.repeated(state) if one.is_repeat else None
                value = contract.result(state, history) if repeated is None else repeated
                settlements.append(Completed(one.job, value))
        return settlements

    def _put_back(self, one: Held, state: State, *, is_last: bool) -> PutBack:
        if is_last:
            return PutBack(one.job, is_adopted=True)
        now_ms = self._runtime.now_ms()
        # The older a request is, the longer it may still take.
        again_ms = (now_ms - state.created_at) // 2
        if state.due_at is not None and state.due_at > now_ms:
            again_ms = state.due_at - now_ms + AGAIN_MS_MIN
        return PutBack(one.job, min(max(again_ms, AGAIN_MS_MIN), AGAIN_MS_MAX), is_adopted=True)

    async def _missing(self, missing: Sequence[Held]) -> list[ForeignSettlement]:
        """S0-26. A request is also missing when its retention is over."""
        refusals: list[tuple[ForeignJob, Refusal]] = []
        again: list[ForeignSettlement] = []
        for one in missing:
            if one.job.starts >= STARTS_MAX or one.job.is_adopted:
                refusals.append((one.job, _not_found(one.key)))
            else:
                again.append(PutBack(one.job, AGAIN_MS_MIN * 2 ** (one.job.starts - 1)))
        await self._refuse(refusals)
        return again


def _has_ended(state: State) -> bool:
    """Whether nothing more happens automatically: an unknown outcome may wait for a person."""
    outcome = outcome_of(state)
    return outcome is not None and not isinstance(outcome, Unknown)


def _is_done(state: State) -> bool:
    return isinstance(outcome_of(state), Done)


def _result(state: State) -> dict[str, Any]:
    return {"status": state.status, "providerId": state.provider_id, "attempt": state.attempts}


def _conflict(one: Complete) -> Refusal:
    options = one.options
    message = f"conflict: {options.key} was used before with other content; use a new id"
    return Refusal(options.tenant, message, options.correlation_id, "conflict")


def _not_found(key: Key) -> Refusal:
    _, tenant, request_id = key
    return Refusal(tenant, f"{REQUEST_NOT_FOUND}: tenant {tenant} has no request {request_id}")


def _dead_letter(job: ForeignJob, one: Refusal) -> Refused:
    return Refused(
        job.flow,
        one.tenant,
        dead_letter_id(job),
        one.reason,
        f"job {shown_id(job)}: {one.message}",
        one.correlation_id,
    )
