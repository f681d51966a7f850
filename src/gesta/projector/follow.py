"""Station 4 of 7: follow the log from the checkpoint, fold, write views, jobs and checkpoint in one commit.

Receives events from the event store; hands jobs to the queue (dispatch.py) and views to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gesta.commits import Commits
from gesta.errors import StoreError
from gesta.event_store import EventStore
from gesta.projector.folding import Folding
from gesta.role import RENEWAL_SECONDS, Role
from gesta.runtime import Runtime, Signal, sleep
from gesta.telemetry import Telemetry
from gesta.views import Move, View, Views

CHECKPOINT = "projector"
#: Up to here jobs have been put: a fold that goes over it again, after a rebuild, puts none.
DISPATCHED = "dispatched"
#: Larger batches cost less per event: each commit writes the edges of the same trees anew.
BATCH = 2_000
#: A batch of this size says that there is more than a moment's work to be projected.
BEHIND = 250
#: A store tells when something was appended; should it ever not, this is how long an event lies unnoticed.
POLL_SECONDS = 1.0
STORE_PAUSE_SECONDS = 1.0
#: How old the place that we remember may be when there is nothing to do: a rebuild that died after its swap has turned it back.
PLACE_SECONDS = 5.0
#: How often another process's projector is looked at by whoever waits for it, and after how long without a move it is taken to stand still.
LOOK_SECONDS = 0.05
STILL_SECONDS = 0.25


class Projector:
    def __init__(
        self, events: EventStore, views: Views, commits: Commits, runtime: Runtime, telemetry: Telemetry, owner: str
    ) -> None:
        self._events, self._views, self._commits = events, views, commits
        self._folding = Folding(events, views.get, runtime, telemetry)
        self._runtime, self._telemetry = runtime, telemetry
        self.role = Role(CHECKPOINT, owner, views, runtime)
        self._listeners: list[Callable[[Sequence[View]], None]] = []
        self._position: int | None = None
        self._quiet_until = 0
        self._place_read_at = float("-inf")
        self._is_behind = False
        self._caught_up = Signal(runtime)

    async def place(self) -> int:
        """The position up to which the views show the log: our own where we project, else what the store says."""
        if self.role.was_ours and self._position is not None:
            return self._position
        return await self._views.checkpoint(CHECKPOINT)

    async def not_far_behind(self, seconds: float) -> None:
        """Return when little is left to be projected, at the latest after so many seconds; soon where nobody projects."""
        end = self._runtime.monotonic() + seconds
        while self._is_behind and self.role.was_ours and (left := end - self._runtime.monotonic()) > 0:
            await self._caught_up.wait(left)
        if not self.role.was_ours:
            # No news: if the store is gone, whoever waits here will hear of it at the next append.
            with suppress(StoreError):
                await self._another_is_not_far_behind(end)

    async def _another_is_not_far_behind(self, end: float) -> None:
        """The same where another process projects, which only the store can tell."""
        place, moved_at = -1, self._runtime.monotonic()
        while (now := self._runtime.monotonic()) < end:
            before, place = place, await self.place()
            if place != before:
                moved_at = now
            if now - moved_at >= STILL_SECONDS or await self._events.behind(place) < BEHIND:
                return
            await sleep(self._runtime, min(LOOK_SECONDS, end - now))

    @property
    def is_here(self) -> bool:
        """Whether this process is the one that projects: then whoever listens hears of every outcome."""
        return self.role.was_ours

    def listen(self, listener: Callable[[Sequence[View]], None]) -> None:
        """Call with every batch of views once it is saved."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Project for ever, while the role is ours."""
        while True:
            try:
                if not await self.role.is_ours():
                    self._position = None
                    await sleep(self._runtime, RENEWAL_SECONDS)
                elif await self.step() == 0:
                    if self._runtime.monotonic() - self._place_read_at >= PLACE_SECONDS:
                        self._position = None
                    await self._events.changed(POLL_SECONDS)
            except StoreError as error:
                self._telemetry.store_failed("projector", error)
                self._position = None
                await sleep(self._runtime, STORE_PAUSE_SECONDS)

    async def finish(self, until: float) -> None:
        """After `run` was cancelled: project what is left, so that whoever looks at the store meanwhile sees how it ended.

        Until a moment of the monotonic clock: others may append for ever. Then another process may project at once.
        """
        with suppress(StoreError):
            if await self.role.is_ours():
                # A step that was cut off may have been committed, or may be about to be: then the checkpoint moves under us.
                self._position = None
                while (await self.step() or self._position is None) and self._runtime.monotonic() < until:
                    pass
        await self.role.give_up()

    async def step(self, until: int | None = None) -> int:
        """Project one batch, of events up to `until` if that is given; how many events it had."""
        if self._position is None:
            self._position = await self._views.checkpoint(CHECKPOINT)
            self._quiet_until = await self._views.checkpoint(DISPATCHED)
            self._place_read_at = self._runtime.monotonic()
        batch = await self._events.follow(self._position, BATCH)
        if until is not None:
            batch = [recorded for recorded in batch if recorded.position <= until]
        self._is_behind = len(batch) >= BEHIND
        if not self._is_behind:
            self._caught_up.set()
        if not batch:
            return 0
        views, jobs, parked = await self._folding.fold(batch, self._quiet_until)
        move = Move(CHECKPOINT, self._position, batch[-1].position, self._quiet_until)
        if not await self._commits.project(views, jobs, parked, move):
            # Another projector moved the checkpoint: start again from where it stands now.
            self._position = None
            return 0
        self._position = move.after
        for listener in self._listeners:
            listener(views)
        return len(batch)

    async def catch_up(self) -> int:
        """After the views were swapped: fold again what was folded before and nothing else. How many events that were."""
        self._position, folded = None, 0
        until = await self._views.checkpoint(DISPATCHED)
        while count := await self.step(until):
            folded += count
        return folded
