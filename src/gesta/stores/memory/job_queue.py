"""Jobs in two heaps per flow: waiting ones by time, ready ones by turn.

A worker process has one lease, under its token, for all of its jobs.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gesta.domain.fair_queue import QueueLine, give_turns, score_of
from gesta.ports.eager_dispatch import FreeSlots, chosen_of
from gesta.ports.job_queue import (
    Backlog,
    Drop,
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
from gesta.stores.memory.fences import MemoryFences


@dataclass(slots=True)
class _Row:
    job: Job
    available_ms: int
    #: Leases without a recorded end: the attempt of each may have had its effect.
    takes: int = 0
    token: str | None = None
    #: The number of the valid heap entry of this row. Entries with other numbers are skipped.
    entry: int = 0
    #: None until it becomes ready after it was put, released or unheld.
    turn: int | None = None
    #: The scope that it is held under.
    hold: str | None = None
    #: The end of its lease to an external worker.
    until_ms: int | None = None

    @property
    def line(self) -> QueueLine:
        return self.job.flow, self.job.tenant, self.job.priority


@dataclass(slots=True)
class _Queue:
    """The jobs of a flow that are not leased, as (time or score, entry, job id); its present turn;
    and the end of each line of jobs.
    """

    waiting: list[tuple[int, int, str]] = field(default_factory=list)
    ready: list[tuple[int, int, str]] = field(default_factory=list)
    present: int = 0
    ends: dict[QueueLine, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Lease:
    end_ms: int
    #: Its jobs by flow. Dicts keep their order.
    jobs: dict[str, dict[str, None]] = field(default_factory=dict)


class MemoryJobQueue:
    def __init__(self, runtime: Runtime, fences: MemoryFences | None = None) -> None:
        self._runtime, self._fences = runtime, fences or MemoryFences()
        self._rows: dict[str, _Row] = {}
        self._queues: dict[str, _Queue] = {}
        self._leases: dict[str, _Lease] = {}
        self._entries = itertools.count(1)
        self._queued = Signal(runtime)

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        self._fences.check_jobs()
        return [self.put_one(job) for job in jobs]

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        self._fences.check_jobs()
        self._end_expired_leases()
        rows = [row for flow, free in flows.items() for row in self._due_rows(flow, free)]
        if rows:
            # One lease for all jobs of a token: earlier jobs are renewed, too.
            self._leases.setdefault(token, _Lease(0)).end_ms = self._lease_end(lease_seconds)
        return [self._lease_out(row, token) for row in rows], self._next_due(token, flows)

    async def leased_by(self, token: str) -> list[LeasedJob]:
        rows = (row for row in self._rows.values() if row.token == token and row.until_ms is None)
        return [LeasedJob(row.job, token, row.takes, row.available_ms) for row in rows]

    async def extend(self, token: str, lease_seconds: float) -> bool:
        self._fences.check()
        lease = self._leases.get(token)
        if lease is None or lease.end_ms <= self._runtime.now_ms():
            return False
        lease.end_ms = self._lease_end(lease_seconds)
        return True

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._fences.check()
        return [self.settle_one(settlement) for settlement in settlements]

    async def lease_external(
        self, token: str, external_queue: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        self._fences.check_jobs()
        return [
            self._lend(row, token, lease_seconds) for row in self._due_rows(external_queue, limit)
        ]

    async def prolong(self, job_id: str, token: str, lease_seconds: float) -> int | None:
        self._fences.check()
        row = self._rows.get(job_id)
        if (
            row is None
            or row.token != token
            or row.until_ms is None
            or row.until_ms <= self._runtime.now_ms()
        ):
            return None
        row.until_ms = max(row.until_ms, self._lease_end(lease_seconds))
        return row.until_ms

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        self._fences.check_jobs()
        now = self._runtime.now_ms()
        expired = (
            row
            for row in self._rows.values()
            if row.until_ms is not None and row.token is not None and row.until_ms <= now
        )
        rows = itertools.islice(
            (row for row in expired if row.job.flow.startswith(external_queues)), limit
        )
        return [self._lend(row, token, lease_seconds) for row in list(rows)]

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        known = [(name, self._queues[name]) for name in external_queues if name in self._queues]
        now = self._runtime.now_ms()
        return {
            name
            for name, queue in known
            if self._first(queue.ready)
            or ((row := self._first(queue.waiting)) and row.available_ms <= now)
        }

    async def unhold(self, scope: str, limit: int) -> int:
        self._fences.check()
        rows = list(
            itertools.islice((row for row in self._rows.values() if row.hold == scope), limit)
        )
        for row in rows:
            row.hold = None
            self._enqueue(row)
        return len(rows)

    async def held(self) -> list[HeldJob]:
        counts = Counter(
            (row.job.tenant, row.hold) for row in self._rows.values() if row.hold is not None
        )
        return [HeldJob(tenant, scope, count) for (tenant, scope), count in counts.items()]

    async def count(self, limit: int) -> int:
        return min(len(self._rows), limit)

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        return {job_id for job_id in job_ids if job_id in self._rows}

    async def backlog(self) -> dict[str, Backlog]:
        found: dict[str, Backlog] = {}
        now = self._runtime.now_ms()
        for row in self._rows.values():
            state, before = self._state(row), found.get(row.job.flow, Backlog())
            oldest = before.oldest_ready_ms
            if state == "ready":
                oldest = row.available_ms if oldest is None else min(oldest, row.available_ms)
            counts = {
                state: getattr(before, state) + 1,
                "abandoned": before.abandoned + self._standing(row).is_abandoned(now),
            }
            found[row.job.flow] = replace(before, **counts, oldest_ready_ms=oldest)
        return found

    async def jobs(self, after_id: str, limit: int) -> list[QueueStanding]:
        names = heapq.nsmallest(limit, (name for name in self._rows if name > after_id))
        return [self._standing(self._rows[name]) for name in names]

    def _standing(self, row: _Row) -> QueueStanding:
        until_ms = None
        if row.token is not None:
            until_ms = self._leases[row.token].end_ms if row.until_ms is None else row.until_ms
        return QueueStanding(
            replace(row.job, due_ms=row.available_ms), self._state(row), row.takes, until_ms
        )

    def _state(self, row: _Row) -> JobState:
        if row.token is not None:
            return "leased"
        if row.hold is not None:
            return "held"
        return "ready" if row.available_ms <= self._runtime.now_ms() else "waiting"

    async def ready(self, timeout_seconds: float) -> None:
        await self._queued.wait(timeout_seconds)

    def put_one(self, job: Job) -> bool:
        if job.id in self._rows:
            return False
        self._enqueue(_Row(job, max(job.due_ms, self._runtime.now_ms())))
        return True

    async def put_leased(self, jobs: Sequence[Job], free_slots: FreeSlots) -> list[bool]:
        self._fences.check_jobs()
        live, created = set(self._rows), []
        for job in jobs:
            created.append(job.id not in live)
            live.add(job.id)
        fresh = [job for job, is_new in zip(jobs, created, strict=True) if is_new]
        self.put_eager(fresh, free_slots)
        return created

    def put_eager(self, jobs: Sequence[Job], free_slots: FreeSlots | None) -> None:
        """Put all jobs, and lease those that fit into the free slots."""
        chosen = [] if free_slots is None else self._chosen(jobs, free_slots)
        ours = {job.id for job in chosen}
        for job in jobs:
            if job.id not in ours:
                self.put_one(job)
        if free_slots is not None and chosen:
            now = self._runtime.now_ms()
            self._leases.setdefault(free_slots.token, _Lease(0)).end_ms = self._lease_end(
                free_slots.lease_seconds
            )
            for job in chosen:
                row = self._rows[job.id] = _Row(job, now, turn=0)
                free_slots.leased.append(self._lease_out(row, free_slots.token))

    def _chosen(self, jobs: Sequence[Job], free_slots: FreeSlots) -> list[Job]:
        now = self._runtime.now_ms()
        if any(job.id in self._rows for job in jobs) or any(
            lease.end_ms <= now for lease in self._leases.values()
        ):
            return []
        queues = {flow: self._queues.setdefault(flow, _Queue()) for flow in free_slots.free}
        for queue in queues.values():
            self._make_ready(queue)
        return chosen_of(
            jobs,
            {
                flow: n
                for flow, n in free_slots.free.items()
                if self._first(queues[flow].ready) is None
            },
            now,
        )

    def judge(self, settlement: Settlement) -> Settled:
        """What `settle_one` would answer now; changes nothing."""
        row = self._rows.get(settlement.job_id)
        if row is None:
            return "absent"
        if isinstance(settlement, Drop):
            # Also under an expired lease: its attempt may have had its effect.
            return "active" if row.takes or row.job.possibly_executed else "done"
        return "done" if row.token == settlement.token else "lost"

    def settle_one(self, settlement: Settlement) -> Settled:
        settled = self.judge(settlement)
        if settled == "done":
            row = self._rows.pop(settlement.job_id)
            self._let_go(row)
            if isinstance(settlement, Release):
                job = replace(row.job, due_ms=settlement.due_ms, possibly_executed=False)
                self._enqueue(_Row(job, max(settlement.due_ms, self._runtime.now_ms())))
            elif isinstance(settlement, Hold):
                job = replace(row.job, possibly_executed=row.job.possibly_executed or row.takes > 1)
                self._rows[job.id] = _Row(job, row.available_ms, hold=settlement.scope)
        return settled

    def _enqueue(self, row: _Row) -> None:
        row.entry = next(self._entries)
        self._rows[row.job.id] = row
        queue = self._queues.setdefault(row.job.flow, _Queue())
        heapq.heappush(queue.waiting, (row.available_ms, row.entry, row.job.id))
        self._queued.set()

    def _lease_end(self, lease_seconds: float) -> int:
        return self._runtime.now_ms() + round(lease_seconds * 1000)

    def _end_expired_leases(self) -> None:
        now = self._runtime.now_ms()
        for token in [token for token, lease in self._leases.items() if lease.end_ms <= now]:
            for job_ids in self._leases.pop(token).jobs.values():
                for job_id in job_ids:
                    row = self._rows[job_id]
                    row.token = None
                    self._enqueue(row)

    def _due_rows(self, flow: str, free: int) -> list[_Row]:
        queue = self._queues.setdefault(flow, _Queue())
        self._make_ready(queue)
        rows: list[_Row] = []
        while len(rows) < free and (first := self._first(queue.ready)):
            heapq.heappop(queue.ready)
            rows.append(first)
        if rows:
            is_drained = len(rows) < free
            queue.present = max(queue.present, max(row.turn or 0 for row in rows) + is_drained)
            # Lines that end before the present turn are dropped; without a job left, all are.
            queue.ends = (
                {}
                if is_drained
                else {line: end for line, end in queue.ends.items() if end > queue.present}
            )
        return rows

    def _make_ready(self, queue: _Queue) -> None:
        """Give turns to due jobs. A job whose lease expired keeps its turn."""
        now, come = self._runtime.now_ms(), []
        while (first := self._first(queue.waiting)) and first.available_ms <= now:
            heapq.heappop(queue.waiting)
            come.append(first)
        fresh = [row for row in come if row.turn is None]
        wanted = Counter(row.line for row in fresh)
        turns = give_turns(wanted, {line[0]: queue.present for line in wanted}, queue.ends)
        queue.ends |= {line: first + wanted[line] for line, first in turns.items()}
        for row in fresh:
            row.turn = turns[row.line]
            turns[row.line] += 1
        for row in come:
            heapq.heappush(
                queue.ready,
                (score_of(row.turn or 0, row.job.priority), row.entry, row.job.id),
            )

    def _first(self, heap: list[tuple[int, int, str]]) -> _Row | None:
        while heap:
            _, entry, job_id = heap[0]
            row = self._rows.get(job_id)
            if row is not None and row.entry == entry:
                return row
            heapq.heappop(heap)
        return None

    def _lease_out(self, row: _Row, token: str) -> LeasedJob:
        row.token, row.takes, row.entry = token, row.takes + 1, 0
        self._leases[token].jobs.setdefault(row.job.flow, {})[row.job.id] = None
        return LeasedJob(row.job, token, row.takes, row.available_ms)

    def _lend(self, row: _Row, token: str, lease_seconds: float) -> LeasedJob:
        row.token, row.takes, row.entry, row.until_ms = (
            token,
            row.takes + 1,
            0,
            self._lease_end(lease_seconds),
        )
        return LeasedJob(row.job, token, row.takes, row.available_ms)

    def _let_go(self, row: _Row) -> None:
        if row.token is not None and row.until_ms is None:
            del self._leases[row.token].jobs[row.job.flow][row.job.id]

    def _next_due(self, token: str, flows: dict[str, int]) -> int | None:
        """When the next waiting job is due or the lease of another worker ends.

        Jobs beyond the free slots do not count: a worker with a free slot asks again.
        """
        moments = [
            row.available_ms for flow in flows if (row := self._first(self._queues[flow].waiting))
        ]
        others = [lease for holder, lease in self._leases.items() if holder != token]
        moments += [lease.end_ms for lease in others if any(lease.jobs.get(flow) for flow in flows)]
        return min(moments, default=None)
