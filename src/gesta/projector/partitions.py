"""Station 4 of 7, divided: each process that projects has some partitions of the log, by lease, and
each partition has a place of its own.

A lease is for thrift. What keeps two owners of one partition apart is that its checkpoint is moved
by compare-and-set, in the commit of views
and jobs: whoever stood still past a lease writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from gesta.errors import StoreError
from gesta.ports.checkpoints import Checkpoints, Move, dispatched_of
from gesta.ports.event_store import EventStore
from gesta.ports.leases import LEASE_SECONDS, NEVER, RENEWAL_SECONDS, Leases, RoleLease
from gesta.runtime.component import Process

#: The role and the checkpoint of whoever projects; `projector/0`, `projector/1` and so on where the
#: store has several partitions.
CHECKPOINT = "projector"


def checkpoints_of(count: int) -> list[str]:
    """The checkpoints of all partitions, by number. Their roles have the same names."""
    return [CHECKPOINT] if count == 1 else [f"{CHECKPOINT}/{number}" for number in range(count)]


def projects(role: RoleLease) -> bool:
    """Whether this is the role of somebody who projects."""
    return role.name == CHECKPOINT or role.name.startswith(f"{CHECKPOINT}/")


class Stand(NamedTuple):
    """Where a partition stands, and how far its jobs have been put: further than its place while
    views are folded again.
    """

    place: int
    dispatched: int
    #: Whether there is a checkpoint.
    is_known: bool = True

    @property
    def quiet_until(self) -> int:
        return max(self.place, self.dispatched)


class Stretch(NamedTuple):
    """What to project next: these partitions from a place on, up to another if that is given,
    without jobs up to `quiet_until`.
    """

    numbers: tuple[int, ...]
    place: int
    until: int | None
    quiet_until: int


async def stands_of(checkpoints: Checkpoints, count: int) -> list[Stand]:
    """Of every partition, by number, read at one moment."""
    found = {one.name: one.position for one in await checkpoints.checkpoints()}
    names = checkpoints_of(count)
    return [
        Stand(found.get(name, 0), found.get(dispatched_of(name), 0), name in found)
        for name in names
    ]


async def begin_places(events: EventStore, checkpoints: Checkpoints, count: int) -> None:
    """Make the checkpoints that are not there; before this process appends anything.

    Where the log has events already they were lost, with the views or by hand, and nobody knows
    what was dispatched: all of it is taken as
    dispatched, so nothing is called again unasked. What has no job then is found by the sweep, as
    suspect.
    """
    # In this order: whoever appends has made them before.
    end = await events.end()
    known = {one.name for one in await checkpoints.checkpoints()}
    for name in checkpoints_of(count):
        if name not in known:
            if end:
                await checkpoints.begin(dispatched_of(name), end)
            await checkpoints.begin(name, 0)


async def place_of(checkpoints: Checkpoints, count: int) -> int:
    """The position up to which the views show the log, whatever the partition."""
    return min(stand.place for stand in await stands_of(checkpoints, count))


class Places:
    """Where the partitions stand that one process projects."""

    def __init__(self, count: int, stands: dict[int, Stand]) -> None:
        self._names, self._stands = checkpoints_of(count), stands

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(self._stands)

    @property
    def lowest(self) -> int:
        return min(stand.place for stand in self._stands.values())

    def next_stretch(self, *, again: bool) -> Stretch | None:
        """Those that stand furthest behind go on up to where others stand: so they meet, and
        nothing is folded twice.

        `again`: only over what was projected before.
        """
        stands = {
            number: one
            for number, one in self._stands.items()
            if not again or one.place < one.dispatched
        }
        if not stands:
            return None
        first = min((one.place, one.quiet_until) for one in stands.values())
        numbers = tuple(
            number for number, one in stands.items() if (one.place, one.quiet_until) == first
        )
        ahead = [one.place for one in stands.values() if one.place > first[0]]
        if again:
            ahead.append(first[1])
        return Stretch(numbers, first[0], min(ahead, default=None), first[1])

    def moves(self, stretch: Stretch, after: int) -> list[Move]:
        """From where the stretch began: an append of ours that was projected at once may have moved
        them since, and is part of it.
        """
        return [
            Move(self._names[number], stretch.place, after, self._stands[number].dispatched)
            for number in stretch.numbers
        ]

    @property
    def level(self) -> dict[str, int] | None:
        """Checkpoint → how far its jobs have been put, where all of them stand at one place with
        nothing to fold again; else None.
        """
        places = {stand.place for stand in self._stands.values()}
        if len(places) != 1 or any(
            stand.dispatched > stand.place for stand in self._stands.values()
        ):
            return None
        return {self._names[number]: stand.dispatched for number, stand in self._stands.items()}

    def reached(self, position: int) -> None:
        """All of them were moved to a position, and perhaps further since."""
        for number, stand in self._stands.items():
            self._stands[number] = Stand(max(stand.place, position), stand.dispatched)

    def moved(self, numbers: Iterable[int], after: int) -> None:
        """Call once the commit stands."""
        for number in numbers:
            self._stands[number] = Stand(after, self._stands[number].dispatched)


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
        #: Whether the store has ever said whose they are: ours, or somebody's whom we can stand in
        #: for.
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
        """Whether we are the one of all who project that does what one is enough for."""
        return 0 in await self.hold()

    def doubt(self) -> None:
        """Somebody else was at work on ours: ask again whose they are."""
        self._renewed_at = NEVER

    async def give_up(self) -> None:
        """Never project again, so that the next process need not wait until the lease ends."""
        if not self._is_given_up:
            self._is_given_up, self.ours = True, frozenset()
            # A store that does not hear of it will see the lease end.
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
