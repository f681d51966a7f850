"""Retries what must be done however long a store outage lasts.

A call whose answer was lost may have had its effect. So a repeated release may end a second lease
that this process acquired under the same token in between. `was_repeated` tells the caller of a
lease whether that may have happened; then it asks the queue which process holds the job.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gesta.errors import StoreError
from gesta.ports.job_queue import Settlement
from gesta.runtime.clock import sleep
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process

#: How many repetitions are remembered: more than can end during one lease call.
KEPT = 10_000

T = TypeVar("T")


class StoreRetry:
    def __init__(self, process: Process) -> None:
        self._runtime = process.runtime
        #: How many repetitions have ended.
        self.count = 0
        self._under_way: Counter[str] = Counter()
        #: Job → `count` at its last repetition.
        self._last: dict[str, int] = {}
        #: Called with a repeated settlement: this process may have lost the job by it.
        self.repeated: Callable[[Settlement], None] = lambda _: None

    def is_quiet(self, since: int) -> bool:
        """Whether no settlement was repeated since `count` was `since`, and none is being
        repeated.
        """
        return self.count == since and not self._under_way

    def was_repeated(self, job_id: str, since: int) -> bool:
        """Whether a settlement of this job was repeated since `count` was `since`, or is being
        repeated.
        """
        return self._under_way[job_id] > 0 or self._last.get(job_id, 0) > since

    async def insist(
        self,
        act: Callable[[], Awaitable[T]],
        settlements: Sequence[Settlement] = (),
        failed: Callable[[StoreError], None] = lambda _: None,
    ) -> T:
        """Call `act` until the store answers. `settlements`: what it does to jobs."""
        try:
            return await act()
        except StoreError as error:
            failed(error)
        return await self.again(act, settlements, failed)

    async def again(
        self,
        act: Callable[[], Awaitable[T]],
        settlements: Sequence[Settlement] = (),
        failed: Callable[[StoreError], None] = lambda _: None,
    ) -> T:
        """As `insist`, after the first failure."""
        while True:
            await sleep(self._runtime, STORE_PAUSE_SECONDS)
            self._under_way.update(one.job_id for one in settlements)
            try:
                return await act()
            except StoreError as error:
                failed(error)
            finally:
                self._ended(settlements)

    def _ended(self, settlements: Sequence[Settlement]) -> None:
        """Also if the answer was lost again: the call may have had its effect."""
        self.count += 1
        for one in settlements:
            self._under_way[one.job_id] -= 1
            if not self._under_way[one.job_id]:
                del self._under_way[one.job_id]
            self._last.pop(one.job_id, None)
            self._last[one.job_id] = self.count
            self.repeated(one)
        while len(self._last) > KEPT:
            del self._last[next(iter(self._last))]
