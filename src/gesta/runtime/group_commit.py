"""Group commit: items that arrive during a write form the next batch. No item waits for others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar, cast

from gesta.errors import Fenced
from gesta.runtime.clock import spawn

I = TypeVar("I")  # noqa: E741 -- what goes in
O = TypeVar("O")  # noqa: E741 -- what comes out


#: The most bytes of a batch: a burst of large requests must not occupy the store for longer than a
#: lease lasts.
WEIGHT_MAX = 8 * 1024 * 1024


class _Together(Generic[O]):
    """The answers to items that one caller added: `future` is done once all are written."""

    __slots__ = ("answers", "cancel", "done", "future", "left", "set_exception")

    def __init__(self, count: int) -> None:
        self.answers: list[O | None] = [None] * count
        self.left = count
        self.future: asyncio.Future[list[O]] = asyncio.get_running_loop().create_future()
        self.done, self.cancel = self.future.done, self.future.cancel
        self.set_exception = self.future.set_exception


class _Place(Generic[O]):
    """In the place of a future of one of these items. It knows the number of its item: of two
    batches that are written at a time, the later one may end first.
    """

    __slots__ = ("_number", "_together", "cancel", "done", "set_exception")

    def __init__(self, together: _Together[O], number: int) -> None:
        self._together, self._number = together, number
        self.done, self.cancel = together.done, together.cancel
        self.set_exception = together.set_exception

    def set_result(self, answer: O) -> None:
        together = self._together
        together.answers[self._number] = answer
        together.left -= 1
        if not together.left:
            together.future.set_result(cast(list[O], together.answers))


class GroupCommit(Generic[I, O]):
    """`await add(item)` returns the item's own answer once its batch is written."""

    def __init__(
        self,
        write: Callable[[list[I]], Awaitable[list[O]]],
        name: str,
        limit: int = 2_000,
        *,
        at_once: int = 1,
        halved_above: int | None = None,
    ) -> None:
        """`at_once`: how many batches may be written at a time, in any order.

        `halved_above`: a batch of more items than this takes at most half of the callers. The event
        loop prepares the other half while it is written.
        """
        self._write, self._name, self._limit = write, name, limit
        self._halved_above = limit if halved_above is None else halved_above
        #: How many items the last batch had: their callers come again.
        self._last = 0
        self._waiting: list[tuple[I, asyncio.Future[O] | _Place[O], int]] = []
        self._weight = 0
        self._at_once, self._writers = at_once, set[asyncio.Task[None]]()
        #: Whether no writer is about to take what waits, and another one may start.
        self._needs_writer = True
        #: Of the loop of the writers. Asking for that costs more than the rest of `add`.
        self._new_future: Callable[[], asyncio.Future[Any]]

    def add(self, item: I, weight: int = 0) -> asyncio.Future[O]:
        """`weight`: the size of the item in bytes, where items can be large."""
        if self._needs_writer:
            self._start_writer()
        future: asyncio.Future[O] = self._new_future()
        self._waiting.append((item, future, weight))
        self._weight += weight
        return future

    def add_all(self, items: Sequence[I]) -> asyncio.Future[list[O]]:
        """The answers to all items, in their order; there is at least one item.

        They may be written in several batches. After an error, some of them may have been written.
        """
        if self._needs_writer:
            self._start_writer()
        together: _Together[O] = _Together(len(items))
        self._waiting += [(item, _Place(together, n), 0) for n, item in enumerate(items)]
        return together.future

    def _start_writer(self) -> None:
        self._needs_writer = False
        self._new_future = asyncio.get_running_loop().create_future
        # The task starts after all callers that are ready in this turn of the loop.
        self._writers.add(spawn(self._write_all(), self._name))

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                count = self._fitting()
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                items, futures, weights = zip(*batch, strict=True)
                self._last = len(items)
                self._weight -= sum(weights)
                self._needs_writer = len(self._writers) < self._at_once
                if self._waiting and self._needs_writer:
                    self._start_writer()
                await self._write_batch(items, futures)
        finally:
            self._needs_writer = True
            if (task := asyncio.current_task()) is not None:
                self._writers.discard(task)
            # Items are left only if this task was cancelled: no other task may write them.
            abandoned, self._waiting, self._weight = self._waiting, [], 0
            for _, future, _ in abandoned:
                future.cancel()

    def _fitting(self) -> int:
        """How many items go into the next batch; at least one, however large."""
        half = (len(self._waiting) + self._last + 1) // 2
        limit = min(self._limit, max(self._halved_above, half))
        if self._weight <= WEIGHT_MAX:
            return limit
        weights = accumulate(weight for _, _, weight in self._waiting[:limit])
        return max(1, sum(weight <= WEIGHT_MAX for weight in weights))

    async def _write_batch(
        self, items: Sequence[I], futures: Sequence[asyncio.Future[O] | _Place[O]]
    ) -> None:
        try:
            answers = await self._write(list(items))
            for future, answer in zip(futures, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:  # noqa: BLE001 -- passed to all callers
            if isinstance(error, Fenced) and error.tenant is not None and len(items) > 1:
                # One tenant has left, and nothing was written: the others must not be refused for
                # it.
                for item, future in zip(items, futures, strict=True):
                    await self._write_batch([item], [future])
                return
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
