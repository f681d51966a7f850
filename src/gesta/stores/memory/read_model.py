"""Views in dicts, with an index for each query."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from gesta.domain.ids import id_floor
from gesta.domain.state import State
from gesta.ports.checkpoints import Checkpoint, Move, dispatched_of
from gesta.ports.job_queue import Job
from gesta.ports.leases import LiveProcess, RoleLease, fair_part, is_current
from gesta.ports.read_model import (
    Cursor,
    Filter,
    Key,
    Quarantined,
    View,
    ViewPosition,
    key_of,
    should_have_a_job,
)
from gesta.runtime.clock import Runtime
from gesta.stores.memory.fences import MemoryFences
from gesta.stores.memory.sorted_index import SortedIndex


class MemoryReadModel:
    def __init__(self, runtime: Runtime, fences: MemoryFences | None = None) -> None:
        self._runtime, self._fences = runtime, fences or MemoryFences()
        self._quarantined: dict[tuple[str, int, str], Quarantined] = {}
        self._undispatched = UndispatchedJobs()
        self._checkpoints: dict[str, int] = {}
        #: Checkpoint → the error that stops its consumer, and since when.
        self._stuck: dict[str, tuple[str, int]] = {}
        #: Role → owner and end of its lease.
        self._roles: dict[str, tuple[str, int]] = {}
        self._processes: dict[str, tuple[LiveProcess, int]] = {}
        #: How many requests retention has removed.
        self.removals = 0
        self._rows: dict[Key, View] = {}
        self._by_tenant: defaultdict[str, SortedIndex[tuple[str, Key]]] = defaultdict(SortedIndex)
        self._counts: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        #: When the sweeper has to look at a request; and the same in order.
        self._sweep_at: dict[Key, int] = {}
        self._due: SortedIndex[tuple[int, Key]] = SortedIndex()
        #: Requests that want a job in the queue, by id.
        self._wanting: SortedIndex[tuple[str, Key]] = SortedIndex()

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        return {key: self._rows[key] for key in keys if key in self._rows}

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move] = (),
    ) -> bool:
        return self.save_all(views, quarantined, moves)

    async def move(self, moves: Sequence[Move], quarantined: Sequence[Quarantined] = ()) -> bool:
        return self.save_all([], quarantined, moves)

    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        if jobs:
            self._fences.check_jobs()
        if not self.save_all(views, quarantined, moves):
            return False
        self._undispatched.add(jobs)
        return True

    async def undispatched(self, limit: int, without: Sequence[str] = ()) -> list[Job]:
        return self._undispatched.first(limit, without)

    async def find_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        return self._undispatched.which(job_ids)

    async def remove_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        self._fences.check()
        return self._undispatched.remove(job_ids)

    async def position(self, name: str) -> int:
        return self._checkpoints.get(name, 0)

    async def checkpoints(self) -> list[Checkpoint]:
        return [
            Checkpoint(name, position, *self._stuck.get(name, ("", None)))
            for name, position in sorted(self._checkpoints.items())
        ]

    async def begin(self, name: str, position: int) -> int:
        self._fences.check()
        return self._checkpoints.setdefault(name, position)

    async def forget(self, name: str) -> None:
        self._fences.check()
        self._checkpoints.pop(name, None)
        self._stuck.pop(name, None)

    async def note_error(self, name: str, error: str, at_ms: int) -> None:
        self._fences.check()
        if name in self._checkpoints:
            self._stuck[name] = error, self._stuck.get(name, ("", at_ms))[1]

    async def find(self, chosen: Filter) -> list[View]:
        before = None if chosen.before_id is None else (chosen.before_id,)
        rows = (self._rows[key] for _, key in self._by_tenant[chosen.tenant].descending(before))
        return list(
            itertools.islice((row for row in rows if _matches(row.state, chosen)), chosen.limit)
        )

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        counted = self._counts.values() if tenant is None else [self._counts[tenant]]
        # Adding counters drops those that are zero.
        return dict(sum(counted, Counter()))

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        come = itertools.takewhile(lambda entry: entry[0] <= now_ms, self._due.ascending())
        upcoming = next(self._due.ascending(after=(now_ms + 1,)), None)
        views = [self._rows[key] for _, key in itertools.islice(come, limit)]
        return views, None if upcoming is None else upcoming[0]

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        self._fences.check()
        for state, sweep_at_ms in looked_at:
            key = key_of(state)
            row = self._rows.get(key)
            if row is not None and row.state.version == state.version:
                self._schedule(key, sweep_at_ms)

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        page = list(itertools.islice(self._wanting.ascending(after), limit))
        found = [self._rows[key].state for _, key in page if self._is_stale(key, before_ms)]
        return found, page[-1] if len(page) == limit else None

    def _is_stale(self, key: Key, before_ms: int) -> bool:
        state = self._rows[key].state
        return state.updated_at < before_ms and should_have_a_job(
            state, self._sweep_at.get(key), before_ms
        )

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        tenants = sorted(tenant for tenant in self._by_tenant if tenant >= after[0])
        places = sorted(
            (state.tenant, state.flow, state.id)
            for tenant in tenants
            for state in self._made_before(tenant, before_ms, foreign)
        )
        page = [place for place in places if place > after][:limit]
        states = [self._rows[flow, tenant, id_].state for tenant, flow, id_ in page]
        found = [state for state in states if state.is_terminal and state.updated_at < before_ms]
        return found, page[-1] if len(page) == limit else None

    def _made_before(self, tenant: str, at_ms: int, foreign: Collection[str]) -> Iterable[State]:
        ids = self._by_tenant[tenant]
        yield from (self._rows[key].state for _, key in ids.descending((id_floor(at_ms),)))
        if foreign:
            newer = (self._rows[key].state for _, key in ids.ascending(after=(id_floor(at_ms),)))
            yield from (state for state in newer if state.flow in foreign)

    def passed_by_all(self) -> int:
        """The lowest position of all consumers of the log; `dispatched` is none."""
        following = (
            position
            for name, position in self._checkpoints.items()
            if not name.startswith("dispatched")
        )
        return min(following, default=0)

    def remove(self, state: State, stream: str) -> None:
        """Remove the view of a request whose events were removed."""
        key = key_of(state)
        row = self._rows.pop(key)
        self._by_tenant[state.tenant].remove((state.id, key))
        self._counts[state.tenant][state.flow, row.state.status] -= 1
        self._schedule(key, None)
        if row.state.wants is not None:
            self._wanting.remove((state.id, key))
        self._quarantined = {
            where: one for where, one in self._quarantined.items() if one.stream != stream
        }
        self.removals += 1

    async def undecided(self) -> tuple[int, int | None]:
        waiting = [
            row.state.updated_at for row in self._rows.values() if row.state.waits_for_a_person
        ]
        return len(waiting), min(waiting, default=None)

    async def unsettled(self, failed_since_ms: int) -> dict[tuple[str, str], int]:
        return Counter(
            (state.flow, state.status)
            for state in (row.state for row in self._rows.values())
            if state.status == "unknown"
            or (
                state.status == "failed"
                and not state.purged
                and state.updated_at >= failed_since_ms
            )
        )

    async def unknown(self, flow: str, limit: int) -> list[State]:
        states = (row.state for row in self._rows.values())
        found = [one for one in states if (one.flow, one.status) == (flow, "unknown")]
        return sorted(found, key=lambda one: one.updated_at)[:limit]

    async def quarantined(self, tenant: str | None, limit: int) -> list[Quarantined]:
        rows = (row for row in self._quarantined.values() if tenant in (None, row.tenant))
        return heapq.nlargest(limit, rows, key=lambda row: row.at_ms)

    async def claim(self, name: str, owner: str, lease_seconds: float) -> bool:
        self._fences.check()
        now = self._runtime.now_ms()
        holder, end_ms = self._roles.get(name, (owner, 0))
        if holder != owner and end_ms > now:
            return False
        self._roles[name] = owner, now + round(lease_seconds * 1000)
        return True

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        self._fences.check()
        now = self._runtime.now_ms()
        parts = [
            RoleLease(name, *self._roles.get(name, ("", 0)))
            for name in (f"{role}/{n}" for n in range(count))
        ]
        alone = RoleLease(role, *self._roles.get(role, (owner, 0)))
        if lease_seconds == 0 or (alone.owner != owner and alone.is_held(now)):
            self._roles |= {part.name: (owner, now) for part in parts if part.owner == owner}
            return set()
        ours = fair_part(parts, owner, now)
        self._roles |= dict.fromkeys(ours, (owner, now + round(lease_seconds * 1000)))
        return {n for n, part in enumerate(parts) if part.name in ours}

    async def roles(self) -> list[RoleLease]:
        return [
            RoleLease(name, owner, until_ms)
            for name, (owner, until_ms) in sorted(self._roles.items())
        ]

    async def report(self, process: LiveProcess, lease_seconds: float) -> None:
        now = self._runtime.now_ms()
        self._processes[process.id] = process, now + round(lease_seconds * 1000)

    async def processes(self) -> list[LiveProcess]:
        now = self._runtime.now_ms()
        live = [
            process for process, until_ms in self._processes.values() if is_current(until_ms, now)
        ]
        return sorted(live, key=lambda process: (process.since_ms, process.id))

    async def shadow(self) -> MemoryShadow:
        shadow = type(self)(self._runtime, self._fences)
        shadow.removals = self.removals
        return MemoryShadow(self, shadow)

    def take_over(
        self,
        shadow: MemoryReadModel,
        names: Sequence[str],
        position: int,
        quarantined: Sequence[Quarantined],
    ) -> bool:
        self._fences.check()
        stood = {name: self._checkpoints.get(name, 0) for name in names}
        if min(stood.values()) < position or self.removals != shadow.removals:
            return False
        self._rows, self._by_tenant, self._counts = shadow._rows, shadow._by_tenant, shadow._counts
        self._sweep_at, self._due, self._wanting = shadow._sweep_at, shadow._due, shadow._wanting
        for name in names:
            self._checkpoints[name] = position
            # Up to here all jobs have been put: folding these events again must not put them.
            mark = dispatched_of(name)
            self._checkpoints[mark] = max(stood[name], self._checkpoints.get(mark, 0))
        self._quarantined = {
            where: row for where, row in self._quarantined.items() if row.what != "event"
        }
        return self.save_all([], quarantined, ())

    def save_all(
        self, views: Sequence[View], quarantined: Sequence[Quarantined], moves: Sequence[Move]
    ) -> bool:
        self._fences.check()
        if not all(map(self._fits, moves)):
            return False
        for move in moves:
            self._checkpoints[move.name] = move.after
            self._stuck.pop(move.name, None)
        for view in views:
            self._replace(view)
        for row in quarantined:
            # A projector that reads the same events again quarantines the same ones.
            self._quarantined.setdefault((row.stream, row.version, row.what), row)
        return True

    def _fits(self, move: Move) -> bool:
        """Whether no other process has moved the checkpoint or swapped the views."""
        stands, dispatched = (
            self._checkpoints.get(move.name, 0),
            self._checkpoints.get(dispatched_of(move.name), 0),
        )
        return stands == move.before and move.dispatched in (None, dispatched)

    def _replace(self, view: View) -> None:
        state, key = view.state, key_of(view.state)
        old = self._rows.get(key)
        if old is not None and old.state.version >= state.version:
            return
        if old is None:
            self._by_tenant[state.tenant].add((state.id, key))
        else:
            self._counts[state.tenant][state.flow, old.state.status] -= 1
            if old.state.wants is not None:
                self._wanting.remove((state.id, key))
        self._rows[key] = view
        self._counts[state.tenant][state.flow, state.status] += 1
        if state.wants is not None:
            self._wanting.add((state.id, key))
        self._schedule(key, state.sweep_at)

    def _schedule(self, key: Key, sweep_at_ms: int | None) -> None:
        before = self._sweep_at.pop(key, None)
        if before is not None:
            self._due.remove((before, key))
        if sweep_at_ms is not None:
            self._sweep_at[key] = sweep_at_ms
            self._due.add((sweep_at_ms, key))


class MemoryShadow:
    """A second set of dicts, until it is swapped for the first."""

    def __init__(self, views: MemoryReadModel, shadow: MemoryReadModel) -> None:
        self._views, self._shadow = views, shadow

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        return await self._shadow.get(keys)

    async def save(self, views: Sequence[View]) -> None:
        await self._shadow.save(views, [])

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        return self._views.take_over(self._shadow, names, position, quarantined)


def _matches(state: State, chosen: Filter) -> bool:
    return chosen.flow in (None, state.flow) and chosen.status in (None, state.status)


class UndispatchedJobs:
    """Undispatched jobs with turns (stores/rows.py): tenants alternate."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[int, Job]] = {}
        self._in_turn: SortedIndex[tuple[int, str, str]] = SortedIndex()
        #: How many jobs each tenant has, and the turn of its last one.
        self._counts: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def add(self, jobs: Sequence[Job]) -> None:
        first = next((turn for turn, _, _ in self._in_turn.ascending()), 1)
        for job in jobs:
            if job.id in self._jobs:
                continue
            turn = self._last[job.tenant] = max(self._last.get(job.tenant, 0) + 1, first)
            self._counts[job.tenant] += 1
            self._jobs[job.id] = turn, job
            self._in_turn.add((turn, job.tenant, job.id))

    def first(self, limit: int, without: Sequence[str] = ()) -> list[Job]:
        jobs = (self._jobs[job_id][1] for _, _, job_id in self._in_turn.ascending())
        return list(islice((job for job in jobs if job.flow not in without), limit))

    def which(self, job_ids: Sequence[str]) -> set[str]:
        return {job_id for job_id in job_ids if job_id in self._jobs}

    def remove(self, job_ids: Sequence[str]) -> set[str]:
        removed = self.which(job_ids)
        for job_id in removed:
            turn, job = self._jobs.pop(job_id)
            self._in_turn.remove((turn, job.tenant, job_id))
            self._counts[job.tenant] -= 1
            if not self._counts[job.tenant]:
                del self._counts[job.tenant], self._last[job.tenant]
        return removed
