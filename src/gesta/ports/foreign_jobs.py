"""Port: jobs that another program put into a queue of gesta.

`JobQueue.take` leaves them alone. Here they are leased as that program's own workers do it: a job
whose holder dies comes back, and its producer gets the result in its own way. What such a job
means, and how it becomes a request, is decided in intake/adoption.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

ForeignSettled = Literal["done", "lost", "absent"]


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    flow: str
    id: str
    name: str
    #: JSON as the producer wrote it; None: it is too large to be fetched.
    data: str | None
    size: int
    opts: dict[str, Any]
    timestamp_ms: int
    #: How often a worker has started it, this one included.
    starts: int
    token: str
    #: Its request exists: it was put back with `is_adopted`.
    is_adopted: bool = False
    #: The other program wants the job failed with this reason, because it has stalled too often.
    deferred_failure: str | None = None


class Completed(msgspec.Struct, frozen=True):
    """`value` is the result for the producer."""

    job: ForeignJob
    value: Any


class Failed(msgspec.Struct, frozen=True):
    """Permanently: attempts that the job has left are not used."""

    job: ForeignJob
    reason: str


class PutBack(msgspec.Struct, frozen=True):
    """Without a delay, the next worker gets it first."""

    job: ForeignJob
    delay_ms: int = 0
    is_adopted: bool = False


ForeignSettlement = Completed | Failed | PutBack


class JobTexts(msgspec.Struct, frozen=True):
    """What a queue stores about one job, by any program, for the search for secrets."""

    flow: str
    id: str
    #: waiting, active, delayed, completed or failed.
    state: str
    #: Whether gesta put it.
    is_own: bool
    #: `data`, `opts`, `returnvalue`, `failedReason`, `logs` and so on → text, cut if it is long.
    texts: Mapping[str, str]


class ForeignJobs(Protocol):
    async def take(
        self, token: str, flows: Mapping[str, int], lease_seconds: float
    ) -> list[ForeignJob]:
        """Lease up to `flows[flow]` jobs of each flow. JobQueue.extend renews these leases, too.

        Raises QueueRefused where one of the queues cannot be used; then no job is leased.
        """

    async def settle(self, settlements: Sequence[ForeignSettlement]) -> list[ForeignSettled]:
        """lost: the lease ended and another worker may have the job."""

    async def replace_data(self, replacements: Sequence[tuple[ForeignJob, str]]) -> None:
        """Overwrite the data of leased jobs. A job that this token no longer holds stays."""

    async def sample(self, flows: Sequence[str], limit: int) -> list[JobTexts]:
        """Up to `limit` jobs in each state of each flow's queue, gesta's own among them."""

    async def ready(self, timeout_seconds: float) -> None:
        """Return when a job may be ready, or after the timeout."""
