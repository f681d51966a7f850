"""What has to be done however long the store is out of reach, and may have been done already when
only its answer was lost.

A job that was given back that way may be ours again, under the same token, before it is given back
once more; and that ends the second
take. So whoever takes can ask whether a job was spoken of again meanwhile, and then has to ask the
queue whose it is.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gesta.errors import StoreError
from gesta.ports.job_queue import Settlement
from gesta.runtime.clock import sleep
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process

#: Repetitions that are remembered: more than can end while one take is under way.
KEPT = 10_000

T = TypeVar("T")


class StoreRetry:
    def __init__(self, process: Process) -> None:
        self._runtime = process.runtime
        #: How many repetitions have ended.
        self.count = 0
        self._under_way: Counter[str] = Counter()
        #: Job → the count at its last one.
        self._last: dict[str, int] = {}
        #: Told what was repeated: a take under its token may hold the job no more.
        self.gave_back: Callable[[Settlement], None] = lambda _: None

    def spoke_of(self, job_id: str, since: int) -> bool:
        """Whether a settlement of this job was repeated since the count was that, or is being
        repeated.
        """
        return self._under_way[job_id] > 0 or self._last.get(job_id, 0) > since

    async def insist(
        self,
        act: Callable[[], Awaitable[T]],
        settlements: Sequence[Settlement] = (),
        failed: Callable[[StoreError], None] = lambda _: None,
    ) -> T:
        """Now and, if need be, again and again. `settlements`: what it does to jobs."""
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
        """As `insist`, after it failed for the first time."""
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
        """Also when its answer was lost once more: it may have had its effect."""
        self.count += 1
        for one in settlements:
            self._under_way[one.job_id] -= 1
            if not self._under_way[one.job_id]:
                del self._under_way[one.job_id]
            self._last.pop(one.job_id, None)
            self._last[one.job_id] = self.count
            self.gave_back(one)
        while len(self._last) > KEPT:
            del self._last[next(iter(self._last))]
