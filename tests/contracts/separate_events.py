"""Events in the KurrentDB double, or in a database of their own, beside a durable store: held to
the contracts of a whole store.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gesta.ports.stores import EventPorts, Stores
from gesta.projector.job_relay import Relay
from gesta.projector.partitions import Partitions
from gesta.runtime.clock import Ids
from gesta.runtime.component import Process
from gesta.runtime.telemetry import Telemetry
from gesta.stores.separate_events import events_of, with_separate_events
from gesta.stores.sqlite import open_stores
from gesta.testing.contracts.harness import Harness
from gesta.testing.harnesses.kurrentdb import Harness as KurrentDBHarness
from tests.contracts.separate_queue import Relaying


class _SqliteBesideDouble(Harness):
    """Removed events stay in the log of KurrentDB until it is scavenged."""

    capabilities = frozenset(
        {
            "events",
            "key_claims",
            "read_model",
            "sweep_index",
            "checkpoints",
            "leases",
            "queue",
            "undispatched_jobs",
            "vault",
            "transactions",
            "fences",
            "durable",
        }
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._double = KurrentDBHarness(folder)
        self._double.runtime = self.runtime

    async def _events(self) -> EventPorts:
        return await self._double.open_ports()

    async def open_ports(self) -> Stores:
        own = await open_stores(f"sqlite:///{self.folder / 'gesta.db'}", self.runtime)
        stores = with_separate_events(own, await self._events(), self.runtime)
        process = Process(self.runtime, Ids(self.runtime), Telemetry(), "test")
        relay = Relay(stores, Partitions(1, stores.leases, process), process)
        return replace(stores, transactions=Relaying(stores.transactions, relay))


class _TwoFiles(_SqliteBesideDouble):
    capabilities = _SqliteBesideDouble.capabilities | {"large_events", "log_removal"}

    async def _events(self) -> EventPorts:
        url = f"sqlite:///{self.folder / 'events.db'}"
        return events_of(await open_stores(url, self.runtime))


def separate_events_harness_types() -> dict[str, type[Harness]]:
    return {"double-sqlite": _SqliteBesideDouble, "sqlite-sqlite": _TwoFiles}
