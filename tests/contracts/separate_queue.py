"""Commits over ports that share no database, held to the same contract: with the relay at work,
no caller can see the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, AppendVerdict
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Quarantined, View
from gesta.ports.stores import Stores
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording, Transactions
from gesta.projector.job_relay import Relay
from gesta.projector.partitions import Partitions
from gesta.runtime.clock import Ids
from gesta.runtime.component import Process
from gesta.runtime.telemetry import Telemetry
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.separate_queue import with_separate_queue
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts.harness import Harness


class Relaying:
    """Commits after each of which the relay has had its turn."""

    def __init__(self, commits: Transactions, relay: Relay) -> None:
        self._commits, self._relay = commits, relay

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        moved = await self._commits.project(views, jobs, quarantined, moves, free_slots)
        while await self._relay.step():
            pass
        return moved

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        return await self._commits.remove(ended, secrets)

    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        return await self._commits.append(appends, projection)

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        recordings = await self._commits.record(entries, projection)
        while await self._relay.step():
            pass
        return recordings


class _Apart(Harness):
    """Only the transactions are tested here: the ports by themselves are tested elsewhere."""

    capabilities = frozenset(
        {"events", "read_model", "checkpoints", "queue", "unique_jobs", "transactions", "durable"}
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._databases = MemoryDatabase(self.runtime), MemoryDatabase(self.runtime)

    async def _stores(self) -> tuple[Stores, Stores]:
        one, other = self._databases
        return one.stores(), other.stores()

    async def open_ports(self) -> Stores:
        stores = with_separate_queue(*await self._stores(), self.runtime)
        assert stores.undispatched is not None
        process = Process(self.runtime, Ids(self.runtime), Telemetry(), "test")
        relay = Relay(stores, Partitions(1, stores.leases, process), process)
        return replace(stores, transactions=Relaying(stores.transactions, relay))


class _SqliteApart(_Apart):
    async def _stores(self) -> tuple[Stores, Stores]:
        one, other = [
            await open_stores(f"sqlite:///{self.folder / name}", self.runtime)
            for name in ("gesta.db", "queue.db")
        ]
        return one, other


def apart_harness_types() -> dict[str, type[Harness]]:
    return {"memory-apart": _Apart, "sqlite-apart": _SqliteApart}
