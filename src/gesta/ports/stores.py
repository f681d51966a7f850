"""The ports of one engine, as a store hands them over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from gesta.ports.event_store import EventStore
from gesta.ports.fences import Fences
from gesta.ports.job_queue import JobQueue
from gesta.ports.outbox import Outbox
from gesta.ports.read_model import ReadModel
from gesta.ports.token_buckets import TokenBuckets
from gesta.ports.transactions import Transactions
from gesta.ports.vault import Vault
from gesta.runtime.clock import Signal


class Closing(Protocol):
    async def __call__(self) -> None: ...


async def unlimited() -> None:
    """The store has no disk of its own."""


@dataclass(frozen=True)
class Health:
    """What a store knows of its own condition. Sizes in bytes."""

    schema: int
    faults: tuple[str, ...]
    #: Whether all of it was looked at; a large file is looked at for a few seconds only.
    is_whole: bool
    size: int
    log_size: int
    #: None where the disk is the server's.
    free: int | None
    #: Files that more than their owner may read.
    open_to_others: tuple[str, ...]


class Examining(Protocol):
    async def __call__(self) -> Health | None: ...


async def nothing_to_examine() -> None:
    """The health of a store that has no file."""


@dataclass(frozen=True)
class Stores:
    """The ports of one engine, wired to one database or, the queue, to another."""

    events: EventStore
    read_model: ReadModel
    queue: JobQueue
    vault: Vault
    transactions: Transactions
    fences: Fences
    token_buckets: TokenBuckets
    close: Closing
    #: The time as the store has it. Leases, due times and expiry go by this one, never by a
    #: process's own clock.
    now_ms: Callable[[], int]
    #: Into how many parts the log is divided for those who project: one where one process is enough
    #: for all of it.
    partitions: int = 1
    #: How many callers' writes go into one commit at most. Where the store works in a process of
    #: its own, fewer: it writes one part while those
    #: of the last go on.
    commit_size: int = 2_000
    #: Whether its commits project what they append.
    projects_inline: bool = False
    #: Where a key file may lie beside the store; None where there is no such place.
    folder: str | None = None
    name: str = ""
    #: Set when jobs were written down that a relay has to put into the queue; None where the ports
    #: share one database.
    undispatched: Signal | None = None
    #: Where requests wait that are part of a caller's own transaction; None where the store cannot
    #: share one.
    outbox: Outbox | None = None
    health: Examining = nothing_to_examine
    #: Bytes left where the store grows; None where nobody can say.
    disk_free: Callable[[], Awaitable[int | None]] = unlimited
