"""The projector follows the log and writes views, jobs and checkpoint in one commit.

Each process does this for some partitions of the log (partitions.py). Where possible, the events
that a process appends itself are projected inline (inline.py).
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from gesta.errors import Fenced, StoreError, StoreFull
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import EagerDispatch, FreeSlots
from gesta.ports.event_store import Recorded, Share
from gesta.ports.job_queue import Job
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.ports.read_model import Key, Quarantined, View
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
from gesta.projector.view_writer import Fold, ViewWriter
from gesta.runtime.clock import Signal, sleep
from gesta.runtime.component import Process, repeat

#: Larger batches cost less per event: each commit rewrites inner pages of the same trees.
BATCH = 2_000
#: After a batch of this size the projector counts as behind.
BEHIND = 250
#: Stores signal appends. If a signal is lost, an event waits at most this long.
POLL_SECONDS = 1.0
#: How soon events of other processes are read while this process appends.
OWN_SECONDS = 0.1
#: How long appends wait at most so that the log can be projected to its end, and how often that may
#: happen: less and less often if fewer than WORTH_IT commits were projected inline after the last
#: time, because other processes append, too.
HOLD_SECONDS = 0.05
HOLD_EVERY_SECONDS = 1.0
HOLD_RARELY_SECONDS = 60.0
WORTH_IT = 20
#: How long positions are cached while there is nothing to do: a rebuild that died after its swap
#: has set them back.
POSITION_SECONDS = 5.0
#: How often a process that waits for the projector of another one checks its position, and after
#: how long without a change that projector counts as idle.
LOOK_SECONDS = 0.05
STILL_SECONDS = 0.25

#: Where views are saved in the background, new requests wait while so many events of this process
#: are not folded yet. The end of a request follows them in the log, and its view waits for that.
LAG_MAX = 3_000
#: They do not wait for a projector that has folded nothing for so long.
STUCK_SECONDS = 1.0

PutEarly = Callable[
    [
        Sequence[Job],
        Sequence[View],
        Callable[[Sequence[Job]], AbstractContextManager[FreeSlots | None]],
    ],
    Awaitable[list[Job]],
]


class Projector:
    def __init__(self, stores: Stores, process: Process) -> None:
        """It follows all partitions until `run` knows which ones this process holds."""
        self._events, self._transactions = stores.events, stores.transactions
        self._checkpoints = stores.checkpoints
        self._count = count = stores.partitions
        self._process, self._runtime = process, process.runtime
        runtime = process.runtime
        self._views = stores.read_model
        #: Saves views in the background, where they are in another database.
        self._writer = (
            ViewWriter(self._transactions.project, self._saved, runtime)
            if stores.has_separate_views
            else None
        )
        self._folding = Folding(stores.events, self._known, process)
        self.partitions = Partitions(count, stores.leases, process)
        self._followed, self._lease_expiry = frozenset(range(count)), 0
        self._listeners: list[Callable[[Sequence[View]], None]] = []
        #: None: to be read.
        self._positions: PartitionPositions | None = None
        self._positions_read_at = float("-inf")
        self._is_behind = self._had_positions = False
        self._caught_up = Signal(runtime)
        #: Appends of this process that are being written, and how many were projected inline.
        self._sent = self._inline = 0
        #: The checkpoints, while the end of the log is reached: then appends of this process are
        #: projected inline.
        self._at_end: dict[str, int] | None = None
        self._looked_at = 0.0
        #: Appends of this process wait until then, or until `_let_go`.
        self._held_until, self._held_at = 0.0, float("-inf")
        self._hold_every, self._inline_before = HOLD_EVERY_SECONDS, 0
        self._let_go = Signal(runtime)
        #: Events that this process appended and has not folded, at most, and when it last looked
        #: for some.
        self._lag, self._folded_at = 0, float("-inf")
        self._stepped = Signal(runtime)
        #: The worker in this process, if there is one.
        self.eager_dispatch: EagerDispatch | None = None
        #: Puts jobs into a separate queue without writing them down first (job_relay.py); returns
        #: those that have to be.
        self.put_early: PutEarly | None = None
        #: Partition → up to where this process has put its jobs early.
        self._put: dict[int, int] = {}

    async def position(self) -> int:
        """The position up to which the views show the log."""
        if (
            self.is_here
            and self._positions is not None
            and self._positions.numbers == self.partitions.ours
        ):
            lowest = self._positions.lowest
            return lowest if self._writer is None else self._writer.position(lowest)
        return await projected_position(self._checkpoints, self._count)

    async def _known(self, keys: Sequence[Key]) -> dict[Key, View]:
        """The views as they were folded last."""
        if self._writer is None:
            return await self._views.get(keys)
        found = self._writer.get(keys)
        missing = [key for key in keys if key not in found]
        return found | await self._views.get(missing) if missing else found

    def _saved(self, views: Sequence[View]) -> None:
        for listener in self._listeners:
            listener(views)

    async def not_far_behind(self, seconds: float) -> None:
        """Return when little is left to project, at the latest after so many seconds; soon if no
        process projects.
        """
        end = self._runtime.monotonic() + seconds
        while self._is_behind and self.is_here and (left := end - self._runtime.monotonic()) > 0:
            await self._caught_up.wait(left)
        if not self.is_here:
            # During an outage the next append raises.
            with suppress(StoreError):
                await self._another_is_not_far_behind(end)

    async def _another_is_not_far_behind(self, end: float) -> None:
        """The same if another process projects; reads its position from the store."""
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
        """Whether this process projects all of the log: then its listeners get every outcome."""
        return self.partitions.are_all_ours

    def listen(self, listener: Callable[[Sequence[View]], None]) -> None:
        """Call `listener` with every batch of views once it is saved."""
        self._listeners.append(listener)

    def checkpoints_at_end(self) -> dict[str, int] | None:
        """Checkpoint → how far jobs have been put, if the next append can be projected inline."""
        return (
            self._at_end
            if self.is_here and self._at_end is not None and len(self._at_end) == self._count
            else None
        )

    async def before_append(self) -> None:
        """Wait for a moment if appends without a pause keep the projector from reaching the end of
        the log.
        """
        while (left := self._held_until - self._runtime.monotonic()) > 0:
            await self._let_go.wait(left)

    async def room(self) -> None:
        """Wait while many events are to be folded, as long as the projector gets on."""
        if self._writer is None:
            return
        while (
            self._lag >= LAG_MAX
            and self.is_here
            and (left := self._folded_at + STUCK_SECONDS - self._runtime.monotonic()) > 0
        ):
            await self._stepped.wait(left)

    def appended(self, count: int) -> None:
        """So many more events of this process are in the log, and are to be read from there; fewer
        than was said before, if it is negative.
        """
        self._lag = max(0, self._lag + count)

    def _has_stepped(self, *, is_at_end: bool) -> None:
        if is_at_end:
            self._lag = 0
        self._folded_at = self._runtime.monotonic()
        self._stepped.set()

    def sent(self) -> None:
        """An append of this process is being written."""
        self._sent += 1

    def landed(self, projection: Projection | None) -> None:
        """An append was written, or its answer was lost. Without a projection it is read later."""
        self._sent -= 1
        if projection is None or projection.reached is None:
            self._at_end = None
            return
        self._inline += 1
        if self._positions is not None:
            # The store has just compared it.
            self._positions_read_at = self._runtime.monotonic()
            self._positions.reached(projection.reached)
        for listener in self._listeners:
            listener(projection.views)

    async def run(self) -> None:
        """Project the partitions of this process forever."""
        await repeat(self._turn, "projector", self._process, outage=self._forget_positions)

    async def _turn(self) -> None:
        ours, expiry = await self.partitions.hold(), self.partitions.lease_expiry
        is_new = ours != self._followed or expiry != self._lease_expiry
        if is_new:
            self._followed, self._lease_expiry = ours, expiry
            # What this process appended before, another one may have folded.
            self._lag = 0
        if is_new or self._positions is None:
            # Also if none is left: the store drops what it has cached of their views.
            await self._read_positions()
        if not ours:
            await sleep(self._runtime, RENEWAL_SECONDS)
            return
        moved = await self.step()
        self._has_stepped(is_at_end=moved == 0)
        if moved == 0:
            age = self._runtime.monotonic() - self._positions_read_at
            if age >= POSITION_SECONDS and not self._sent:
                # An append that is being written compares them.
                self._forget_positions()
            await self._rest()

    def _forget_positions(self) -> None:
        self._positions = self._at_end = None

    async def _rest(self) -> None:
        """Wait until there may be something to project.

        Appends of this process that are projected inline need no step.
        """
        if self._held_until > self._runtime.monotonic():
            # Held appends wait until those being written have landed, which sets no signal.
            await sleep(self._runtime, HOLD_SECONDS / 10)
            return
        # A step was skipped because an append was being written: try again soon, in case it fails.
        end = self._runtime.monotonic() + (OWN_SECONDS if self._sent else POLL_SECONDS)
        while (now := self._runtime.monotonic()) < end:
            before = self._inline
            await self._events.changed(end - now)
            if self._at_end is None or self._inline == before:
                return
            end = min(end, self._looked_at + OWN_SECONDS)

    async def finish(self, until: float) -> None:
        """After `run` was cancelled: project what is left, until `until` (monotonic) at the latest.

        Then give up the partitions, so that another process can project without waiting.
        """
        with suppress(StoreError):
            self._followed = await self.partitions.hold()
            if self._followed:
                # A step that was cancelled may still be committed and move the checkpoint.
                self._forget_positions()
                while (
                    await self.step() or self._positions is None
                ) and self._runtime.monotonic() < until:
                    pass
                if self._writer is not None:
                    await self._writer.flush()
        await self.partitions.give_up()

    async def step(self, *, again: bool = False) -> int:
        """Project one batch; returns by how much the position moved.

        `again`: only over events that were projected before.
        """
        if self._writer is not None and self._writer.is_overtaken():
            self._forget_positions()
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
        views, jobs, quarantined, firsts = await self._folding.fold(
            batch, max(span.quiet_until, self._put_until(span))
        )
        if jobs and self.put_early is not None:
            jobs = await self.put_early(jobs, views, self.eager)
        if not jobs and self.put_early is not None:
            self._put.update(dict.fromkeys(span.numbers, reached))
        moves = positions.moves(span, reached)
        if self._writer is not None and not (jobs or quarantined or again):
            await self._writer.add(Fold(views, firsts, moves, reached))
        elif not await self._project(views, jobs, quarantined, moves):
            # Another projector moved a checkpoint: read the positions again.
            self._forget_positions()
            return 0
        else:
            self._saved(views)
        positions.moved(span.numbers, reached)
        # Of all processes, and positions may be bytes.
        self._lag = max(0, self._lag - len(batch))
        if quarantined:
            self._folding.log_quarantined()
        return reached - span.position

    def _put_until(self, span: Span) -> int:
        """Up to here this process has put the jobs of these partitions, whatever became of the
        checkpoint since.
        """
        return min([self._put.get(number, 0) for number in span.numbers])

    async def _project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        if self._writer is not None and not await self._writer.flush():
            return False
        with self.eager(jobs) as free_slots:
            return await self._transactions.project(views, jobs, quarantined, moves, free_slots)

    @contextmanager
    def eager(self, jobs: Sequence[Job]) -> Iterator[FreeSlots | None]:
        """The free slots of the worker in this process, for jobs that are put meanwhile."""
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
        """From here on appends are projected inline.

        Not while an append without projection is being written: the next one would leave a gap.
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
        """As `_next_events`; None while appends are projected inline: the events that would be read
        are projected already.
        """
        self._looked_at, before = self._runtime.monotonic(), self._inline
        if self._at_end is not None and self._sent:
            return None
        looked = await self._next_events(span)
        return (
            None if self._at_end is not None and (self._sent or self._inline != before) else looked
        )

    async def _next_events(self, span: Span) -> tuple[list[Recorded], int]:
        """The next events of these partitions, and the position up to which they were read."""
        if len(span.numbers) == self._count:
            batch = await self._events.follow(span.position, BATCH)
            reached = batch[-1].position if batch else span.position
        else:
            # So many contain one batch of these partitions.
            limit = BATCH * self._count // len(span.numbers)
            share = Share(self._count, span.numbers)
            batch, reached = await self._events.follow_share(span.position, limit, share)
        if span.until is not None and reached > span.until:
            return [one for one in batch if one.position <= span.until], span.until
        return batch, reached

    async def _read_positions(self) -> PartitionPositions:
        self._at_end = None
        if self._writer is not None:
            # What waits was folded from the positions that are being read.
            await self._writer.flush()
        positions = await positions_of(self._checkpoints, self._count)
        if not all(one.is_known for one in positions) and self._had_positions:
            # The checkpoints were lost while this process ran.
            await begin_checkpoints(self._events, self._checkpoints, self._count)
            positions = await positions_of(self._checkpoints, self._count)
        self._had_positions = all(one.is_known for one in positions)
        self._positions = PartitionPositions(
            self._count, {number: positions[number] for number in sorted(self._followed)}
        )
        self._positions_read_at = self._runtime.monotonic()
        return self._positions

    async def catch_up(self) -> int:
        """After the views were swapped: fold the events again that were folded before; returns how
        many positions.
        """
        self._forget_positions()
        folded = 0
        while count := await self.step(again=True):
            folded += count
        return folded
