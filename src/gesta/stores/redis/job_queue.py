"""Jobs in the layout of BullMQ, so that Node services can work on the same queues.

One BullMQ queue per flow and per external queue. Ready jobs are in `prioritized`, ordered fairly
between tenants; lua/common.lua says how. A job holds the pointer of the documents and nothing else.

Redis keeps what it acknowledged only as well as its settings say: with `appendfsync everysec` a
crash loses the last second. Every job can be restored from the events, and the sweeper does that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from gesta.domain.ids import flow_of_external_queue
from gesta.errors import QueueRefused, StoreError
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.fences import Fence
from gesta.ports.job_queue import (
    Ack,
    Backlog,
    HeldJob,
    Hold,
    Job,
    JobState,
    LeasedJob,
    QueueStanding,
    Release,
    Settled,
    Settlement,
)
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.pointers import pointer_to
from gesta.stores.redis.connection import Arg, Call, Redis, script
from gesta.stores.redis.execution_locks import ExecutionLocks, Lock, lock_of, lock_of_job
from gesta.stores.redis.foreign_jobs import RedisForeignJobs
from gesta.stores.redis.keys import (
    OwnKeys,
    QueueKeys,
    RequestKeys,
    flow_of_queue,
    job_name,
    queue_name,
)
from gesta.stores.redis.wake_up import WakeUp

#: R0-7, R0-8: the executor repeats, not BullMQ; the newest finished jobs are kept.
ATTEMPTS = 1
KEEP_COMPLETED = 100
KEEP_FAILED = 50
#: Jobs per script: longer scripts hold up every other client of the server.
BATCH = 1_000
#: Settlements per script; several scripts go in one round trip. The server takes longer for each in
#: a script with thousands of writes.
SETTLED = 300
#: Jobs of one flow that one call leases. Their lease runs from the call on, so they must be at work
#: long before it ends, also on a slow server.
TAKEN = 500
#: The priority of a request that asks for none.
USUAL_PRIORITY = 5
#: A job whose request is locked by another live job comes back after this.
LOCKED_MS = 5_000
#: BullMQ's lock on a job lasts so many leases, so that it is renewed less often than the lease. It
#: keeps Node workers away; between workers of gesta the lease decides.
LEASES_PER_LOCK = 2

#: An answer of put.lua: the job was created and is leased.
LEASED = 2

_pack = msgspec.msgpack.Encoder().encode
#: kind, job id, token, due ms or scope
Row = tuple[str, str, str, str | int]


class RedisJobQueue:
    """Implements JobQueue, EagerJobs, JobInspection, JobHolds and ExternalLeases."""

    def __init__(
        self, redis: Redis, runtime: Runtime, *, now_ms: Callable[[], int] | None = None
    ) -> None:
        """`now_ms` is the clock of a test: then the scripts do not use the server's, and nothing
        that needs real time wakes a worker.
        """
        self._redis, self._runtime, self._now_ms = redis, runtime, now_ms
        self._prefix = redis.address.prefix
        self._own = OwnKeys(self._prefix)
        self._locks = ExecutionLocks(redis, runtime)
        self._queued = Signal(runtime)
        self._worker = f"gesta-{runtime.random_bytes(4).hex()}"
        self.foreign = RedisForeignJobs(redis, self._worker, runtime, now_ms=now_ms)
        self.wake_up = WakeUp(redis, runtime, self._wake, is_on=now_ms is None)

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        return await self._put(jobs, "")

    async def put_after(self, fence: Fence, jobs: Sequence[Job]) -> list[bool]:
        """Take the fence down and put these jobs, in one script as far as one batch reaches."""
        return await self._put(jobs, fence.kind)

    async def _put(self, jobs: Sequence[Job], fence: str) -> list[bool]:
        created: list[bool] = []
        refused: list[QueueRefused] = []
        for at in range(0, len(jobs), BATCH):
            batch = jobs[at : at + BATCH]
            try:
                created += await self._put_batch(batch, fence)
            except QueueRefused as error:
                flows = dict.fromkeys(job.flow for job in batch)
                if len(flows) == 1:
                    refused.append(error)
                else:
                    refused += await self._put_by_flow(batch, flows)
            fence = ""
        self._queued.set()
        if refused:
            raise QueueRefused(str(refused[0]), [one for error in refused for one in error.job_ids])
        return created

    async def _put_batch(self, batch: Sequence[Job], fence: str) -> list[bool]:
        try:
            _, *answers = await self._redis.call(self._put_call(batch, fence))
        except QueueRefused as error:
            raise QueueRefused(str(error), [job.id for job in batch]) from error
        return [bool(one) for one in answers]

    def _put_call(self, batch: Sequence[Job], fence: str, worker: Sequence[Arg] = ()) -> Call:
        flows = dict.fromkeys(job.flow for job in batch)
        keys = [key for flow in flows for key in QueueKeys(self._prefix, flow).fixed]
        bases = {flow: QueueKeys(self._prefix, flow).base for flow in flows}
        keys += [bases[job.flow] + job.id for job in batch]
        # One argument, and one list: client and server take longer for each than for its content.
        clock_ms = self._clock_ms()
        values = list(chain.from_iterable([_row(job, clock_ms) for job in batch]))
        args: list[Arg] = [self._now(), fence, _pack(values), *worker]
        return Call(script("put"), [*self._own.fixed, *keys], args)

    async def put_leased(self, jobs: Sequence[Job], free_slots: FreeSlots) -> list[bool]:
        """One round trip on one server: the locks of the requests travel with the jobs."""
        if len(jobs) > BATCH:
            # More than one script should hold: they take their turns.
            return await self.put(jobs)
        slots = [one for flow, free in free_slots.free.items() for one in (queue_name(flow), free)]
        worker: list[Arg] = [
            free_slots.token,
            *self._lease_ms(free_slots.lease_seconds),
            self._worker,
            _pack(slots),
        ]
        calls = [self._put_call(jobs, "", worker)]
        wanted: list[Lock] = []
        if not self._redis.address.is_cluster:
            clock_ms = self._clock_ms()
            wanted = [
                lock_of_job(job, free_slots.token)
                for job in jobs
                if job.flow in free_slots.free and job.due_ms <= clock_ms
            ]
        try:
            (now, *answers), *held = await self._redis.calls(
                [*calls, *self._locks.lock_calls(wanted, are_leased=False)]
            )
        except StoreError as error:
            with suppress(StoreError):
                await self._redis.calls(self._locks.unlock_calls(wanted))
            if isinstance(error, QueueRefused):
                raise QueueRefused(str(error), [job.id for job in jobs]) from error
            raise
        leased = [
            LeasedJob(job, free_slots.token, 1, max(int(now), job.due_ms))
            for job, answer in zip(jobs, answers, strict=True)
            if answer == LEASED
        ]
        refused = self._locks.locked(wanted, held)
        ours = {one.job.id for one in leased}
        stray = [one for one in wanted if one.job_id not in ours and one not in refused]
        if stray:
            await self._redis.calls(self._locks.unlock_calls(stray))
        locked = {one.job_id for one in wanted if one not in refused}
        free_slots.leased = [
            *(one for one in leased if one.job.id in locked),
            *await self._lock([one for one in leased if one.job.id not in locked]),
        ]
        if len(leased) < len(jobs):
            self._queued.set()
        return [bool(one) for one in answers]

    async def _put_by_flow(self, batch: Sequence[Job], flows: Iterable[str]) -> list[QueueRefused]:
        """Each queue by itself, because one of them cannot be used."""
        refused = []
        for flow in flows:
            try:
                await self._put_batch([job for job in batch if job.flow == flow], "")
            except QueueRefused as error:
                refused.append(error)
        return refused

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        """`durable` changes nothing: how soon Redis writes to disk is a setting of the server."""
        asked = {flow: min(free, TAKEN) for flow, free in flows.items()}
        try:
            leased, next_due = await self._take(token, asked, lease_seconds)
        except QueueRefused:
            leased, next_due = await self._take_by_flow(token, asked, lease_seconds)
        taken = Counter(one.job.flow for one in leased)
        hungry = [flow for flow, free in flows.items() if taken[flow] < free]
        self.wake_up.listen_for(hungry, has_found=bool(leased))
        if any(taken[flow] == TAKEN < free for flow, free in flows.items()):
            # More may be ready: the worker comes again at once.
            next_due = 0
        return await self._lock(leased), next_due

    async def _take(
        self, token: str, flows: dict[str, int], lease_seconds: float
    ) -> tuple[list[LeasedJob], int | None]:
        keys = [self._own.lease(token)]
        args: list[Arg] = [self._now(), token, *self._lease_ms(lease_seconds), self._worker]
        for flow, free in flows.items():
            keys += QueueKeys(self._prefix, flow).fixed
            args += [queue_name(flow), free]
        next_due, *rows = await self._call("take", keys, args)
        return [_leased(row, token) for row in rows], int(next_due) if next_due else None

    async def _take_by_flow(
        self, token: str, flows: dict[str, int], lease_seconds: float
    ) -> tuple[list[LeasedJob], int | None]:
        """Each queue by itself, because one of them cannot be used. Raises its error while the
        others have nothing to do.
        """
        leased: list[LeasedJob] = []
        moments, refused = [], None
        for flow, free in flows.items():
            try:
                found, next_due = await self._take(token, {flow: free}, lease_seconds)
            except QueueRefused as error:
                refused = error
            else:
                leased += found
                moments += [] if next_due is None else [next_due]
        if refused is not None and not leased:
            raise refused
        return leased, min(moments, default=None)

    async def _lock(self, leased: list[LeasedJob]) -> list[LeasedJob]:
        """Lock the requests. What another live job has locked is put back (S0-5)."""
        if not leased:
            return leased
        return await self._without_locked(
            leased, await self._locks.lock([lock_of(one) for one in leased])
        )

    async def _without_locked(
        self, leased: list[LeasedJob], refused: Mapping[Lock, str]
    ) -> list[LeasedJob]:
        """Without the jobs whose requests are locked by another one that is live."""
        if not refused:
            return leased
        locks = {lock_of(one): one for one in leased}
        holders = {lock: value.partition(" ")[0] for lock, value in refused.items()}
        live = await self.find(list(holders.values()))
        gone = {lock: refused[lock] for lock, holder in holders.items() if holder not in live}
        if gone:
            refused = {lock: "" for lock in refused if lock not in gone} | await self._locks.lock(
                list(gone), gone
            )
        if refused:
            due_ms = self._clock_ms() + LOCKED_MS
            await self._settle([("postpone", one.job_id, one.token, due_ms) for one in refused])
        return [one for lock, one in locks.items() if lock not in refused]

    async def leased_by(self, token: str) -> list[LeasedJob]:
        rows = await self._call("leased_by", [self._own.lease(token)], [token])
        return await self._lock([_leased(row, token) for row in rows])

    async def extend(self, token: str, lease_seconds: float) -> bool:
        args: list[Arg] = [self._now(), token, *self._lease_ms(lease_seconds)]
        if not await self._call("extend", [self._own.lease(token)], args):
            return False
        await self._locks.renew(token)
        return True

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        rows = [_settlement(one) for one in settlements]
        answers = await self._settle(rows)
        if any(isinstance(one, Release) for one in settlements):
            self._queued.set()
        return answers

    async def _settle(self, rows: Sequence[Row]) -> list[Settled]:
        settled: list[Settled] = []
        for at in range(0, len(rows), BATCH):
            settled += await self._settle_batch(rows[at : at + BATCH])
        return settled

    async def _settle_batch(self, batch: Sequence[Row]) -> list[Settled]:
        """Settle, then unlock the requests; on one server both are one round trip."""
        held = [self._locks.of(job_id, token) for _, job_id, token, _ in batch]
        rows = [
            (*row, "" if one is None else one.queue) for row, one in zip(batch, held, strict=True)
        ]
        calls = [
            Call(
                script("settle"),
                self._own.fixed,
                [
                    self._now(),
                    KEEP_COMPLETED,
                    _pack(list(chain.from_iterable(rows[at : at + SETTLED]))),
                ],
            )
            for at in range(0, len(rows), SETTLED)
        ]
        count = len(calls)
        if not self._redis.address.is_cluster:
            calls += self._locks.unlock_calls([one for one in held if one is not None])
            held = [None] * len(held)
        answers = list(chain.from_iterable((await self._redis.calls(calls))[:count]))
        settled: list[Settled] = []
        locks: list[Lock] = []
        for (kind, job_id, token, _), lock, answer in zip(batch, held, answers, strict=True):
            # The answer has queue and data for a job that another process has leased.
            verdict, queue, data = answer if isinstance(answer, list) else (answer, "", "")
            settled.append(verdict)
            if queue and verdict == "done" and kind != "drop":
                locks.append(_lock(queue, data, job_id=job_id, token=token))
            if lock is not None:
                locks.append(lock)
        if locks:
            # The jobs are settled. The next job of such a request finds the holder gone.
            with suppress(StoreError):
                await self._redis.calls(self._locks.unlock_calls(locks))
        return settled

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for at in range(0, len(job_ids), BATCH):
            batch = job_ids[at : at + BATCH]
            answers = await self._call("find", [], batch)
            found |= {job_id for job_id, is_live in zip(batch, answers, strict=True) if is_live}
        return found

    async def ready(self, timeout_seconds: float) -> None:
        await self._queued.wait(timeout_seconds)

    def _wake(self) -> None:
        """A marker does not say whose job is ready."""
        self._queued.set()
        self.foreign.may_have_jobs.set()

    async def count(self, limit: int) -> int:
        return min(limit, int(await self._redis.command("ZCARD", self._own["jobs"])))

    async def backlog(self) -> dict[str, Backlog]:
        """By queue, with the jobs of Node services that are in them."""
        flows = sorted(await self._redis.command("SMEMBERS", self._own["flows"]))
        answers = await self._call("backlog", [], [self._now(), *map(queue_name, flows)])
        found = {}
        for flow, (waiting, ready, leased, held, abandoned, oldest) in zip(
            flows, answers, strict=True
        ):
            if waiting or ready or leased or held:
                found[flow] = Backlog(
                    waiting=waiting,
                    ready=ready,
                    leased=leased,
                    oldest_ready_ms=int(oldest) if oldest else None,
                    held=held,
                    abandoned=abandoned,
                )
        return found

    async def jobs(self, after_id: str, limit: int) -> list[QueueStanding]:
        rows = await self._call("jobs", [], [self._now(), after_id, limit])
        return [_standing(row) for row in rows]

    async def unhold(self, scope: str, limit: int) -> int:
        args: list[Arg] = [self._now(), scope, limit]
        count = int(await self._call("unhold", [self._own.held(scope)], args))
        if count:
            self._queued.set()
        return count

    async def held(self) -> list[HeldJob]:
        counts = await self._redis.command("HGETALL", self._own["holds"])
        found = []
        for field, count in counts.items():
            tenant, scope = msgspec.json.decode(field)
            found.append(HeldJob(tenant, scope, int(count)))
        return found

    async def lease_external(
        self, token: str, external_queue: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        keys = [self._external(external_queue), *QueueKeys(self._prefix, external_queue).fixed]
        args: list[Arg] = [self._now(), token, *self._lease_ms(lease_seconds), self._worker]
        rows = await self._call("lease_external", keys, [*args, queue_name(external_queue), limit])
        return await self._lock([_leased(row, token) for row in rows])

    async def prolong(self, job_id: str, token: str, lease_seconds: float) -> int | None:
        args: list[Arg] = [self._now(), job_id, token, *self._lease_ms(lease_seconds)]
        end = await self._call("prolong", [], args)
        return int(end) if end else None

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        args: list[Arg] = [self._now(), token, *self._lease_ms(lease_seconds), limit]
        rows = await self._call("expired_leases", [self._own.external(external_queues)], args)
        return await self._lock([_leased(row, token) for row in rows])

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        keys = [key for name in external_queues for key in QueueKeys(self._prefix, name).fixed]
        answers = await self._call(
            "stocked", keys, [self._now(), *map(queue_name, external_queues)]
        )
        return {name for name, one in zip(external_queues, answers, strict=True) if one}

    def _external(self, external_queue: str) -> str:
        return self._own.external(f"@{flow_of_external_queue(external_queue)}/")

    def _now(self) -> int:
        """0: the script asks the server."""
        return self._now_ms() if self._now_ms else 0

    def _clock_ms(self) -> int:
        return (self._now_ms or self._runtime.now_ms)()

    def _lease_ms(self, lease_seconds: float) -> tuple[int, int]:
        """The lease, and BullMQ's lock, which cannot be shorter than a millisecond."""
        lease_ms = round(lease_seconds * 1000)
        return lease_ms, max(LEASES_PER_LOCK * lease_ms, 1)

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        return await self._redis.call(Call(script(name), [*self._own.fixed, *keys], args))


def _row(job: Job, clock_ms: int) -> tuple[Any, ...]:
    """As put.lua has it."""
    flow, due_ms = job.flow, job.due_ms
    return (
        queue_name(flow),
        flow,
        job.id,
        job_name(flow, job.kind),
        pointer_to(flow, job.tenant, job.request_id).decode(),
        _options(job.priority, max(0, due_ms - clock_ms)),
        f"{job.dispatch_version} {job.kind} {job.priority} {due_ms} {job.tenant}",
        due_ms,
        job.possibly_executed,
    )


@lru_cache(100)
def _options(priority: int, delay_ms: int) -> str:
    """BullMQ's options of a job, as JSON."""
    options = {
        "attempts": ATTEMPTS,
        "removeOnComplete": KEEP_COMPLETED,
        "removeOnFail": KEEP_FAILED,
    }
    # Without what is usual, a waiting job takes 16 bytes less.
    if priority != USUAL_PRIORITY:
        options["priority"] = priority
    if delay_ms:
        options["delay"] = delay_ms
    return msgspec.json.encode(options).decode()


def _request_id(data: str) -> str:
    pointer: dict[str, str] = msgspec.json.decode(data)
    return pointer.get("messageRequestId") or pointer["requestId"]


def _settlement(one: Settlement) -> Row:
    """As settle.lua has it."""
    if isinstance(one, Ack):
        return "ack", one.job_id, one.token, ""
    if isinstance(one, Release):
        return "release", one.job_id, one.token, one.due_ms
    if isinstance(one, Hold):
        return "hold", one.job_id, one.token, one.scope
    return "drop", one.job_id, "", ""


def _job(row: Sequence[Any]) -> Job:
    queue, job_id, data, own, _, _, is_possibly_executed, *_ = row
    version, kind, priority, due_ms, tenant = own.split(" ", 4)
    return Job(
        job_id,
        tenant,
        flow_of_queue(queue),
        _request_id(data),
        int(version),
        kind=kind,
        due_ms=int(due_ms),
        priority=int(priority),
        possibly_executed=bool(int(is_possibly_executed)),
    )


def _leased(row: Sequence[Any], token: str) -> LeasedJob:
    return LeasedJob(_job(row), token, int(row[5]), int(row[4]))


def _standing(row: Sequence[Any]) -> QueueStanding:
    *_, available_ms, takes, _, state, until_ms = row
    kind: JobState = state
    job = msgspec.structs.replace(_job(row), due_ms=int(available_ms))
    return QueueStanding(job, kind, int(takes), int(until_ms) if until_ms else None)


def _lock(queue: str, data: str, *, job_id: str, token: str) -> Lock:
    tenant = msgspec.json.decode(data)["tenant"]
    key = RequestKeys(flow_of_queue(queue), tenant, _request_id(data)).lock
    return Lock(key, job_id, token, queue)
