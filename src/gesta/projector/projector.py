"""The projector: follow the log from the checkpoint, fold, write views, jobs and checkpoint in one
commit.

Each of several processes does this for some partitions of the log (partitions.py). What a process
appends itself is projected inline where that is possible (inline.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from gesta.errors import Fenced, StoreError, StoreFull
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import EagerDispatch, FreeSlots
from gesta.ports.event_store import Recorded, Share
from gesta.ports.job_queue import Job
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.read_model import Quarantined, View
from gesta.ports.stores import Stores
from gesta.ports.transactions import Projection
from gesta.projector.batch_fold import Folding
from gesta.projector.partitions import (
    PartitionPositions,
    Partitions,
    Span,
    begin_checkpoints,
    positions_of,
    projected_position,
)
from gesta.runtime.clock import Signal, sleep
from gesta.runtime.component import Process, repeat

#: Larger batches cost less per event: each commit writes the edges of the same trees anew.
BATCH = 2_000
#: A batch of this size says that there is more than a moment's work to be projected.
BEHIND = 250
#: A store tells when something was appended; should it ever not, this is how long an event lies
#: unnoticed.
POLL_SECONDS = 1.0
#: How soon another process's event is looked for while we append ourselves.
OWN_SECONDS = 0.1
#: For how long appends wait at most so that those on their way land and are projected, and how
#: often that may be: ever more rarely where not so
#: many commits were projected at once after the last time, because others append, too.
HOLD_SECONDS = 0.05
HOLD_EVERY_SECONDS = 1.0
HOLD_RARELY_SECONDS = 60.0
WORTH_IT = 20
#: How old the position that we remember may be when there is nothing to do: a rebuild that died
#: after its swap has turned it back.
POSITION_SECONDS = 5.0
#: How often another process's projector is looked at by a process that waits for it, and after how
#: long without a move it counts as idle.
LOOK_SECONDS = 0.05
STILL_SECONDS = 0.25


class Projector:
    def __init__(self, stores: Stores, process: Process) -> None:
        """All partitions are followed, until `run` says which of them are ours."""
        self._events, self._transactions = stores.events, stores.transactions
        self._checkpoints = stores.checkpoints
        self._count = count = stores.partitions
        self._folding = Folding(stores.events, stores.read_model.get, process)
        self._process, self._runtime = process, process.runtime
        runtime = process.runtime
        self.partitions = Partitions(count, stores.leases, process)
        self._followed, self._lease_expiry = frozenset(range(count)), 0
        self._listeners: list[Callable[[Sequence[View]], None]] = []
        #: None: to be read.
        self._positions: PartitionPositions | None = None
        self._positions_read_at = float("-inf")
        self._is_behind = self._had_positions = False
        self._caught_up = Signal(runtime)
        #: Appends of ours on their way, and how many of them came to be projected at once
        #: (at_once.py).
        self._sent = self._inline = 0
        #: The checkpoints, while nothing is known to be left: then appends of ours are projected at
        #: once, and nobody looks for them.
        self._at_end: dict[str, int] | None = None
        self._looked_at = 0.0
        #: Appends of ours wait until then, or until they are let go.
        self._held_until, self._held_at = 0.0, float("-inf")
        self._hold_every, self._inline_before = HOLD_EVERY_SECONDS, 0
        self._let_go = Signal(runtime)
        #: The worker beside us, where there is one.
        self.eager_dispatch: EagerDispatch | None = None

    async def position(self) -> int:
        """The position up to which the views show the log: our own where we project all of it, else
        what the store says.
        """
        if (
            self.is_here
            and self._positions is not None
            and self._positions.numbers == self.partitions.ours
        ):
            return self._positions.lowest
        return await projected_position(self._checkpoints, self._count)

    async def not_far_behind(self, seconds: float) -> None:
        """Return when little is left to be projected, at the latest after so many seconds; soon
        where no process projects.
        """
        end = self._runtime.monotonic() + seconds
        while self._is_behind and self.is_here and (left := end - self._runtime.monotonic()) > 0:
            await self._caught_up.wait(left)
        if not self.is_here:
            # If the store is gone, the next append raises.
            with suppress(StoreError):
                await self._another_is_not_far_behind(end)

    async def _another_is_not_far_behind(self, end: float) -> None:
        """The same where another process projects, which only the store can tell."""
        position, moved_at = -1, self._runtime.monotonic()
        while (now := self._runtime.monotonic()) < end:
            before, position = position, await self.position()
            if position != before:
                moved_at = now
            if now - moved_at >= STILL_SECONDS or await self._events.behind(position) < BEHIND:
                return
            await sleep(self._runtime, min(LOOK_SECONDS, end - now))

    @property
    def is_here(self) -> bool:
        """Whether this process is the one that projects, all of it: then whoever listens hears of
        every outcome.
        """
        return self.partitions.are_all_ours

    def listen(self, listener: Callable[[Sequence[View]], None]) -> None:
        """Call with every batch of views once it is saved."""
        self._listeners.append(listener)

    def checkpoints_at_end(self) -> dict[str, int] | None:
        """Name → how far jobs have been put, where what is appended next can be projected at once;
        else None.
        """
        return (
            self._at_end
            if self.is_here and self._at_end is not None and len(self._at_end) == self._count
            else None
        )

    async def before_append(self) -> None:
        """Wait, for a moment at most, where appends that follow each other without a pause keep us
        from ever standing at the end of the log.
        """
        while (left := self._held_until - self._runtime.monotonic()) > 0:
            await self._let_go.wait(left)

    def sent(self) -> None:
        """An append of ours is on its way."""
        self._sent += 1

    def landed(self, projection: Projection | None) -> None:
        """It is in the store, or its answer was lost; without its projection, it is read later."""
        self._sent -= 1
        if projection is None or projection.reached is None:
            self._at_end = None
            return
        self._inline += 1
        if self._positions is not None:
            # As good as read: the store has just compared it.
            self._positions_read_at = self._runtime.monotonic()
            self._positions.reached(projection.reached)
        for listener in self._listeners:
            listener(projection.views)

    async def run(self) -> None:
        """Project for ever, the partitions that are ours."""
        await repeat(self._turn, "projector", self._process, outage=self._forget_positions)

    async def _turn(self) -> None:
        ours = await self.partitions.hold()
        if (
            ours != self._followed
            or self.partitions.lease_expiry != self._lease_expiry
            or self._positions is None
        ):
            self._followed, self._lease_expiry = ours, self.partitions.lease_expiry
            # Also where none is left: what was remembered of their views is forgotten with it.
            await self._read_positions()
        if not ours:
            await sleep(self._runtime, RENEWAL_SECONDS)
        elif await self.step() == 0:
            if self._runtime.monotonic() - self._positions_read_at >= POSITION_SECONDS:
                self._forget_positions()
            await self._rest()

    def _forget_positions(self) -> None:
        """Read them again before the next step."""
        self._positions = self._at_end = None

    async def _rest(self) -> None:
        """Until there may be something to project.

        What we append is none as long as it is projected at once, so we look less often.
        """
        if self._held_until > self._runtime.monotonic():
            # Those who wait for us wait for the answers of those on their way, of which nobody
            # tells us.
            await sleep(self._runtime, HOLD_SECONDS / 10)
            return
        # What was passed over because an append of ours was on its way is looked for soon, should
        # that one fail.
        end = self._runtime.monotonic() + (OWN_SECONDS if self._sent else POLL_SECONDS)
        while (now := self._runtime.monotonic()) < end:
            before = self._inline
            await self._events.changed(end - now)
            if self._at_end is None or self._inline == before:
                return
            end = min(end, self._looked_at + OWN_SECONDS)

    async def finish(self, until: float) -> None:
        """After `run` was cancelled: project what is left, so that whoever looks at the store
        meanwhile sees how it ended.

        Until a moment of the monotonic clock: others may append for ever. Then another process may
        project at once.
        """
        with suppress(StoreError):
            self._followed = await self.partitions.hold()
            if self._followed:
                # A step that was cut off may have been committed, or may be about to be: then the
                # checkpoint moves under us.
                self._forget_positions()
                while (
                    await self.step() or self._positions is None
                ) and self._runtime.monotonic() < until:
                    pass
        await self.partitions.give_up()

    async def step(self, *, again: bool = False) -> int:
        """Project one batch; how far it went.

        `again`: of what was projected before, and nothing else.
        """
        positions = self._positions or await self._read_positions()
        span = positions.next_span(again=again)
        if span is None:
            return 0
        if (looked := await self._look(span)) is None:
            return 0
        batch, reached = looked
        self._is_behind = reached - span.position >= BEHIND
        if not self._is_behind:
            self._caught_up.set()
        if reached == span.position:
            if not again:
                self._reach_end(positions.level)
            return 0
        self._at_end = None
        views, jobs, quarantined = await self._folding.fold(batch, span.quiet_until)
        if not await self._project(views, jobs, quarantined, positions.moves(span, reached)):
            # Another projector moved a checkpoint: start again from where they are now.
            self._forget_positions()
            self.partitions.doubt()
            return 0
        positions.moved(span.numbers, reached)
        if quarantined:
            self._folding.log_quarantined()
        for listener in self._listeners:
            listener(views)
        return reached - span.position

    async def _project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        with self.eager(jobs) as free_slots:
            return await self._transactions.project(views, jobs, quarantined, moves, free_slots)

    @contextmanager
    def eager(self, jobs: Sequence[Job]) -> Iterator[FreeSlots | None]:
        """What the worker beside us offers for jobs that are put meanwhile."""
        free_slots = (
            self.eager_dispatch.make(jobs) if jobs and self.eager_dispatch is not None else None
        )
        is_lost = True
        try:
            yield free_slots
            is_lost = False
        except (Fenced, StoreFull):
            # Refused as a whole: nothing was written.
            is_lost = False
            raise
        finally:
            if free_slots is not None and self.eager_dispatch is not None:
                self.eager_dispatch.answered(free_slots, is_lost=is_lost)

    def _reach_end(self, checkpoints: dict[str, int] | None) -> None:
        """From here on appends are projected at once; not yet while one is on its way that is not:
        the next one would meet a gap.
        """
        now = self._runtime.monotonic()
        self._at_end = None if self._sent else checkpoints
        if self._sent and self.is_here and now - self._held_at >= self._hold_every:
            was_worth_it = self._inline - self._inline_before >= WORTH_IT
            self._hold_every = (
                HOLD_EVERY_SECONDS
                if was_worth_it
                else min(2 * self._hold_every, HOLD_RARELY_SECONDS)
            )
            self._inline_before = self._inline
            self._held_at, self._held_until = now, now + HOLD_SECONDS
        elif not self._sent and self._held_until:
            self._held_until = 0.0
            self._let_go.set()

    async def _look(self, span: Span) -> tuple[list[Recorded], int] | None:
        """As `_next_events`; None while appends of ours are projected at once: what we would see of
        them is done, and only not told yet.
        """
        self._looked_at, before = self._runtime.monotonic(), self._inline
        if self._at_end is not None and self._sent:
            return None
        looked = await self._next_events(span)
        return (
            None if self._at_end is not None and (self._sent or self._inline != before) else looked
        )

    async def _next_events(self, span: Span) -> tuple[list[Recorded], int]:
        """The next events of these partitions, and the position up to which there are no more of
        them.
        """
        if len(span.numbers) == self._count:
            batch = await self._events.follow(span.position, BATCH)
            reached = batch[-1].position if batch else span.position
        else:
            # As many as hold one batch of ours.
            limit = BATCH * self._count // len(span.numbers)
            share = Share(self._count, span.numbers)
            batch, reached = await self._events.follow_share(span.position, limit, share)
        if span.until is not None and reached > span.until:
            return [one for one in batch if one.position <= span.until], span.until
        return batch, reached

    async def _read_positions(self) -> PartitionPositions:
        self._at_end = None
        positions = await positions_of(self._checkpoints, self._count)
        if not all(one.is_known for one in positions) and self._had_positions:
            # Lost under our feet.
            await begin_checkpoints(self._events, self._checkpoints, self._count)
            positions = await positions_of(self._checkpoints, self._count)
        self._had_positions = all(one.is_known for one in positions)
        self._positions = PartitionPositions(
            self._count, {number: positions[number] for number in sorted(self._followed)}
        )
        self._positions_read_at = self._runtime.monotonic()
        return self._positions

    async def catch_up(self) -> int:
        """After the views were swapped: fold again what was folded before and nothing else.

        How far that went.
        """
        self._forget_positions()
        folded = 0
        while count := await self.step(again=True):
            folded += count
        return folded
