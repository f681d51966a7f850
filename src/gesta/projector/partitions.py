"""Partitions of the log: each process that projects leases some of them, and each partition has a
checkpoint of its own.

The lease saves work. What keeps two owners of one partition apart is that its checkpoint is moved
by compare-and-set, in the commit of views and jobs: a process whose lease has ended writes nothing.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from gesta.errors import StoreError
from gesta.ports.checkpoints import Checkpoints, Move, dispatched_of
from gesta.ports.event_store import EventStore
from gesta.ports.leases import LEASE_SECONDS, NEVER, RENEWAL_SECONDS, Leases, RoleLease
from gesta.runtime.component import Process

#: The role and the checkpoint of the projector; `projector/0`, `projector/1` and so on where the
#: store has several partitions.
CHECKPOINT = "projector"


def checkpoints_of(count: int) -> list[str]:
    """The checkpoints of all partitions, by number. Their roles have the same names."""
    return [CHECKPOINT] if count == 1 else [f"{CHECKPOINT}/{number}" for number in range(count)]


def projects(role: RoleLease) -> bool:
    """Whether this is the role of a process that projects."""
    return role.name == CHECKPOINT or role.name.startswith(f"{CHECKPOINT}/")


class PartitionPosition(NamedTuple):
    """The position of a partition, and how far its jobs have been put: further than its position
    during a rebuild.
    """

    position: int
    dispatched: int
    #: Whether there is a checkpoint.
    is_known: bool = True

    @property
    def quiet_until(self) -> int:
        return max(self.position, self.dispatched)


class Span(NamedTuple):
    """What to project next: these partitions from `position` up to `until`, without putting jobs up
    to `quiet_until`.
    """

    numbers: tuple[int, ...]
    position: int
    until: int | None
    quiet_until: int


async def positions_of(checkpoints: Checkpoints, count: int) -> list[PartitionPosition]:
    """The positions of all partitions by number, read in one call."""
    found = {one.name: one.position for one in await checkpoints.checkpoints()}
    names = checkpoints_of(count)
    return [
        PartitionPosition(found.get(name, 0), found.get(dispatched_of(name), 0), name in found)
        for name in names
    ]


async def begin_checkpoints(events: EventStore, checkpoints: Checkpoints, count: int) -> None:
    """Create missing checkpoints, before this process appends anything.

    If the log has events already, the checkpoints were lost, and it is unknown what was dispatched.
    Everything counts as dispatched, so that nothing is called twice. The sweeper finds requests
    without a job and treats them as possibly executed.
    """
    # The end is read first: every process creates the checkpoints before it appends.
    end = await events.end()
    known = {one.name for one in await checkpoints.checkpoints()}
    for name in checkpoints_of(count):
        if name not in known:
            if end:
                await checkpoints.begin(dispatched_of(name), end)
            await checkpoints.begin(name, 0)


async def projected_position(checkpoints: Checkpoints, count: int) -> int:
    """The position up to which the views of all partitions show the log."""
    return min(one.position for one in await positions_of(checkpoints, count))


class PartitionPositions:
    """The positions of the partitions that one process projects."""

    def __init__(self, count: int, positions: dict[int, PartitionPosition]) -> None:
        self._names, self._positions = checkpoints_of(count), positions

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(self._positions)

    @property
    def lowest(self) -> int:
        return min(one.position for one in self._positions.values())

    def next_span(self, *, again: bool) -> Span | None:
        """The partitions that are furthest behind, up to the position of the next ones, so that
        they meet and no event is folded twice.

        `again`: only over events that were projected before.
        """
        positions = {
            number: one
            for number, one in self._positions.items()
            if not again or one.position < one.dispatched
        }
        if not positions:
            return None
        first = min((one.position, one.quiet_until) for one in positions.values())
        numbers = tuple(
            number for number, one in positions.items() if (one.position, one.quiet_until) == first
        )
        ahead = [one.position for one in positions.values() if one.position > first[0]]
        if again:
            ahead.append(first[1])
        return Span(numbers, first[0], min(ahead, default=None), first[1])

    def moves(self, span: Span, after: int) -> list[Move]:
        """Moves from the start of the span: an inline projection may have moved them since, and is
        part of the span.
        """
        return [
            Move(self._names[number], span.position, after, self._positions[number].dispatched)
            for number in span.numbers
        ]

    @property
    def level(self) -> dict[str, int] | None:
        """Checkpoint → how far its jobs have been put; None unless all have the same position and
        none is being rebuilt.
        """
        positions = {one.position for one in self._positions.values()}
        if len(positions) != 1 or any(
            one.dispatched > one.position for one in self._positions.values()
        ):
            return None
        return {self._names[number]: one.dispatched for number, one in self._positions.items()}

    def reached(self, position: int) -> None:
        """All of them were moved to a position, perhaps further since."""
        for number, one in self._positions.items():
            self._positions[number] = PartitionPosition(max(one.position, position), one.dispatched)

    def moved(self, numbers: Iterable[int], after: int) -> None:
        """Call once the commit is done."""
        for number in numbers:
            self._positions[number] = PartitionPosition(after, self._positions[number].dispatched)


class Partitions:
    """The partitions that this process projects: all if it is alone, else a fair part."""

    def __init__(self, count: int, leases: Leases, process: Process) -> None:
        self.count = count
        self._owner, self._leases, self._runtime = process.owner, leases, process.runtime
        self._renewed_at = self._held_at = NEVER
        self._is_given_up = False
        #: The partitions of this process after the last claim.
        self.ours: frozenset[int] = frozenset()
        #: How often a lease had expired before its renewal: another process may have had them.
        self.lease_expiry = 0
        #: Whether the store has ever answered a claim, so that this process can take over.
        self.is_known = False

    @property
    def are_all_ours(self) -> bool:
        return len(self.ours) == self.count

    async def hold(self) -> frozenset[int]:
        """Claim or renew partitions, at most once a second; returns those of this process."""
        now = self._runtime.monotonic()
        if not self._is_given_up and now - self._renewed_at >= RENEWAL_SECONDS:
            ours = await self._claim(LEASE_SECONDS)
            self.is_known = True
            self.lease_expiry += self._runtime.monotonic() - self._held_at >= LEASE_SECONDS
            self._held_at = now
            # They may have been given up during the claim.
            self.ours = frozenset() if self._is_given_up else ours
            self._renewed_at = now if self.ours else NEVER
        return self.ours

    async def is_ours(self) -> bool:
        """Whether this process projects any partition."""
        return bool(await self.hold())

    async def is_first_ours(self) -> bool:
        """Whether this process does the work that only one projecting process should do."""
        return 0 in await self.hold()

    async def give_up(self) -> None:
        """Never project again, and let another process take over without waiting for the lease."""
        if not self._is_given_up:
            self._is_given_up, self.ours = True, frozenset()
            # During an outage the lease ends by itself.
            with suppress(StoreError):
                await self._claim(0.0)

    async def _claim(self, lease_seconds: float) -> frozenset[int]:
        if self.count > 1:
            return frozenset(
                await self._leases.share(CHECKPOINT, self.count, self._owner, lease_seconds)
            )
        is_ours = await self._leases.claim(CHECKPOINT, self._owner, lease_seconds)
        return frozenset({0}) if is_ours else frozenset()
