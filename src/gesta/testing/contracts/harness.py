"""What the contract suites ask of a store: to be opened on a clock they can move, closed, and
opened again.

Each adapter folder has a `harness.py` with a class `Harness` that meets `Harness` below and one
protocol more for each port it serves.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Protocol

from gesta.ports.event_store import EventStore
from gesta.ports.fences import Fences
from gesta.ports.job_queue import JobQueue
from gesta.ports.read_model import ReadModel
from gesta.ports.token_buckets import TokenBuckets
from gesta.ports.transactions import Transactions
from gesta.ports.vault import Vault
from gesta.runtime.clock import ManualRuntime

#: The ports, by the attribute of the harness that holds each. `inline`: commits project what they
#: append. `durable`: what was acknowledged is there again after close and open.
Capability = Literal[
    "events",
    "queue",
    "read_model",
    "vault",
    "transactions",
    "fences",
    "token_buckets",
    "inline",
    "eager_dispatch",
    "durable",
]


class Harness(Protocol):
    """One store for one test. Nothing may be assumed empty but what the test itself named."""

    capabilities: ClassVar[frozenset[Capability]]
    #: The store asks this clock and no other.
    runtime: ManualRuntime

    def __init__(self, folder: Path) -> None:
        """`folder` is empty and belongs to this test: the place for a store that lives in files."""
        ...

    async def open(self) -> None:
        """Set the attributes of the ports. After a close: the same store again, on the same
        clock.
        """
        ...

    async def close(self) -> None:
        """Leave nothing running.

        No farewell is promised: what was acknowledged must be safe already.
        """
        ...


class EventsHarness(Harness, Protocol):
    """Of a store that keeps events."""

    events: EventStore


class QueueHarness(Harness, Protocol):
    """Of a store that queues jobs."""

    queue: JobQueue


class ReadModelHarness(Harness, Protocol):
    """Of a store that keeps views."""

    read_model: ReadModel


class VaultHarness(Harness, Protocol):
    """Of a store that keeps sealed secrets."""

    vault: Vault


class TransactionsHarness(EventsHarness, QueueHarness, ReadModelHarness, Protocol):
    """Of a store whose ports share one database."""

    transactions: Transactions


class FencesHarness(TransactionsHarness, VaultHarness, Protocol):
    """Of a store that can be fenced."""

    fences: Fences


class TokenBucketsHarness(Harness, Protocol):
    """Of a store that keeps token buckets."""

    token_buckets: TokenBuckets


async def reopen(harness: Harness) -> None:
    """Close and open again, as a restart does."""
    await harness.close()
    await harness.open()
