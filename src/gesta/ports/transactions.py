"""Port: transactions across the ports of one database.

The projector projects. Worker, sweeper and operators' decisions record. With the queue in another
database, stores/separate_queue.py does the same in ordered steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import msgspec

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, AppendVerdict
from gesta.ports.job_queue import Job, Settled, Settlement
from gesta.ports.read_model import Quarantined, View

#: No removed request has a secret in the vault.
NO_SECRETS: Mapping[str, str] = MappingProxyType({})


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Events and the settlement of their job, in one transaction.

    Ack and Release follow the append: refused events leave the job as it is, and events are
    recorded although the lease was lost. Drop comes first: if the job is active, nothing is
    appended.
    """

    append: Append | None
    settlement: Settlement | None
    #: The job that a Drop deletes. It is put back if the events are refused and the queue is in
    #: another database.
    dropped: Job | None = None
    #: The request after the events.
    view: View | None = None


class Recording(msgspec.Struct, frozen=True, gc=False):
    """`verdict` is None if the entry has no append or a Drop found the job active."""

    verdict: AppendVerdict | None
    settled: Settled | None


@dataclass(slots=True, eq=False)
class Projection:
    """Views and jobs that follow from appends, to be saved in the commit that appends the events.

    That is done if these checkpoints are right before the events. Then `reached` is the position of
    the last event. None: other events precede them or an append was refused; the projector has to
    project them.
    """

    views: Sequence[View]
    jobs: Sequence[Job]
    #: Name → up to where jobs have been put.
    checkpoints: Mapping[str, int]
    free_slots: FreeSlots | None = field(default=None, kw_only=True)
    reached: int | None = field(default=None, init=False)

    def moves(self, before: int, after: int) -> list[Move]:
        return [
            Move(name, before, after, dispatched) for name, dispatched in self.checkpoints.items()
        ]


class Transactions(Protocol):
    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        """As EventStore.append, with the projection if it fits; in one commit."""

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        """Save views, put jobs and move checkpoints in one commit.

        False: another projector moved one of the checkpoints; nothing was written.
        """

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        """Remove the events and view of each request, in one commit; how many were removed.

        `secrets`: stream → the name in the vault, of the request's tenant, of a secret of which the
        same commit destroys every version.

        Keys stay claimed. A request stays that has changed since its given state, or that has an
        event which some checkpoint has not passed.
        """

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        """Each entry whole or not at all, with the projection if it fits; in one commit."""
