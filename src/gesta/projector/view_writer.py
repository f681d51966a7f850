"""Saves views behind the projector, where they are in another database than the events.

The projector folds on while a write is under way, and what it folds meanwhile goes into the next
write. Under load an open request waits a moment for its end, so that both are one write. The
position never passes an event whose view is not saved: after a crash the projector folds from there
again, and views that were saved already are not newer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gesta.ports.checkpoints import Move
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Key, Quarantined, View, key_of
from gesta.runtime.clock import Runtime, Signal, spawn

#: How long the view of an open request may wait for the end of the request.
HOLD_SECONDS = 1.0
#: Views wait for that only under load, and only while they are not too many: calls that take long
#: do not end meanwhile.
BUSY, HELD_MAX = 100, 5_000
#: So many views may wait for a write; then the projector waits, too.
WAITING_MAX = 8_000
#: Views in one write.
BATCH = 2_000

Write = Callable[
    [Sequence[View], Sequence[Job], Sequence[Quarantined], Sequence[Move]], Awaitable[bool]
]


class Fold(NamedTuple):
    """What follows from the events up to `reached`. `firsts`: of each view the position of its
    first event among them. `moves`: from the position before these events.
    """

    views: Sequence[View]
    firsts: Sequence[int]
    moves: Sequence[Move]
    reached: int


class _Waiting(NamedTuple):
    view: View
    first: int
    since: float
    #: Whether the request waits for its execution to end.
    is_open: bool


class ViewWriter:
    def __init__(
        self, write: Write, saved: Callable[[Sequence[View]], None], runtime: Runtime
    ) -> None:
        """`saved` is called with the views of each write."""
        self._write, self._saved, self._runtime = write, saved, runtime
        self._waiting: dict[Key, _Waiting] = {}
        self._writing: dict[Key, View] = {}
        #: The moves of the next write: from the written position to the folded one.
        self._moves: Sequence[Move] = ()
        self._written = self._reached = 0
        self._is_flushing = False
        self._task: asyncio.Task[None] | None = None
        #: Why all that waited was forgotten.
        self._failure: BaseException | None = None
        self._is_overtaken = False
        self._news, self._done = Signal(runtime), Signal(runtime)

    def position(self, folded: int) -> int:
        """The position up to which views are saved, of a projector that has folded so far."""
        return self._written if self._is_behind else folded

    @property
    def _is_behind(self) -> bool:
        return bool(self._waiting or self._writing) or self._written < self._reached

    def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        """Folded views that are not saved yet."""
        found: dict[Key, View] = {}
        for key in keys:
            if (waiting := self._waiting.get(key)) is not None:
                found[key] = waiting.view
            elif (view := self._writing.get(key)) is not None:
                found[key] = view
        return found

    async def add(self, fold: Fold) -> None:
        """Save these views soon; waits while too many do. Nothing is kept after a failure: the
        projector learns of it by `is_overtaken` and folds again.
        """
        same = [one.name for one in fold.moves] == [one.name for one in self._moves]
        if self._is_behind and not (same and fold.moves[0].before == self._reached):
            await self._drain()
        while len(self._waiting) >= WAITING_MAX and not self._is_broken:
            await self._done.wait(HOLD_SECONDS)
        if self._is_broken:
            return
        if not self._is_behind:
            self._written = fold.moves[0].before
        self._moves, self._reached = fold.moves, fold.reached
        now = self._runtime.monotonic()
        for view, first in zip(fold.views, fold.firsts, strict=True):
            key, is_open = key_of(view.state), view.state.wants == "execute"
            before = self._waiting.get(key)
            # The order of the first events stays.
            self._waiting[key] = (
                _Waiting(view, first, now, is_open)
                if before is None
                else _Waiting(view, before.first, before.since, is_open)
            )
        self._news.set()
        if self._task is None:
            self._task = spawn(self._run(), "gesta-view-writer")

    @property
    def _is_broken(self) -> bool:
        return self._is_overtaken or self._failure is not None

    def is_overtaken(self) -> bool:
        """Whether another projector was faster since the last question, or the database of the
        views has lost what it had: then all that waited is forgotten. Raises the error of a write
        that failed; then it is, too.
        """
        failure, is_overtaken = self._failure, self._is_overtaken
        self._failure, self._is_overtaken = None, False
        if failure is not None:
            raise failure
        return is_overtaken

    async def flush(self) -> bool:
        """Save all that waits; False, or an error, as `is_overtaken` has it."""
        await self._drain()
        return not self.is_overtaken()

    async def _drain(self) -> None:
        self._is_flushing = True
        try:
            self._news.set()
            while self._task is not None:
                await self._done.wait(HOLD_SECONDS)
        finally:
            self._is_flushing = False

    async def _run(self) -> None:
        try:
            while self._is_behind:
                chosen = self._chosen()
                held = next(iter(self._waiting.values()), None)
                after = self._reached if held is None else held.first - 1
                if chosen or after > self._written:
                    await self._write_one(chosen, after)
                else:
                    await self._news.wait(HOLD_SECONDS / 4)
        except BaseException as error:
            self._failure = error if isinstance(error, Exception) else None
            self._is_overtaken = True
            if not isinstance(error, Exception):
                raise
        finally:
            self._task = None
            self._waiting.clear()
            self._writing = {}
            self._reached = self._written
            self._done.set()

    def _chosen(self) -> dict[Key, View]:
        """The next views to save; they no longer wait."""
        chosen: dict[Key, View] = {}
        waits = BUSY <= len(self._waiting) <= HELD_MAX and not self._is_flushing
        old = self._runtime.monotonic() - HOLD_SECONDS
        for key, (view, _, since, is_open) in self._waiting.items():
            if not (waits and is_open) or since <= old:
                chosen[key] = view
                if len(chosen) >= BATCH:
                    break
        for key in chosen:
            del self._waiting[key]
        return chosen

    async def _write_one(self, chosen: dict[Key, View], after: int) -> None:
        self._writing = chosen
        # Also where no position moves: the store follows from them what was written since one did.
        moves = [Move(one.name, self._written, after, one.dispatched) for one in self._moves]
        views = list(chosen.values())
        if await self._write(views, (), (), moves):
            self._written = max(self._written, after)
            self._saved(views)
        else:
            self._is_overtaken = True
            self._waiting.clear()
            self._reached = self._written
        self._writing = {}
        self._done.set()
