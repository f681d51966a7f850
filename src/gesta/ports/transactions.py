"""Port: what has to be one transaction where ports share a database.

Where the queue is apart, see apart.py.

The projector projects; worker, sweep and people's decisions record.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, AppendVerdict
from gesta.ports.job_queue import Job, Settled, Settlement
from gesta.ports.read_model import Quarantined, View


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Events and what becomes of the job, together.

    Ack and Release follow the append: refused events leave the job as it is, and a lost lease does
    not stop evidence from being
    recorded. Drop comes first: when somebody holds the job, nothing is appended.
    """

    append: Append | None
    settlement: Settlement | None
    #: What a Drop takes away, to be put back where drop and append are not one transaction and the
    #: events are refused.
    dropped: Job | None = None
    #: The request after the events.
    view: View | None = None


class Recording(msgspec.Struct, frozen=True, gc=False):
    """`verdict` is None when nothing was to be appended or a Drop found the job active."""

    verdict: AppendVerdict | None
    settled: Settled | None


class Projection:
    """What appends make of views and jobs, folded beforehand, to be projected in the commit that
    appends them.

    That is done where these checkpoints (name → how far jobs were put) stand right before the
    events. `reached` then is the position of the
    last one; None: somebody's events lie between, or not all of the appends were taken, and the
    projector has to come for them.
    """

    __slots__ = ("checkpoints", "free_slots", "jobs", "reached", "views")

    def __init__(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        checkpoints: Mapping[str, int],
        *,
        free_slots: FreeSlots | None = None,
    ) -> None:
        self.views, self.jobs, self.checkpoints = views, jobs, checkpoints
        self.free_slots = free_slots
        self.reached: int | None = None

    def moves(self, before: int, after: int) -> list[Move]:
        return [
            Move(name, before, after, dispatched) for name, dispatched in self.checkpoints.items()
        ]


class Transactions(Protocol):
    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        """As EventStore.append, and the projection with it where it fits; all in one commit."""

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        """Views, jobs and checkpoints in one commit; False when another projector moved one of the
        checkpoints: nothing was written.
        """

    async def remove(self, ended: Sequence[tuple[str, State]]) -> int:
        """Events and view of each request (stream, state as it was seen), in one commit; its key
        stays claimed.

        How many went.

        Left alone is one that has changed since, and one with an event that some checkpoint has not
        passed.
        """

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        """Each entry whole or not at all, and the projection of their events where it fits; all of
        them in one commit.
        """
