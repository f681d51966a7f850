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
    while views are folded again.
    """

    position: int
    dispatched: int
    #: Whether there is a checkpoint.
    is_known: bool = True

    @property
    def quiet_until(self) -> int:
        return max(self.position, self.dispatched)


class Span(NamedTuple):
    """What to project next: these partitions from a position on, up to another if that is given,
    without jobs up to `quiet_until`.
    """

    numbers: tuple[int, ...]
    position: int
    until: int | None
    quiet_until: int


async def positions_of(checkpoints: Checkpoints, count: int) -> list[PartitionPosition]:
    """Of every partition, by number, read at one moment."""
    found = {one.name: one.position for one in await checkpoints.checkpoints()}
    names = checkpoints_of(count)
    return [
        PartitionPosition(found.get(name, 0), found.get(dispatched_of(name), 0), name in found)
        for name in names
    ]


async def begin_checkpoints(events: EventStore, checkpoints: Checkpoints, count: int) -> None:
    """Make the checkpoints that are not there; before this process appends anything.

    Where the log has events already, the checkpoints were lost, and it is not known what was
    dispatched. All of it counts as dispatched, so nothing is called again unasked. The sweeper
    finds requests without a job, as possibly executed.
    """
    # In this order: every process that appends has made them before.
    end = await events.end()
    known = {one.name for one in await checkpoints.checkpoints()}
    for name in checkpoints_of(count):
        if name not in known:
            if end:
                await checkpoints.begin(dispatched_of(name), end)
            await checkpoints.begin(name, 0)


async def projected_position(checkpoints: Checkpoints, count: int) -> int:
    """The position up to which the views show the log, whatever the partition."""
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
        """Those that are furthest behind go on up to the position of others: so they meet, and
        nothing is folded twice.

        `again`: only over what was projected before.
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
        """From where the span began: an inline projection of ours may have moved them since, and is
        part of it.
        """
        return [
            Move(self._names[number], span.position, after, self._positions[number].dispatched)
            for number in span.numbers
        ]

    @property
    def level(self) -> dict[str, int] | None:
        """Checkpoint → how far its jobs have been put, where all of them have one position and
        nothing is folded again; else None.
        """
        positions = {one.position for one in self._positions.values()}
        if len(positions) != 1 or any(
            one.dispatched > one.position for one in self._positions.values()
        ):
            return None
        return {self._names[number]: one.dispatched for number, one in self._positions.items()}

    def reached(self, position: int) -> None:
        """All of them were moved to a position, and perhaps further since."""
        for number, one in self._positions.items():
            self._positions[number] = PartitionPosition(max(one.position, position), one.dispatched)

    def moved(self, numbers: Iterable[int], after: int) -> None:
        """Call once the commit is done."""
        for number in numbers:
            self._positions[number] = PartitionPosition(after, self._positions[number].dispatched)


class Partitions:
    """Which partitions this process projects: all of them where it is alone, else a fair part."""

    def __init__(self, count: int, leases: Leases, process: Process) -> None:
        self.count = count
        self._owner, self._leases, self._runtime = process.owner, leases, process.runtime
        self._renewed_at = self._held_at = NEVER
        self._is_given_up = False
        #: Those that were ours when they were last taken or renewed.
        self.ours: frozenset[int] = frozenset()
        #: How often others may have had them since: a lease of ours had run out before it was
        #: renewed.
        self.lease_expiry = 0
        #: Whether the store has ever said which process has them: we can take over from another.
        self.is_known = False

    @property
    def are_all_ours(self) -> bool:
        return len(self.ours) == self.count

    async def hold(self) -> frozenset[int]:
        """Take or renew our part, at most once a second: which partitions that is."""
        now = self._runtime.monotonic()
        if not self._is_given_up and now - self._renewed_at >= RENEWAL_SECONDS:
            ours = await self._claim(LEASE_SECONDS)
            self.is_known = True
            self.lease_expiry += self._runtime.monotonic() - self._held_at >= LEASE_SECONDS
            self._held_at = now
            # Given up while the answer was on its way, they must not look as if they were ours.
            self.ours = frozenset() if self._is_given_up else ours
            self._renewed_at = now if self.ours else NEVER
        return self.ours

    async def is_ours(self) -> bool:
        """Whether we project at all."""
        return bool(await self.hold())

    async def is_first_ours(self) -> bool:
        """Whether this process does what one projecting process is enough for."""
        return 0 in await self.hold()

    def doubt(self) -> None:
        """Another process worked on ours: ask again which ones are ours."""
        self._renewed_at = NEVER

    async def give_up(self) -> None:
        """Never project again, so that the next process need not wait until the lease ends."""
        if not self._is_given_up:
            self._is_given_up, self.ours = True, frozenset()
            # A store that is out of reach will see the lease end.
            with suppress(StoreError):
                await self._claim(0.0)

    async def _claim(self, lease_seconds: float) -> frozenset[int]:
        """All partitions in one call."""
        if self.count > 1:
            return frozenset(
                await self._leases.share(CHECKPOINT, self.count, self._owner, lease_seconds)
            )
        is_ours = await self._leases.claim(CHECKPOINT, self._owner, lease_seconds)
        return frozenset({0}) if is_ours else frozenset()
