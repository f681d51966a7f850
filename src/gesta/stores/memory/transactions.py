"""Transactions across the ports of one database in memory, without an await in between."""

from collections.abc import Mapping, Sequence

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, Appended, AppendVerdict
from gesta.ports.job_queue import Drop, Job
from gesta.ports.read_model import Quarantined, View
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.stores.memory.vault import MemoryVault


class MemoryTransactions:
    def __init__(
        self,
        *,
        events: MemoryEventStore,
        queue: MemoryJobQueue,
        views: MemoryReadModel,
        vault: MemoryVault,
    ) -> None:
        self._events = events
        self._queue = queue
        self._views = views
        self._vault = vault
        self._fences = events.fences

    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        self._fences.check_appends(appends)
        if projection.jobs:
            self._fences.check_jobs()
        before = self._events.length
        verdicts = [self._events.append_one(append) for append in appends]
        self._project(appends, projection, before)
        return verdicts

    def _project(self, appends: Sequence[Append], projection: Projection, before: int) -> None:
        """Project if every event of these appends was written by this step."""
        after = self._events.length
        is_whole = after - before == sum(len(append.events) for append in appends)
        if is_whole and self._views.save_all(projection.views, [], projection.moves(before, after)):
            self._queue.put_eager(projection.jobs, projection.free_slots)
            projection.reached = after

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        if jobs:
            self._fences.check_jobs()
        if not self._views.save_all(views, quarantined, moves):
            return False
        self._queue.put_eager(jobs, free_slots)
        return True

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        self._fences.check()
        passed = self._views.passed_by_all()
        gone = [
            (stream, state)
            for stream, state in ended
            if self._events.remove(stream, state.version, passed)
        ]
        for stream, state in gone:
            self._views.remove(state, stream)
            if stream in secrets:
                self._vault.destroy(state.tenant, secrets[stream])
        return len(gone)

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        appends = [entry.append for entry in entries if entry.append is not None]
        self._fences.check_appends(appends)
        if projection is not None and projection.jobs:
            self._fences.check_jobs()
        before, recordings = self._events.length, [self._record_one(entry) for entry in entries]
        if projection is not None:
            self._project(appends, projection, before)
        return recordings

    def _record_one(self, entry: Entry) -> Recording:
        append, settlement = entry.append, entry.settlement
        if append is None:
            return Recording(
                None, None if settlement is None else self._queue.settle_one(settlement)
            )
        if isinstance(settlement, Drop) and self._queue.judge(settlement) == "active":
            return Recording(None, "active")
        verdict = self._events.append_one(append)
        if settlement is None or not isinstance(verdict, Appended):
            return Recording(verdict, None)
        return Recording(verdict, self._queue.settle_one(settlement))
